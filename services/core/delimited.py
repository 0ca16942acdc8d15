"""Messages one after the other in a stream, each behind its length as a varint: protobuf's own delimited form."""

import zlib
from collections.abc import Iterator
from typing import BinaryIO

from services.core.protowire import varint

MAX_BYTES = 80 << 20  # of one message
_MAX_VARINT_BYTES = 5


class BadStreamError(ValueError):
    """Bytes that are no such stream; the message says where."""


def delimited(message: bytes) -> bytes:
    """A message as it stands in a stream."""
    return varint(len(message)) + message


class DelimitedReader:
    """Iterates over the messages of a stream; afterwards `is_cut` says whether the last one was not whole.

    A message that is longer than `most` raises BadStreamError: nothing behind it can be found.
    """

    def __init__(self, stream: BinaryIO, most: int = MAX_BYTES) -> None:
        self._stream = stream
        self._most = most
        self.count = 0  # messages given
        self.offset = 0  # of the next message
        self.is_cut = False

    def __iter__(self) -> Iterator[bytes]:
        while True:
            head = self._length()
            if head is None:
                return
            length, head_bytes = head
            if length > self._most:
                raise BadStreamError(
                    f"message {self.count + 1} at byte {self.offset} says it has {length} bytes; at most {self._most}"
                )
            message = self._read(length)
            if len(message) < length:
                self.is_cut = True
                return
            self.count += 1
            self.offset += head_bytes + length
            yield message

    def _length(self) -> tuple[int, int] | None:
        """The length that stands next, and its own bytes; None at the end."""
        number = 0
        for position in range(_MAX_VARINT_BYTES):
            byte = self._read(1)
            if not byte:
                self.is_cut |= position > 0
                return None
            number |= (byte[0] & 127) << (7 * position)
            if byte[0] < 128:
                return number, position + 1
        raise BadStreamError(f"message {self.count + 1} at byte {self.offset} has no length")

    def _read(self, size: int) -> bytes:
        """`size` bytes, fewer at the end. A compressed stream may end in the middle."""
        parts = []
        try:
            while size > 0 and (part := self._stream.read(size)):
                parts.append(part)
                size -= len(part)
        except EOFError:
            self.is_cut = True
        except (zlib.error, OSError) as error:
            raise BadStreamError(f"message {self.count + 1} at byte {self.offset} cannot be read: {error}") from error
        return parts[0] if len(parts) == 1 else b"".join(parts)
