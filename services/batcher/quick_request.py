"""Requests of the common form, read without protobuf: id and deadline first, one input whose data comes last.

Where the data lies in shared memory, the block that stands for it comes last; see services.chassis.arena.
"""

import struct
from typing import Any, ClassVar

from google.protobuf.message import DecodeError

from services.batcher.buckets import Shapes
from services.chassis.arena import BLOCK_BYTES, BlockError, Borrower, decode_block, encode_block
from services.core.known_headers import VIEW_BYTES, Data, KnownHeaders, field_end
from services.core.protowire import varint
from services.core.signature import Given
from turnout.v1 import link_pb2 as pb
from turnout.v1 import tensor_pb2

_NUMBERS = struct.Struct("<BQBQ")  # id and deadline_us: tag and fixed64 each
_ID, _DEADLINE_US = 1 << 3 | 1, 5 << 3 | 1
_REQUESTS = 2 << 3 | 2  # Frame.requests
_DATA, _BLOCK = b"\x22", b"\x2a"  # Tensor.data, Tensor.block
_OTHER_BLOCK = encode_block(1, 2, 3)  # as none ever is: tried behind a header


class RequestLayout:
    """What requests with one header have in common. `checked` is who has checked them, `inner` what that found."""

    __slots__ = ("checked", "given", "inner", "is_lent", "key", "rows")

    def __init__(self, request: pb.Request) -> None:
        tensor = request.inputs[0]
        self.key = (request.model, request.version)
        self.rows = request.rows
        self.given = Given(tensor.name, tensor.datatype, tuple(tensor.shape), b"")
        self.is_lent = tensor.HasField("block")  # what stands behind the header is a block
        self.checked: object = None
        self.inner: Shapes = ()


class QuickRequest:
    """As a turnout.v1.Request that sets nothing but what its layout, its id, its deadline and its data say."""

    __slots__ = ("data", "deadline_us", "id", "layout")

    shadow: ClassVar[bool] = False
    tries: ClassVar[int] = 0
    priority: ClassVar[int] = 0
    queue_timeout_us: ClassVar[int] = 0
    credit: ClassVar[int] = 0
    digest: ClassVar[str] = ""
    request_id: ClassVar[str] = ""
    outputs: ClassVar[tuple[str, ...]] = ()
    signature_name: ClassVar[str] = ""

    def __init__(self, layout: RequestLayout, data: Data, number: int, deadline_us: int) -> None:
        self.layout = layout
        self.data = data
        self.id = number
        self.deadline_us = deadline_us

    @property
    def rows(self) -> int:
        return self.layout.rows


class LentRequest:
    """A turnout.v1.Request of which some inputs lie in shared memory: `inputs` has them as if they had come along."""

    __slots__ = ("_request", "inputs")

    def __init__(self, request: pb.Request, inputs: list[Given]) -> None:
        self._request = request
        self.inputs = inputs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)


class BrokenRequest:
    """A request that names a block which is not there; nobody serves it."""

    __slots__ = ("id", "message")

    model: ClassVar[str] = ""
    version: ClassVar[str] = ""

    def __init__(self, number: int, error: BlockError) -> None:
        self.id = number
        self.message = f"an input could not be read: {error}"


AnyRequest = pb.Request | QuickRequest | LentRequest


def key_of(request: AnyRequest | BrokenRequest) -> tuple[str, str]:
    """Model and version."""
    if isinstance(request, QuickRequest):
        return request.layout.key
    return request.model, request.version


def with_blocks(request: pb.Request, borrower: Borrower | None) -> AnyRequest | BrokenRequest:
    """The request with those inputs in place that lie in shared memory."""
    if borrower is None or not borrower.is_open or not any(tensor.HasField("block") for tensor in request.inputs):
        return request  # a block without an arena is a tensor without its data, and fails as one
    inputs = []
    try:
        for tensor in request.inputs:
            data: Data = tensor.data
            if tensor.HasField("block"):
                block = tensor.block
                data = borrower.read(request.id, block.offset, block.length, block.generation)
            inputs.append(Given(tensor.name, tensor.datatype, tuple(tensor.shape), data))
    except BlockError as error:
        return BrokenRequest(request.id, error)
    return LentRequest(request, inputs)


class RequestReader:
    """Reads frames that hold nothing but requests."""

    def __init__(self) -> None:
        self._layouts: KnownHeaders[RequestLayout] = KnownHeaders()

    def read(self, frame: bytes, borrower: Borrower | None = None) -> list[AnyRequest | BrokenRequest] | None:
        """The frame's requests; None when it holds something else too. Raises DecodeError.

        `borrower`: of the link that brought it. Blocks are read only when all of the frame is, so that none is twice.
        """
        places = []
        offset, end = 0, len(frame)
        while offset < end:
            place = field_end(frame, offset, _REQUESTS)
            if place is None:
                return None
            places.append(place)
            offset = place[1]
        requests: list[AnyRequest | BrokenRequest] = []
        for start, stop in places:
            is_large = stop - start > VIEW_BYTES
            requests.append(self._one(memoryview(frame)[start:stop] if is_large else frame[start:stop], borrower))
        return requests

    def _one(self, encoded: Data, borrower: Borrower | None) -> AnyRequest | BrokenRequest:
        if len(encoded) <= _NUMBERS.size:
            return _parsed(encoded)
        id_tag, number, deadline_tag, deadline_us = _NUMBERS.unpack_from(encoded)
        if id_tag != _ID or deadline_tag != _DEADLINE_US:
            return with_blocks(_parsed(encoded), borrower)
        rest = encoded[_NUMBERS.size :]
        found = self._layouts.find(rest)
        if found is None:
            request = _parsed(encoded)
            self._learn(bytes(encoded), bytes(rest), request)
            return with_blocks(request, borrower)
        layout, data = found
        if layout.is_lent:
            try:
                data = _read_block(number, data, borrower)
            except BlockError as error:
                return BrokenRequest(number, error)
        return QuickRequest(layout, data, number, deadline_us)

    def _learn(self, encoded: bytes, rest: bytes, request: pb.Request) -> None:
        if len(request.inputs) != 1 or _sets_more(request):
            return
        numbers, tensor = encoded[: _NUMBERS.size], request.inputs[0]
        if not tensor.HasField("block"):
            self._layouts.learn(
                rest, tensor.data, _DATA, lambda tried: _only_data(numbers + tried), RequestLayout(request)
            )
            return
        header_bytes = len(rest) - BLOCK_BYTES
        header = rest[:header_bytes]
        if not tensor.data and header.endswith(_BLOCK + varint(BLOCK_BYTES)):
            # As for data: with another block behind it, the header must give that block.
            other = _first_input(numbers + header + _OTHER_BLOCK)
            if other is not None and other.block.SerializeToString() == _OTHER_BLOCK:
                self._layouts.add(rest, header_bytes, RequestLayout(request))


def _read_block(number: int, encoded: Data, borrower: Borrower | None) -> Data:
    """What lies in an encoded Block. Raises BlockError."""
    if borrower is None:
        raise BlockError("a block of shared memory, and this link knows none")
    return borrower.read(number, *decode_block(encoded))


def _only_data(encoded: bytes) -> bytes | None:
    """The data of a request's one input."""
    tensor = _first_input(encoded)
    return None if tensor is None else tensor.data


def _first_input(encoded: bytes) -> tensor_pb2.Tensor | None:
    """A request's one input."""
    try:
        request = pb.Request.FromString(encoded)
    except DecodeError:
        return None
    return request.inputs[0] if len(request.inputs) == 1 else None


def _parsed(encoded: Data) -> pb.Request:
    request: pb.Request = pb.Request.FromString(bytes(encoded))
    return request


def _sets_more(request: pb.Request) -> bool:
    """Whether there is more to the request than a QuickRequest holds."""
    expected = {"id", "model", "version", "rows", "deadline_us", "inputs"}
    return any(field.name not in expected for field, _ in request.ListFields())
