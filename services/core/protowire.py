"""The protobuf wire format, as far as hot paths write it themselves: varints, tags, length-delimited fields."""

import struct

_TABLE = tuple(bytes((n,)) if n < 128 else bytes((n & 127 | 128, n >> 7)) for n in range(1 << 14))


def varint(number: int) -> bytes:
    """A non-negative integer as a base-128 varint."""
    if number < 1 << 14:
        return _TABLE[number]
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def tag(field: int, wire_type: int) -> bytes:
    """The key of a field: 0 varint, 1 fixed64, 2 length-delimited, 5 fixed32."""
    return varint(field << 3 | wire_type)


def varint_field(field: int, number: int) -> bytes:
    """A scalar field; empty for 0, as proto3 leaves out defaults."""
    return tag(field, 0) + varint(number) if number else b""


def bytes_field(field: int, data: bytes) -> bytes:
    """A string, bytes or message field; empty for no data, as proto3 leaves out defaults."""
    return tag(field, 2) + varint(len(data)) + data if data else b""


def packed_field(field: int, numbers: list[int]) -> bytes:
    """A packed repeated field of non-negative integers."""
    return bytes_field(field, b"".join([varint(number) for number in numbers]))


def packed_fixed64_field(field: int, numbers: list[int]) -> bytes:
    """A packed repeated fixed64 field."""
    return bytes_field(field, struct.pack(f"<{len(numbers)}Q", *numbers))
