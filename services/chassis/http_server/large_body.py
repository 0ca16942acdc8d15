"""A large body, received where it will stay: no copy of it is made."""

import asyncio
from typing import Protocol

_LEAST_BYTES, _MOST_BYTES = 64 << 10, 2 << 20  # set aside at once
_AHEAD = 8  # times what came with the head


def first_bytes(size: int, begun: int) -> int:
    """How much of a body to set aside at once, `begun` bytes of which came with its head.

    More only as it comes: promises alone must not take the room of those who send.
    """
    return min(size, max(_LEAST_BYTES, min(_MOST_BYTES, begun * _AHEAD)))


class Owner(Protocol):
    """The connection whose bytes are taken over."""

    def body_grew(self, count: int) -> bool: ...  # False = there is no room for as many more
    def body_came(self, body: bytearray) -> None: ...
    def connection_lost(self, error: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class LargeBody(asyncio.BufferedProtocol):
    """Takes over a connection's bytes from behind a head until the body is whole."""

    def __init__(self, owner: Owner, size: int, begun: bytes) -> None:
        self._owner = owner
        self._size = size
        self._at = len(begun)
        self._buffer = bytearray(max(first_bytes(size, len(begun)), len(begun)))
        self._buffer[: len(begun)] = begun
        self._view = memoryview(self._buffer)

    def get_buffer(self, _hint: int) -> memoryview:
        return self._view[self._at :]

    def buffer_updated(self, count: int) -> None:
        self._at = at = self._at + count
        if at < len(self._buffer):
            return
        self._view.release()
        if at == self._size:
            self._owner.body_came(self._buffer)
            return
        more = min(self._size - at, at)
        if self._owner.body_grew(more):
            try:
                self._buffer += bytes(more)
            except BufferError:  # asyncio's TLS still holds what it was given
                self._buffer = self._buffer + bytes(more)
            self._view = memoryview(self._buffer)

    def connection_lost(self, error: Exception | None) -> None:
        self._owner.connection_lost(error)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._owner.pause_writing()

    def resume_writing(self) -> None:
        self._owner.resume_writing()
