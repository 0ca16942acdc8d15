"""Requests to one batch and back: bytes joined by rows, outputs split by rows. No array library."""

from collections.abc import Sequence
from math import prod

from services.batcher.request import Parts, Pending
from services.core.known_headers import Data
from services.core.signature import TensorSpec
from services.core.tensor import BYTES, ELEMENT_BYTES, element_offsets
from turnout.v1 import tensor_pb2 as pb


class WrongRowsError(Exception):
    """A model's output does not hold the rows it was given; the message says which."""


class Column:
    """One tensor whose dimension 0 is rows, ready to be sliced by rows."""

    __slots__ = ("_offsets", "data", "datatype", "inner", "is_ragged", "name", "row_bytes")

    def __init__(self, name: str, datatype: str, rows: int, inner: tuple[int, ...], data: Data) -> None:
        self.name = name
        self.datatype = datatype
        self.inner = inner
        self.data = data
        self.is_ragged = False  # its rows were filled up along dimension 1, and are cut back
        self.row_bytes = -1  # BYTES: rows differ in size
        self._offsets: Sequence[int] = ()  # of each element, for BYTES
        if datatype == BYTES:
            self._offsets = element_offsets(rows * prod(inner), data)
            return
        self.row_bytes = prod(inner) * ELEMENT_BYTES[datatype]
        if len(data) != self.row_bytes * rows:
            whole = self.row_bytes * rows
            raise ValueError(f"{len(data)} bytes where {rows} rows of {datatype}{list(inner)} take {whole}")

    def slice(self, start: int, stop: int) -> Data:
        """The bytes of rows `start` up to `stop`."""
        if self.row_bytes >= 0:
            return self.data[start * self.row_bytes : stop * self.row_bytes]
        each = prod(self.inner)
        return self.data[self._offsets[start * each] : self._offsets[stop * each]]

    def rows_of(self, member: Pending, start: int, stop: int) -> Data:
        """The bytes of the rows of `member`, which are `start` up to `stop`."""
        return self.heads(start, stop, member.length) if self.is_ragged else self.slice(start, stop)

    def inner_of(self, member: Pending) -> tuple[int, ...]:
        """The shape of each row of `member`."""
        return (member.length, *self.inner[1:]) if self.is_ragged else self.inner

    def heads(self, start: int, stop: int, length: int) -> Data:
        """The bytes of the first `length` positions along dimension 1 in each of rows `start` up to `stop`."""
        if length == self.inner[0]:
            return self.slice(start, stop)
        if self.row_bytes >= 0:
            each, own = self.row_bytes, self.row_bytes // self.inner[0] * length
            if stop - start == 1:
                return self.data[start * each : start * each + own]
            heads = [self.data[at : at + own] for at in range(start * each, stop * each, each)] if own else []
        else:
            each, own = prod(self.inner), prod(self.inner[1:]) * length
            places = range(start * each, stop * each, each) if own else ()
            heads = [self.data[self._offsets[at] : self._offsets[at + own]] for at in places]
        return heads[0] if len(heads) == 1 else b"".join(heads)


def columns_of(outputs: Sequence[pb.Tensor], rows: int) -> list[Column]:
    """A batch's outputs, to be split by rows. Raises WrongRowsError unless each holds exactly `rows` rows."""
    columns = []
    for tensor in outputs[:]:  # slices of repeated fields are made in C, iterators are not
        shape = tuple(tensor.shape[:])
        if not shape or shape[0] != rows:
            raise WrongRowsError(f"output {tensor.name!r} has shape {list(shape)} for a batch of {rows} rows")
        try:
            columns.append(Column(tensor.name, tensor.datatype, rows, shape[1:], tensor.data))
        except (ValueError, KeyError) as error:
            raise WrongRowsError(f"output {tensor.name!r} of shape {list(shape)}: {error}") from error
    return columns


def cut(request: Pending, most_rows: int, specs: Sequence[TensorSpec]) -> list[Pending]:
    """Parts of `request` of at most `most_rows` rows, in order; the request keeps them and gives up its bytes."""
    shapes = request.bucket.inner
    padder = request.bucket.intake.padder
    if padder is not None:
        shapes = padder.own(shapes, request.length)
    columns = [
        Column(spec.name, spec.datatype, request.rows, inner, data)
        for spec, inner, data in zip(specs, shapes, request.inputs, strict=True)
    ]
    members = []
    for start in range(0, request.rows, most_rows):
        stop = min(request.rows, start + most_rows)
        part = request.part(stop - start, [column.slice(start, stop) for column in columns])
        part.bucket = request.bucket
        if padder is not None:
            padder.settle(part, shapes)
        members.append(part)
    request.parts = Parts(members)
    request.inputs = []
    return members
