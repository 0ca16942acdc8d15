"""A caller that costs a tenth of grpc.aio's: unary calls on one HTTP/2 connection, so many of them at a time.

async with SwiftCaller(address, path, ask) as caller:
    await caller.answered(1000)
"""

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple, Self

from ngh2 import Role

from services.chassis.http2 import Headers, Http2
from services.chassis.listening import split_address

TIMEOUT_S = 60.0  # for _TELL_EVERY outcomes
_TELL_EVERY = 500
_CANCEL = 8  # as HTTP/2 numbers it


class Call(NamedTuple):
    """What to send, and what to do with the answer: its bytes, or None for an error."""

    payload: bytes
    check: Callable[[bytes | None], None]
    leaves: bool = False  # at once, without an answer


class SwiftCaller:
    """An Http2Owner that keeps `at_once` calls of `path` going: `ask(n)` makes the n-th."""

    def __init__(self, address: str, path: str, ask: Callable[[int], Call], *, at_once: int = 16) -> None:
        self.outcomes = 0
        self.took_s: list[float] = []  # of calls that were answered well, since it was emptied last
        self.broken = ""
        self._address = address
        self._path = path
        self._ask = ask
        self._at_once = at_once
        self._http2 = Http2(Role.CLIENT, self, keepalive_s=0)
        self._open: dict[int, tuple[Call, float]] = {}
        self._sent = 0
        self._most = 0
        self._grown = asyncio.Event()

    async def __aenter__(self) -> Self:
        host, port = split_address(self._address)
        await asyncio.get_running_loop().create_connection(lambda: self._http2, host, port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._http2.close("done")

    async def answered(self, count: int) -> None:
        """Go on until `count` calls in all have an outcome; AssertionError when the connection breaks or stalls."""
        self._most = count
        self._fill()
        while self.outcomes < count:
            before = self.outcomes
            self._grown.clear()
            async with asyncio.timeout(TIMEOUT_S):
                await self._grown.wait()
            assert not self.broken, self.broken
            assert self.outcomes > before

    # -- what the connection says

    def connected(self) -> None:
        pass

    def headers(self, stream: int, headers: Headers, *, ended: bool) -> None:
        pass

    def message(self, stream: int, payload: bytes) -> None:
        call, began_s = self._open.pop(stream)
        self.took_s.append(time.perf_counter() - began_s)
        self._end(call, payload)

    def ended(self, stream: int) -> None:
        if stream in self._open:
            self._end(self._open.pop(stream)[0], None)

    def lost(self, reason: str) -> None:
        self.broken = reason
        self._grown.set()

    # -- inside

    def _end(self, call: Call, payload: bytes | None) -> None:
        call.check(payload)
        self.outcomes += 1
        self._fill()
        if self.outcomes % _TELL_EVERY == 0 or self.outcomes >= self._most:
            self._grown.set()

    def _fill(self) -> None:
        while len(self._open) < self._at_once and self._sent < self._most:
            call = self._ask(self._sent)
            self._sent += 1
            stream = self._http2.request(self._path)
            self._http2.send(stream, call.payload)
            self._http2._connection.end_stream(stream)
            self._open[stream] = (call, time.perf_counter())
            if call.leaves:
                asyncio.get_running_loop().call_soon(self._leave, stream)
        self._http2.schedule_flush()

    def _leave(self, stream: int) -> None:
        """After the request was written: end the call as a caller does who waits no longer."""
        if stream in self._open:
            self._http2._flush()
            self._http2._connection.reset_stream(stream, _CANCEL)
            self._http2.schedule_flush()
            self.ended(stream)
