"""Tensors as bytes: sizes, counts and the checks that need no array library. The wire form is turnout.v1.Tensor's."""

import struct
from collections.abc import Sequence
from math import prod

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
MAX_ELEMENTS = 1 << 40  # past any memory: refused before a product can overflow

_LENGTH = struct.Struct("<I")


def element_count(shape: Sequence[int]) -> int:
    """Elements of `shape`; 1 for a scalar. Raises ValueError on a negative dimension or an absurd product."""
    for size in shape:
        if size < 0:
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
        _check_bytes_elements(count, data)
    else:
        raise ValueError(f"datatype {datatype!r} is unknown; known are {', '.join(DATATYPES)}")


def _check_bytes_elements(count: int, data: bytes | memoryview) -> None:
    found, offset, end = 0, 0, len(data)
    while offset < end:
        if offset + 4 > end:
            raise ValueError(f"BYTES element {found} at offset {offset}: its 4-byte length is cut off")
        (length,) = _LENGTH.unpack_from(data, offset)
        offset += 4 + length
        if offset > end:
            raise ValueError(f"BYTES element {found}: length {length} reaches {offset - end} bytes past the end")
        found += 1
    if found != count:
        raise ValueError(f"BYTES data holds {found} elements, but the shape says {count}")


def encode_bytes(elements: Sequence[bytes]) -> bytes:
    """BYTES elements as wire data: each preceded by its length as little-endian uint32."""
    return b"".join(part for element in elements for part in (_LENGTH.pack(len(element)), element))


def decode_bytes(data: bytes | memoryview) -> list[bytes]:
    """The elements of BYTES wire data that `check_data` accepts."""
    elements = []
    offset = 0
    while offset < len(data):
        (length,) = _LENGTH.unpack_from(data, offset)
        elements.append(bytes(data[offset + 4 : offset + 4 + length]))
        offset += 4 + length
    return elements
