"""gRPC's message framing: the bytes of streams, cut anywhere, back to whole messages. No I/O."""

import struct
from collections.abc import Callable

PREFIX = struct.Struct(">BI")  # compressed flag, message length
MAX_MESSAGE_BYTES = 80 << 20
MAX_OUTPUT_BYTES = MAX_MESSAGE_BYTES - (1 << 20)  # of the outputs in one answer: room for what stands around them


class _Partial:
    """The bytes of a stream that do not make a whole message yet."""

    __slots__ = ("body_bytes", "chunks", "size", "wanted")

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.size = 0  # of the chunks
        self.wanted = 0  # until something can be done with them
        self.body_bytes = 0  # of the message whose prefix was read already; 0 = it was not


class Framing:
    """Puts messages together, stream by stream; `on_message(stream, message)` is called for each."""

    def __init__(self, on_message: Callable[[int, bytes], None]) -> None:
        self._on_message = on_message
        self._partials: dict[int, _Partial] = {}

    def forget(self, stream: int) -> None:
        """The stream has ended."""
        self._partials.pop(stream, None)

    def clear(self) -> None:
        self._partials.clear()

    def feed(self, stream: int, data: bytes) -> None:
        """Take the next bytes of a stream. Raises ValueError for a message that is compressed or too large."""
        partial = self._partials.get(stream)
        if partial is None or not partial.size:
            offset = self._whole_messages(stream, data)
            if offset < len(data):
                self._begin_partial(stream, data[offset:] if offset else data)
            return
        partial.chunks.append(data)
        partial.size += len(data)
        if partial.size >= partial.wanted:
            self._end_partial(stream, partial)

    def _begin_partial(self, stream: int, data: bytes) -> None:
        """Keep the beginning of a message: without its prefix if that is whole, so that the body is joined but once."""
        partial = self._partials.setdefault(stream, _Partial())
        if len(data) < PREFIX.size:
            partial.body_bytes, partial.wanted = 0, PREFIX.size
        else:
            partial.body_bytes = partial.wanted = self._message_end(data) - PREFIX.size
            data = data[PREFIX.size :]
        partial.chunks = [data]
        partial.size = len(data)
        if not data:  # nothing but the prefix: mark that a message has begun
            partial.size, partial.wanted = 1, partial.wanted + 1

    def _end_partial(self, stream: int, partial: _Partial) -> None:
        """Hand out the message that is whole now; what came behind it begins the next one."""
        joined, body_bytes = b"".join(partial.chunks), partial.body_bytes
        partial.chunks, partial.size = [], 0
        if not body_bytes:
            self.feed(stream, joined)
            return
        self._on_message(stream, joined if len(joined) == body_bytes else joined[:body_bytes])
        if len(joined) > body_bytes:
            self.feed(stream, joined[body_bytes:])

    def _whole_messages(self, stream: int, data: bytes) -> int:
        """Hand out the messages that are whole; the offset behind them."""
        offset, end = 0, len(data)
        while end - offset >= PREFIX.size:
            stop = offset + self._message_end(data, offset)
            if stop > end:
                break
            self._on_message(stream, data[offset + PREFIX.size : stop])
            offset = stop
        return offset

    @staticmethod
    def _message_end(data: bytes, offset: int = 0) -> int:
        compressed, length = PREFIX.unpack_from(data, offset)
        if compressed:
            raise ValueError("a compressed message, and no compression was agreed")
        if length > MAX_MESSAGE_BYTES:
            raise ValueError(f"a message of {length} bytes, over the limit of {MAX_MESSAGE_BYTES}")
        return PREFIX.size + int(length)
