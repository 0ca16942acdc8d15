"""Messages that differ in their last bytes only: a header seen before, then data of known length.

Protobuf writes fields in a fixed order, so the messages of one sender about one tensor of one shape begin with the same
bytes again and again. Where those bytes are known, nothing behind them needs to be parsed (docs/adr/0005).
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from services.core.protowire import varint

T = TypeVar("T")
Data = bytes | memoryview

_MOST = 2048  # headers; all are forgotten when there would be more
_MOST_LENGTHS = 4  # headers tried for one message length
_MOST_HEADER_BYTES = 1024
VIEW_BYTES = 4 << 10  # data of a longer message is not copied out of it


class KnownHeaders(Generic[T]):
    """Header -> what is known of it, found by message length and then by the header's bytes.

    A header counts only in messages as long as the one it was learned from: in a longer one, more stands behind its
    data, which a caller may have put there on purpose.
    """

    __slots__ = ("_count", "_lengths")

    def __init__(self) -> None:
        self._lengths: dict[int, dict[int, dict[bytes, T]]] = {}  # message bytes -> header bytes -> header
        self._count = 0

    def find(self, message: Data) -> tuple[T, Data] | None:
        """What is known of the message's header, and its data; None when the header is new."""
        known = self._lengths.get(len(message))
        if known is None:
            return None
        for header_bytes, values in known.items():
            value = values.get(bytes(message[:header_bytes]))
            if value is not None:
                if len(message) > VIEW_BYTES:
                    return value, memoryview(message)[header_bytes:]
                return value, message[header_bytes:]
        return None

    def learn(self, message: bytes, data: Data, field: bytes, read: Callable[[bytes], Data | None], value: T) -> None:
        """Remember what is known of the header of `message`, if `data` surely is all that stands behind it.

        `field`: the tag of the field that holds the data. `read` gives the data of a message, None when it has none;
        it is tried with other data behind the same header, since bytes that look like the field may lie in another.
        """
        header_bytes = len(message) - len(data)
        header = message[:header_bytes]
        if not data or not header.endswith(field + varint(len(data))):
            return
        other = _other_data(data)
        if read(header + other) == other:
            self.add(message, header_bytes, value)

    def add(self, message: bytes, header_bytes: int, value: T) -> None:
        """Remember what is known of the first `header_bytes` of `message`, if they are few enough."""
        if header_bytes > _MOST_HEADER_BYTES:
            return
        known = self._lengths.get(len(message), {})
        if self._count >= _MOST or (len(known) >= _MOST_LENGTHS and header_bytes not in known):
            self._lengths.clear()
            self._count = 0
            known = {}
        values = known.setdefault(header_bytes, {})
        self._count += message[:header_bytes] not in values
        values[message[:header_bytes]] = value
        self._lengths[len(message)] = known


def _other_data(data: Data) -> bytes:
    """As many bytes that differ, to try whether a header really ends where its data begins."""
    other = bytes(len(data))
    return other if other != data else b"\xff" * len(data)


def field_end(message: bytes, offset: int, tag: int) -> tuple[int, int] | None:
    """Where the content of a length-delimited field with a one-byte `tag` at `offset` begins and ends.

    None when another field stands there, or its length is cut off or too long for this short look.
    """
    end = len(message)
    if offset + 2 > end or message[offset] != tag:
        return None
    length = message[offset + 1]
    start = offset + 2
    if length > 127:
        length &= 127
        shift = 7
        while True:
            if start >= end or shift > 28:
                return None
            byte = message[start]
            start += 1
            length |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
    stop = start + length
    return (start, stop) if stop <= end else None
