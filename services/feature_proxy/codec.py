"""One entity of one feature view as it lies in a store: a blob of fixed size that numpy reads without parsing.

Little-endian, no padding: magic "TFV1", uint32 layout version, uint64 schema hash,
float64 event time (seconds since the Unix epoch), null bitmap (bit i % 8 of byte i // 8 = column i), then
the columns in the view's order. Null columns hold zeros.
"""

import hashlib
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.core.arrays import NUMPY_DTYPE
from services.core.feature_spec import Column
from services.core.spec import BadValueError

MAGIC = b"TFV1"
LAYOUT_VERSION = 1
MAX_BLOB_BYTES = 1 << 20

_HEADER = [("magic", "S4"), ("layout", "<u4"), ("schema", "<u8"), ("event_time", "<f8")]


class BlobError(ValueError):
    """A stored blob that these columns cannot have written; `row` is its position among those read."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Where everything lies in the blobs of some columns. `fields` are the columns' names in `dtype`."""

    columns: tuple[Column, ...]
    fields: tuple[str, ...]
    dtype: np.dtype
    schema: int
    start: bytes  # of every blob: magic, layout version, schema hash

    @classmethod
    def of(cls, columns: tuple[Column, ...]) -> "Layout":
        """Raises BadValueError when a blob would be larger than MAX_BLOB_BYTES."""
        fields = tuple(f"column{i}" for i in range(len(columns)))
        size = 24 + (len(columns) + 7) // 8
        for column in columns:
            size += math.prod(column.shape) * NUMPY_DTYPE[column.datatype].itemsize
        if size > MAX_BLOB_BYTES:
            raise BadValueError(f"columns: one entity takes {size} bytes, over the limit of {MAX_BLOB_BYTES}")
        packed = [(f, NUMPY_DTYPE[c.datatype], c.shape) for f, c in zip(fields, columns, strict=True)]
        nulls = ("nulls", "u1", ((len(columns) + 7) // 8,))
        schema = schema_hash(columns)
        start = MAGIC + struct.pack("<IQ", LAYOUT_VERSION, schema)
        return cls(columns, fields, np.dtype([*_HEADER, nulls, *packed]), schema, start)


def schema_hash(columns: Sequence[Column]) -> int:
    """64 bits that differ when a name, datatype, shape or the order of the columns differs; defaults do not count."""
    text = repr([(column.name, column.datatype, column.shape) for column in columns])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def pack(layout: Layout, values: Mapping[str, Any], event_time: float) -> bytes:
    """The blob of one entity. A column that is None or absent is null.

    Raises BadValueError for an unknown column, or a value that its datatype and shape cannot hold exactly enough.
    """
    unknown = values.keys() - {column.name for column in layout.columns}
    if unknown:
        known = ", ".join(column.name for column in layout.columns)
        raise BadValueError(f"{min(unknown)}: no such column; the view's are {known}")
    if not math.isfinite(event_time):
        raise BadValueError(f"event_time: {event_time} is not a number of seconds")
    record = np.zeros((), layout.dtype)
    record["magic"], record["layout"] = MAGIC, LAYOUT_VERSION
    record["schema"], record["event_time"] = layout.schema, event_time
    nulls = [values.get(column.name) is None for column in layout.columns]
    record["nulls"] = np.packbits(nulls, bitorder="little")
    for field, column, is_null in zip(layout.fields, layout.columns, nulls, strict=True):
        if not is_null:
            record[field] = as_column(column, values[column.name])
    return record.tobytes()


def read(layout: Layout, blobs: Sequence[bytes]) -> NDArray:
    """One record a blob, an array of `layout.dtype`. Raises BlobError naming the first that does not fit."""
    size, start = layout.dtype.itemsize, layout.start
    for row, blob in enumerate(blobs):
        if len(blob) != size or not blob.startswith(start):
            raise BlobError(row, _misfit(layout, blob))
    return np.frombuffer(b"".join(blobs), layout.dtype)


def nulls(layout: Layout, records: NDArray) -> NDArray[np.bool_]:
    """Which columns of which records are null: bool [rows, columns]."""
    bits = np.unpackbits(records["nulls"], axis=1, count=len(layout.columns), bitorder="little")
    return bits.astype(np.bool_)


def as_column(column: Column, value: Any) -> NDArray:
    """`value` in the column's datatype and shape. Raises BadValueError when it does not fit without being changed.

    Floats may lose precision, not overflow; whole floats are taken as integers, 0 and 1 as BOOL.
    """
    dtype = NUMPY_DTYPE[column.datatype]
    given = np.asarray(value, dtype=object)  # elements stay Python's, so that large integers compare exactly
    if given.shape != column.shape:
        raise BadValueError(f"{column.name}: has shape {list(given.shape)}, not {list(column.shape)}")
    elements = [e.item() if isinstance(e, np.generic) else e for e in given.ravel().tolist()]
    if not all(_fits(element, dtype) for element in elements):
        raise BadValueError(f"{column.name}: {_short(value)} is no {column.datatype}")
    return np.array(elements, dtype).reshape(column.shape)


def _fits(element: Any, dtype: np.dtype) -> bool:
    if isinstance(element, bool) or not isinstance(element, int | float):
        return isinstance(element, bool) and dtype.kind == "b"
    is_finite = isinstance(element, int) or math.isfinite(element)
    if dtype.kind == "f":
        return not is_finite or abs(element) <= float(np.finfo(dtype).max)
    if not is_finite or int(element) != element:
        return False
    low, high = (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    return low <= element <= high


def _misfit(layout: Layout, blob: bytes) -> str:
    if blob[:4] != MAGIC or len(blob) < 24:
        return f"the stored value ({len(blob)} bytes) is no feature row"
    version = int.from_bytes(blob[4:8], "little")
    if version != LAYOUT_VERSION:
        return f"the stored row has layout version {version}, this proxy reads {LAYOUT_VERSION}"
    schema = int.from_bytes(blob[8:16], "little")
    if schema != layout.schema:
        return (
            f"the stored row was written with other columns (schema {schema:016x}, the view's is {layout.schema:016x})"
        )
    return f"the stored row has {len(blob)} bytes, the view's take {layout.dtype.itemsize}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
