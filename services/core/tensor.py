"""Tensors as bytes: sizes, counts and the checks that need no array library. The wire form is turnout.v1.Tensor's."""

import struct
from collections.abc import Sequence
from math import prod
from operator import itemgetter

ELEMENT_BYTES = {
    "BOOL": 1,
    "UINT8": 1,
    "UINT16": 2,
    "UINT32": 4,
    "UINT64": 8,
    "INT8": 1,
    "INT16": 2,
    "INT32": 4,
    "INT64": 8,
    "FP16": 2,
    "BF16": 2,
    "FP32": 4,
    "FP64": 8,
}
BYTES = "BYTES"
DATATYPES = (*ELEMENT_BYTES, BYTES)
MAX_ELEMENTS = 1 << 40  # past any memory: refused before anything is allocated
MAX_DIMENSIONS = 64  # what array libraries take

_LENGTH = struct.Struct("<I")
_MANY = 16  # elements for which a second look at all of them pays


def element_count(shape: Sequence[int]) -> int:
    """Elements of `shape`; 1 for a scalar. Raises ValueError on a negative dimension or an absurd product."""
    if len(shape) > MAX_DIMENSIONS:
        raise ValueError(f"shape has {len(shape)} dimensions, over the limit of {MAX_DIMENSIONS}")
    if shape and min(shape) < 0:
        raise ValueError(f"shape {list(shape)} has a negative dimension")
    count = prod(shape)
    if count > MAX_ELEMENTS:
        raise ValueError(f"shape {list(shape)} has {count} elements, over the limit of {MAX_ELEMENTS}")
    return count


def check_data(datatype: str, shape: Sequence[int], data: bytes | memoryview) -> None:
    """Raise ValueError, saying what would be right, unless `data` is exactly one tensor of this datatype and shape."""
    count = element_count(shape)
    size = ELEMENT_BYTES.get(datatype)
    if size is not None:
        if len(data) != count * size:
            raise ValueError(
                f"has {len(data)} bytes, but {datatype} of shape {list(shape)} takes {count * size} ({count} x {size})"
            )
    elif datatype == BYTES:
        element_offsets(count, data)
    else:
        raise ValueError(f"datatype {datatype!r} is unknown; known are {', '.join(DATATYPES)}")


def element_offsets(count: int, data: bytes | memoryview) -> Sequence[int]:
    """Where each of `count` BYTES elements begins, then where the last ends. Raises ValueError for any other data."""
    size = len(data)
    if count > size // 4:  # elements have 4 bytes at least: nothing is walked for an absurd count
        raise ValueError(_bytes_fault(count, data))
    offsets = _equal_offsets(count, data) or _short_offsets(count, data) or _any_offsets(count, data)
    if offsets is None or offsets[-1] != size:
        raise ValueError(_bytes_fault(count, data))
    return offsets


def _equal_offsets(count: int, data: bytes | memoryview) -> Sequence[int] | None:
    """The offsets if all elements have one length, which takes no walk."""
    size = len(data)
    if not count or size % count:
        return None
    each = size // count
    prefix = _LENGTH.pack(each - 4)
    if any(data[at::each] != prefix[at : at + 1] * count for at in range(4)):
        return None
    return range(0, size + 1, each)


def _short_offsets(count: int, data: bytes | memoryview) -> Sequence[int] | None:
    """The offsets if all elements are shorter than 256 bytes: the walk then reads one byte an element."""
    if count < _MANY:
        return None
    data, offset = bytes(data), 0
    try:
        offsets = [0, *[offset := offset + 4 + data[offset] for _ in range(count)]]
        begins = itemgetter(*offsets[:-1])
        if any(begins(data[1:])) or any(begins(data[2:])) or any(begins(data[3:])):  # the length's other bytes
            return None
    except IndexError:
        return None
    return offsets


def _any_offsets(count: int, data: bytes | memoryview) -> Sequence[int] | None:
    """The offsets; None when data ends before."""
    offsets, offset, unpack = [0], 0, _LENGTH.unpack_from
    try:
        for _ in range(count):
            (length,) = unpack(data, offset)
            offset += 4 + length
            offsets.append(offset)
    except struct.error:
        return None
    return offsets


def _bytes_fault(count: int, data: bytes | memoryview) -> str:
    """Why `data` is not `count` BYTES elements."""
    found, offset, end = 0, 0, len(data)
    while offset < end:
        if offset + 4 > end:
            return f"BYTES element {found} at offset {offset}: its 4-byte length is cut off"
        (length,) = _LENGTH.unpack_from(data, offset)
        if offset + 4 + length > end:
            over = offset + 4 + length - end
            return f"BYTES element {found} at offset {offset}: its length {length} reaches {over} bytes past the end"
        offset += 4 + length
        found += 1
    return f"BYTES data holds {found} elements, but the shape says {count}"


def encode_bytes(elements: Sequence[bytes]) -> bytes:
    """BYTES elements as wire data: each preceded by its length as little-endian uint32."""
    parts = [b""] * (2 * len(elements))
    parts[::2] = map(_LENGTH.pack, map(len, elements))
    parts[1::2] = elements
    return b"".join(parts)


def decode_bytes(data: bytes | memoryview) -> list[bytes]:
    """The elements of BYTES wire data that `check_data` accepts."""
    data = bytes(data)  # slices of a view cost more than one copy
    elements: list[bytes] = []
    append, unpack = elements.append, _LENGTH.unpack_from
    offset, end = 0, len(data)
    while offset < end:
        start = offset + 4
        (length,) = unpack(data, offset)
        offset = start + length
        append(data[start:offset])
    return elements
