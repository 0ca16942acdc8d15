"""Replies of the common form, read without protobuf: OK, numbers first, one output whose data comes last."""

import struct
from typing import ClassVar

from google.protobuf.message import DecodeError

from services.core.known_headers import Data, KnownHeaders, field_end
from turnout.v1 import link_pb2 as pb

# What such a reply begins with: id, expected_wait_us, total_ns, the seven of stages_ns; tag and fixed64 each.
NUMBERS = struct.Struct("<BQBQBQBB7Q")
ID, WAIT_US, TOTAL_NS, STAGES_NS, STAGES_BYTES = 1 << 3 | 1, 12 << 3 | 1, 7 << 3 | 1, 6 << 3 | 2, 56
_TAGS = (ID, WAIT_US, TOTAL_NS, STAGES_NS, STAGES_BYTES)
_REPLIES = 3 << 3 | 2  # Frame.replies
_DATA = b"\x22"  # Tensor.data


class ReplyLayout:
    """What replies with one header have in common. `rendered`, `said`: codecs' own forms of it, made when needed."""

    __slots__ = ("digest", "rendered", "said", "tensor")

    def __init__(self, reply: pb.Reply) -> None:
        tensor = reply.outputs[0]
        self.digest = reply.digest
        self.tensor = (tensor.name, tensor.datatype, tuple(tensor.shape))
        self.rendered = b""
        self.said: tuple[bytes, bytes] | None = None


class QuickReply:
    """As much of a turnout.v1.Reply as an answer needs; `message` is all of it."""

    __slots__ = ("_encoded", "data", "expected_wait_us", "id", "layout", "stages_ns", "total_ns")

    code: ClassVar[int] = 0

    def __init__(self, layout: ReplyLayout, data: Data, encoded: bytes, numbers: tuple[int, ...]) -> None:
        self.layout = layout
        self.data = data
        self._encoded = encoded
        self.id = numbers[1]
        self.expected_wait_us = numbers[3]
        self.total_ns = numbers[5]
        self.stages_ns = numbers[8:]

    def message(self) -> pb.Reply:
        reply: pb.Reply = pb.Reply.FromString(self._encoded)
        return reply


AnyReply = pb.Reply | QuickReply


def whole(reply: AnyReply) -> pb.Reply:
    """The reply as its message."""
    return reply.message() if type(reply) is QuickReply else reply  # type: ignore[return-value]


class ReplyReader:
    """Reads the replies at the beginning of encoded frames."""

    def __init__(self) -> None:
        self._layouts: KnownHeaders[ReplyLayout] = KnownHeaders()

    def read(self, frame: bytes) -> tuple[list[AnyReply], int]:
        """The replies that `frame` begins with, and where the next field stands. Raises DecodeError."""
        replies: list[AnyReply] = []
        offset, end = 0, len(frame)
        while offset < end:
            place = field_end(frame, offset, _REPLIES)
            if place is None:
                break
            start, stop = place
            replies.append(self._one(frame[start:stop]))
            offset = stop
        return replies, offset

    def _one(self, encoded: bytes) -> AnyReply:
        if len(encoded) <= NUMBERS.size:
            return self._parsed(encoded)
        numbers = NUMBERS.unpack_from(encoded)
        if (numbers[0], numbers[2], numbers[4], numbers[6], numbers[7]) != _TAGS:
            return self._parsed(encoded)
        rest = encoded[NUMBERS.size :]
        found = self._layouts.find(rest)
        if found is not None:
            return QuickReply(found[0], found[1], encoded, numbers)
        reply = self._parsed(encoded)
        self._learn(encoded, rest, reply)
        return reply

    @staticmethod
    def _parsed(encoded: bytes) -> pb.Reply:
        reply: pb.Reply = pb.Reply.FromString(encoded)
        return reply

    def _learn(self, encoded: bytes, rest: bytes, reply: pb.Reply) -> None:
        if reply.code or len(reply.outputs) != 1 or len(reply.stages_ns) * 8 != STAGES_BYTES:
            return
        numbers = encoded[: NUMBERS.size]
        self._layouts.learn(
            rest, reply.outputs[0].data, _DATA, lambda tried: _only_data(numbers + tried), ReplyLayout(reply)
        )


def _only_data(encoded: bytes) -> bytes | None:
    """The data of a reply's one output."""
    try:
        reply = pb.Reply.FromString(encoded)
    except DecodeError:
        return None
    return reply.outputs[0].data if len(reply.outputs) == 1 else None
