"""The way out of a connection: answers, refusals, and an end that lets the caller read them."""

import asyncio
from typing import Protocol, cast

from services.chassis.http import HttpResponse
from services.chassis.http_server.encoding import Data
from services.chassis.http_server.exchange import Exchange, fields_of
from services.chassis.http_server.head import Head, KnownHeads
from services.chassis.http_server.limits import Limits
from services.chassis.tls import shown_on
from services.core.errors import OverloadedError, ServingError, TooLargeError

_LARGE_BYTES = 64 << 10  # of parts that are not joined
NEVER = 1 << 62


class Owner(Protocol):
    """The server of a connection."""

    limits: Limits
    heads: KnownHeads
    now_s: int  # counted by the server's own clock
    is_draining: bool

    def opened(self, wire: "Wire") -> bool: ...
    def closed(self, wire: "Wire") -> None: ...
    def resolve(self, head: Head) -> None: ...
    def work(self, exchange: Exchange) -> None: ...
    def first_lines(self, status: int) -> bytes: ...
    def refusal(self, head: Head | None, error: ServingError) -> HttpResponse: ...
    def reserve(self, count: int) -> bool: ...
    def release(self, count: int) -> None: ...


class Wire(asyncio.Protocol):
    """What a connection says; `until_s` is when it is given up unless something happens before."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._limits = owner.limits
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None  # at work
        self._held = bytearray()  # the beginning of a head, or what was sent before it was asked for
        self._reserved = 0  # bytes of a body that is not whole
        self._ends = False  # after this answer
        self._is_refused = False  # what still comes is dropped
        self._is_paused = False  # in reading
        self._unread: asyncio.Future[None] | None = None  # pending while the caller leaves answers unread
        self.until_s = 0
        self.peer = ""
        self.certificate = b""  # DER

    # -- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.peer = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        self.certificate = shown_on(transport)
        self.until_s = self._owner.now_s + self._limits.idle_s

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, _error: Exception | None) -> None:
        self._transport = None
        self._release()
        self._read_again()
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.gone()
        self._owner.closed(self)

    def pause_writing(self) -> None:
        self._unread = asyncio.get_running_loop().create_future()
        self.until_s = self._owner.now_s + self._limits.unread_s

    def resume_writing(self) -> None:
        self._read_again()
        if self._exchange is not None:
            self.until_s = NEVER
        elif not self._is_refused:
            self.until_s = self._owner.now_s + self._limits.idle_s
            self._next()

    # -- what exchanges call

    def start(self, head: Head, status: int, *, closes: bool = False) -> bytes:
        """An answer's status line and the fields that all have."""
        owner = self._owner
        if closes or not head.keeps_alive or owner.is_draining:
            self._ends = True
            return owner.first_lines(status) + b"connection: close\r\n"
        if head.is_old:
            return owner.first_lines(status) + b"connection: keep-alive\r\n"
        return owner.first_lines(status)

    def send(self, *parts: Data) -> None:
        transport = self._transport
        if transport is None:
            return
        if len(parts) == 1:
            transport.write(parts[0])
        elif len(parts[-1]) > _LARGE_BYTES:
            for part in parts:
                transport.write(part)
        else:
            transport.write(b"".join(parts))

    def done(self) -> None:
        self._exchange = None
        if self._ends:
            self._hang_up()
            return
        if self._unread is None:
            self.until_s = self._owner.now_s + self._limits.idle_s
        if self._held:
            asyncio.get_running_loop().call_soon(self._next)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def refusal(self, head: Head, error: ServingError) -> HttpResponse:
        return self._owner.refusal(head, error)

    async def writable(self) -> None:
        """Wait until the caller has read enough of what was sent."""
        if self._unread is not None:
            await asyncio.shield(self._unread)

    # -- what the server calls

    def close_if_idle(self) -> None:
        if self._exchange is None and self._transport is not None:
            self._transport.close()

    # -- inside

    def _next(self) -> None:
        """Go on with what was held while another request was at work."""

    def _refuse(self, error: ServingError, head: Head | None = None) -> None:
        """Answer what is no whole request, or will not be read, and end the connection."""
        self._release()
        response = self._owner.refusal(head, error)
        body = bytes(response.body)  # type: ignore[arg-type]
        length = b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.send(self._owner.first_lines(response.status), fields_of(response), length, body)
        self._hang_up(is_mid_body=isinstance(error, TooLargeError | OverloadedError))

    def _hang_up(self, *, is_mid_body: bool = False) -> None:
        """End the connection so that the caller reads the answer: what it still sends is read and dropped for a while.

        Closing at once would discard the answer, where the caller's system has not taken it yet. One that may be in
        the middle of its body looks for the answer behind it, so the connection stays whole until the caller ends it.
        """
        transport = self._transport
        if transport is None:
            return
        self._is_refused = True
        self._held.clear()
        self.until_s = self._owner.now_s + self._limits.linger_s
        if self._is_paused:
            self._is_paused = False
            transport.resume_reading()
        if is_mid_body:
            return
        if transport.can_write_eof():
            transport.write_eof()
        else:
            transport.close()

    def _release(self) -> None:
        self._owner.release(self._reserved)
        self._reserved = 0

    def _read_again(self) -> None:
        unread, self._unread = self._unread, None
        if unread is not None and not unread.done():
            unread.set_result(None)
