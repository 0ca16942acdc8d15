"""Requests of the common form, read without protobuf: id and deadline first, one input whose data comes last."""

import struct
from typing import ClassVar

from google.protobuf.message import DecodeError

from services.batcher.buckets import Shapes
from services.core.known_headers import VIEW_BYTES, Data, KnownHeaders, field_end
from services.core.signature import Given
from turnout.v1 import link_pb2 as pb

_NUMBERS = struct.Struct("<BQBQ")  # id and deadline_us: tag and fixed64 each
_ID, _DEADLINE_US = 1 << 3 | 1, 5 << 3 | 1
_REQUESTS = 2 << 3 | 2  # Frame.requests
_DATA = b"\x22"  # Tensor.data


class RequestLayout:
    """What requests with one header have in common. `checked` is who has checked them, `inner` what that found."""

    __slots__ = ("checked", "given", "inner", "key", "rows")

    def __init__(self, request: pb.Request) -> None:
        tensor = request.inputs[0]
        self.key = (request.model, request.version)
        self.rows = request.rows
        self.given = Given(tensor.name, tensor.datatype, tuple(tensor.shape), b"")
        self.checked: object = None
        self.inner: Shapes = ()


class QuickRequest:
    """As a turnout.v1.Request that sets nothing but what its layout, its id, its deadline and its data say."""

    __slots__ = ("data", "deadline_us", "id", "layout")

    shadow: ClassVar[bool] = False
    tries: ClassVar[int] = 0
    priority: ClassVar[int] = 0
    queue_timeout_us: ClassVar[int] = 0
    digest: ClassVar[str] = ""
    request_id: ClassVar[str] = ""
    outputs: ClassVar[tuple[str, ...]] = ()

    def __init__(self, layout: RequestLayout, data: Data, number: int, deadline_us: int) -> None:
        self.layout = layout
        self.data = data
        self.id = number
        self.deadline_us = deadline_us

    @property
    def rows(self) -> int:
        return self.layout.rows


AnyRequest = pb.Request | QuickRequest


def key_of(request: AnyRequest) -> tuple[str, str]:
    """Model and version."""
    if isinstance(request, QuickRequest):
        return request.layout.key
    return request.model, request.version


class RequestReader:
    """Reads frames that hold nothing but requests."""

    def __init__(self) -> None:
        self._layouts: KnownHeaders[RequestLayout] = KnownHeaders()

    def read(self, frame: bytes) -> list[AnyRequest] | None:
        """The frame's requests; None when it holds something else too. Raises DecodeError."""
        requests: list[AnyRequest] = []
        offset, end = 0, len(frame)
        while offset < end:
            place = field_end(frame, offset, _REQUESTS)
            if place is None:
                return None
            start, offset = place
            is_large = offset - start > VIEW_BYTES
            requests.append(self._one(memoryview(frame)[start:offset] if is_large else frame[start:offset]))
        return requests

    def _one(self, encoded: Data) -> AnyRequest:
        if len(encoded) <= _NUMBERS.size:
            return _parsed(encoded)
        id_tag, number, deadline_tag, deadline_us = _NUMBERS.unpack_from(encoded)
        if id_tag != _ID or deadline_tag != _DEADLINE_US:
            return _parsed(encoded)
        rest = encoded[_NUMBERS.size :]
        found = self._layouts.find(rest)
        if found is not None:
            return QuickRequest(found[0], found[1], number, deadline_us)
        request = _parsed(encoded)
        self._learn(bytes(encoded), bytes(rest), request)
        return request

    def _learn(self, encoded: bytes, rest: bytes, request: pb.Request) -> None:
        if len(request.inputs) != 1 or _sets_more(request):
            return
        numbers = encoded[: _NUMBERS.size]
        self._layouts.learn(
            rest, request.inputs[0].data, _DATA, lambda tried: _only_data(numbers + tried), RequestLayout(request)
        )


def _only_data(encoded: bytes) -> bytes | None:
    """The data of a request's one input."""
    try:
        request = pb.Request.FromString(encoded)
    except DecodeError:
        return None
    return request.inputs[0].data if len(request.inputs) == 1 else None


def _parsed(encoded: Data) -> pb.Request:
    request: pb.Request = pb.Request.FromString(bytes(encoded))
    return request


def _sets_more(request: pb.Request) -> bool:
    """Whether there is more to the request than a QuickRequest holds."""
    expected = {"id", "model", "version", "rows", "deadline_us", "inputs"}
    return any(field.name not in expected for field, _ in request.ListFields())
