"""A large body, received where it will stay: no copy of it is made."""

import asyncio
from typing import Protocol

FIRST_BYTES = 2 << 20  # set aside at once; more only as it comes, so that a promise alone costs little


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
        self._buffer = bytearray(max(min(size, FIRST_BYTES), len(begun)))
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
