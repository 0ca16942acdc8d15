"""Requests to one batch and back: bytes joined by rows, outputs split by rows. No array library."""

import struct
from collections.abc import Sequence
from math import prod

from services.batcher.request import Parts, Pending
from services.core.known_headers import Data
from services.core.signature import TensorSpec
from services.core.tensor import BYTES, ELEMENT_BYTES
from turnout.v1 import tensor_pb2 as pb

_LENGTH = struct.Struct("<I")


class WrongRowsError(Exception):
    """A model's output does not hold the rows it was given; the message says which."""


class Column:
    """One tensor whose dimension 0 is rows, ready to be sliced by rows."""

    __slots__ = ("_offsets", "data", "datatype", "inner", "name", "row_bytes")

    def __init__(self, name: str, datatype: str, rows: int, inner: tuple[int, ...], data: Data) -> None:
        self.name = name
        self.datatype = datatype
        self.inner = inner
        self.data = data
        self.row_bytes = -1  # BYTES: rows differ in size
        self._offsets: list[int] = []
        if datatype == BYTES:
            self._offsets = _row_offsets(data, rows, prod(inner))
            whole = self._offsets[-1]
        else:
            self.row_bytes = prod(inner) * ELEMENT_BYTES[datatype]
            whole = self.row_bytes * rows
        if whole != len(data):
            raise ValueError(f"{len(data)} bytes where {rows} rows of {datatype}{list(inner)} take {whole}")

    def slice(self, start: int, stop: int) -> Data:
        """The bytes of rows `start` up to `stop`."""
        if self.row_bytes >= 0:
            return self.data[start * self.row_bytes : stop * self.row_bytes]
        return self.data[self._offsets[start] : self._offsets[stop]]


def _row_offsets(data: Data, rows: int, elements: int) -> list[int]:
    """Where each row of BYTES data begins, and where the last ends. Raises ValueError when data ends before."""
    offsets, offset = [0], 0
    try:
        for _ in range(rows):
            for _ in range(elements):
                offset += 4 + _LENGTH.unpack_from(data, offset)[0]
            offsets.append(offset)
    except struct.error:
        raise ValueError(f"BYTES data ends inside row {len(offsets) - 1} of {rows}") from None
    return offsets


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
    columns = [
        Column(spec.name, spec.datatype, request.rows, inner, data)
        for spec, inner, data in zip(specs, request.bucket.inner, request.inputs, strict=True)
    ]
    members = []
    for start in range(0, request.rows, most_rows):
        stop = min(request.rows, start + most_rows)
        part = request.part(stop - start, [column.slice(start, stop) for column in columns])
        part.bucket = request.bucket
        members.append(part)
    request.parts = Parts(members)
    request.inputs = []
    return members
