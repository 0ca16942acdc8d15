"""gRPC framing over HTTP/2, spoken on the event loop with ngh2 (nghttp2 without I/O).

One Http2 is one socket, either end. It knows streams and whole gRPC messages, not what they mean. There is no thread
behind it: grpc.aio's threads cost 0.6 ms a hop when idle (docs/adr/0002).
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Protocol, cast

from ngh2 import Configuration, Connection, Role, Setting
from ngh2.events import (
    ConnectionClosed,
    DataReceived,
    GoAwayReceived,
    PingAcknowledged,
    RequestReceived,
    ResponseReceived,
    StreamClosed,
    TrailersReceived,
)
from ngh2.exceptions import NGH2Error

from services.chassis.framing import PREFIX, Framing

_WINDOW_BYTES = 16 << 20
_PULL_BYTES = 256 << 10  # taken from nghttp2 at a time, so that streams interleave in the socket
_HIGH_WATER_BYTES = 512 << 10
_LARGE_BYTES = 1 << 20  # of a message over which a peer may be silent for longer
_SLOWEST_BYTES_S = 4 << 20  # at which it is taken in, parsed and answered on a busy machine
_MOST_PATIENCE_S = 15.0
_SMALL_BYTES = 64 << 10  # of a message whose parts are joined before they are queued

_CONFIG = Configuration()
Headers = list[tuple[bytes, bytes]]
Data = bytes | memoryview


class Http2Owner(Protocol):
    """What the socket tells its owner; called on the loop."""

    def connected(self) -> None: ...
    def headers(self, stream: int, headers: Headers, *, ended: bool) -> None: ...
    def message(self, stream: int, payload: bytes) -> None: ...
    def ended(self, stream: int) -> None: ...
    def lost(self, reason: str) -> None: ...


class Http2(asyncio.Protocol):
    """One connection.

    `keepalive_s`: silence until a ping, and again until the peer is given up; 0 = never. A peer that was sent something
    large is given longer, and nobody is given up by an end that was away itself.
    """

    def __init__(self, role: Role, owner: Http2Owner, *, keepalive_s: float) -> None:
        self._connection = Connection(role, _CONFIG)
        self._owner = owner
        self.keepalive_s = keepalive_s
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._framing = Framing(owner.message)
        self._paused = False
        self._flush_due = False
        self._before_flush: Callable[[], None] | None = None
        self._heard = self._loop.time()
        self._pinged = False
        self._patient_until = 0.0  # the peer may be at work on something large
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._reason = ""

    # -- what the owner calls

    def before_flush(self, gather: Callable[[], None]) -> None:
        """`gather` is called once at the end of each turn in which `schedule_flush` was called; it sends."""
        self._before_flush = gather

    def schedule_flush(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def request(self, path: str) -> int:
        """Open a stream as the client; its id."""
        return self._connection.send_request(
            [
                (b":method", b"POST"),
                (b":scheme", b"https" if self.tls else b"http"),
                (b":path", path.encode()),
                (b":authority", b"turnout"),
                (b"content-type", b"application/grpc"),
                (b"te", b"trailers"),
            ]
        )

    def respond(self, stream: int) -> None:
        self._connection.send_response(stream, [(b":status", b"200"), (b"content-type", b"application/grpc")])

    def refuse(self, stream: int, headers: Headers) -> None:
        """Answer with headers only (gRPC's trailers-only form)."""
        start: Headers = [(b":status", b"200"), (b"content-type", b"application/grpc")]
        self._connection.send_response(stream, start + headers, end_stream=True)
        self.schedule_flush()

    def send(self, stream: int, *parts: Data) -> None:
        """Queue one message, given in parts that are joined on the way; it leaves with the next flush."""
        size = sum(map(len, parts))
        prefix = PREFIX.pack(0, size)
        if size <= _SMALL_BYTES:
            self._connection.send_data(stream, b"".join((prefix, *parts)))
            return
        if size > _LARGE_BYTES:
            now = self._loop.time()
            wait_s = max(self._patient_until - now, 0) + size / _SLOWEST_BYTES_S
            self._patient_until = now + min(wait_s, _MOST_PATIENCE_S)
        self._connection.send_data(stream, prefix)  # joining would copy what nghttp2 is about to copy
        for part in parts:
            if len(part):
                self._connection.send_data(stream, part)

    def finish(self, stream: int, trailers: Headers) -> None:
        """End a stream of the server."""
        self._connection.send_trailers(stream, trailers)
        self.schedule_flush()

    @property
    def tls(self) -> ssl.SSLObject | None:
        """None = plaintext."""
        return self._transport.get_extra_info("ssl_object") if self._transport else None

    @property
    def queued_bytes(self) -> int:
        """Sent but not yet taken by the socket."""
        transport = self._transport
        return self._connection.queued_body_size() + (transport.get_write_buffer_size() if transport else 0)

    def close(self, reason: str) -> None:
        """Say GOAWAY, write out what the socket still takes, and close; `lost` follows."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._reason = self._reason or reason
        try:
            self._flush()
            self._connection.send_goaway()
            self._pull()
        except NGH2Error:
            pass  # the session is broken already: the socket is closed all the same
        transport.close()

    def abort(self, reason: str) -> None:
        """Close at once, dropping what is queued."""
        self._reason = self._reason or reason
        if self._transport is not None:
            self._transport.abort()

    def drop(self) -> None:
        """Forget the connection, also one that a loop, interrupted while it connected, closes without a word."""
        transport, self._transport = self._transport, None
        if self._timer is not None:
            self._timer.cancel()
        if transport is not None:
            transport.abort()

    # -- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        self._connection.initiate_connection(
            {Setting.INITIAL_WINDOW_SIZE: _WINDOW_BYTES, Setting.MAX_CONCURRENT_STREAMS: 128}
        )
        self._connection.set_local_window_size(_WINDOW_BYTES)
        self._heard = self._loop.time()
        if self.keepalive_s:
            self._look_later()
        self._owner.connected()
        self.schedule_flush()

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        self._pinged = False
        try:
            self._connection.receive_data(data)
            for event in self._connection.events():
                if type(event) is DataReceived:
                    self._framing.feed(event.stream_id, event.data)
                    if event.end_stream:
                        self._end(event.stream_id)
                else:
                    self._other(event)
            if not self._flush_due and self._connection.want_write:
                self.schedule_flush()  # window updates, acknowledgements
            if not self._connection.want_read:
                self._say_goodbye()
        except (NGH2Error, ValueError) as error:
            self.abort(f"the peer broke the protocol: {error}")

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None
        self._framing.clear()
        self._owner.lost(self._reason or (str(error) if error else "the peer closed the connection"))

    def eof_received(self) -> bool:
        return False  # close our side too

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._pull()

    # -- inside

    def _end(self, stream: int) -> None:
        self._framing.forget(stream)
        self._owner.ended(stream)

    def _other(self, event: object) -> None:
        match event:
            case RequestReceived() | ResponseReceived():
                self._owner.headers(event.stream_id, list(event.headers), ended=event.end_stream)
                if event.end_stream:
                    self._end(event.stream_id)
            case TrailersReceived() | StreamClosed():
                self._end(event.stream_id)
            case GoAwayReceived() | ConnectionClosed():
                self.close("the peer said goodbye")
            case PingAcknowledged():
                self._pinged = False
            case _:
                pass  # settings and windows are nghttp2's business

    def _flush(self) -> None:
        self._flush_due = False
        if self._transport is None:
            return
        if self._before_flush is not None:
            self._before_flush()
        self._pull()

    def _pull(self) -> None:
        transport = self._transport
        while transport is not None and not self._paused:
            data = self._connection.data_to_send(_PULL_BYTES)
            if data:
                transport.write(data)
            if len(data) < _PULL_BYTES:
                return  # that was all, or all that the peer's window takes

    def _say_goodbye(self) -> None:
        """nghttp2 has ended the session, for its own reasons or the peer's: send its GOAWAY and close."""
        self._pull()
        if self._transport is not None:
            self._reason = self._reason or "the session ended"
            self._transport.close()

    def _look_later(self) -> None:
        self._due = self._loop.time() + self.keepalive_s
        self._timer = self._loop.call_at(self._due, self._keepalive)

    def _keepalive(self) -> None:
        now = self._loop.time()
        if now - self._due > self.keepalive_s / 4:  # this end was away, and has not read what came meanwhile
            self._look_later()
            return
        silent_s = now - self._heard
        if self._pinged and silent_s >= 2 * self.keepalive_s and now >= self._patient_until:
            self.abort(f"the peer was silent for {silent_s:.1f} s")
            return
        if silent_s >= self.keepalive_s and not self._pinged:
            self._pinged = True
            try:
                self._connection.ping()
            except NGH2Error as error:
                self.abort(f"the session ended: {error}")
                return
            self._pull()
        self._look_later()
