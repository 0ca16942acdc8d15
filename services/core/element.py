"""One number as one element of a datatype, for tensors that the mesh makes itself."""

import struct

from services.core.tensor import BYTES, ELEMENT_BYTES

_FLOATS = {"FP16": "<e", "FP32": "<f", "FP64": "<d"}


def element(datatype: str, value: float) -> bytes:
    """`value` in the wire form of `datatype`. Raises ValueError where the datatype does not hold it."""
    if datatype == BYTES or datatype not in ELEMENT_BYTES:
        raise ValueError(f"{datatype} holds no numbers")
    try:
        if datatype == "BF16":
            return _bfloat16(value)
        if datatype in _FLOATS:
            return struct.pack(_FLOATS[datatype], value)
        return _whole(datatype, value)
    except OverflowError:  # of infinity to an integer too
        raise ValueError(f"{datatype} does not hold {value:g}") from None


def most_exact(datatype: str) -> int:
    """The largest whole number up to which `datatype` holds every one; 0 for BYTES."""
    if datatype == BYTES:
        return 0
    if datatype == "BOOL":
        return 1
    mantissa = {"FP16": 11, "BF16": 8, "FP32": 24, "FP64": 53}.get(datatype)
    if mantissa is not None:
        return 1 << mantissa
    bits = 8 * ELEMENT_BYTES[datatype]
    return (1 << (bits if datatype.startswith("U") else bits - 1)) - 1


def _whole(datatype: str, value: float) -> bytes:
    number = int(value) if value == value else None  # noqa: PLR0124 - not for NaN
    is_signed = datatype.startswith("INT")
    if number is None or number != value or (datatype == "BOOL" and number not in {0, 1}):
        raise ValueError(f"{datatype} does not hold {value:g}")
    return number.to_bytes(ELEMENT_BYTES[datatype], "little", signed=is_signed)


def _bfloat16(value: float) -> bytes:
    """The upper half of a float32, rounded to the nearest even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    if value == value and abs(value) != float("inf"):  # noqa: PLR0124 - rounding would spoil a NaN
        bits += 0x7FFF + (bits >> 16 & 1)
        if bits & 0x7FFFFFFF >= 0x7F800000:
            raise OverflowError
    elif value != value:  # noqa: PLR0124
        bits |= 0x400000
    return struct.pack("<H", bits >> 16)
