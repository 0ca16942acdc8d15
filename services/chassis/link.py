"""Links: long-lived streams of frames between two services. Reconnect, keepalive, coalescing and drain live here, once.

All envelopes that become ready in one turn of the event loop travel in one frame; see turnout/v1/link.proto.
"""

import asyncio
import contextlib
import os
import random
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol

import structlog
from google.protobuf.message import DecodeError
from ngh2 import Role

from services.chassis.http2 import Headers, Http2
from services.core.errors import INTERNAL, UNIMPLEMENTED, ServingError
from turnout.v1 import link_pb2 as pb

PROTOCOL = 1
OPEN, BULK = "/turnout.v1.Link/Open", "/turnout.v1.Link/Bulk"
FRAME_BYTES = 256 << 10  # a frame is cut here, and a larger envelope takes the bulk stream
KEEPALIVE_S = 2.0
CONNECT_TIMEOUT_S = 5.0
_BACKOFF_S = (0.05, 2.0)
_UNARY_TIMEOUT_S = 30.0
_MAX_LINKS = 512

log = structlog.get_logger()
Unary = Callable[[bytes], Awaitable[bytes]]


class LinkHandler(Protocol):
    """What a service does with its links; called on the loop, must not block or raise."""

    def opened(self, link: "Link") -> None: ...
    def received(self, link: "Link", frame: pb.Frame) -> None: ...
    def closed(self, link: "Link", reason: str) -> None: ...


class Link:
    """One connection to a peer, either end; handed to a LinkHandler once the peer's Hello is there."""

    def __init__(self, handler: LinkHandler, hello: pb.Hello, role: Role, keepalive_s: float) -> None:
        self.peer = pb.Hello()
        self._handler = handler
        self._hello = hello
        self._role = role
        self._http2 = Http2(role, self, keepalive_s=keepalive_s)
        self._http2.before_flush(self._gather)
        self._open_stream = 0
        self._bulk_stream = 0
        self._frame = pb.Frame()
        self._frame_bytes = 0
        self._bulk: list[pb.Frame] = []
        self._is_open = False
        self.on_lost: Callable[[Link, str], None] | None = None
        self.on_other: Callable[[Link, int, str], None] | None = None
        self.unary_calls: dict[int, bytes] = {}

    @property
    def protocol(self) -> Http2:
        return self._http2

    @property
    def queued_bytes(self) -> int:
        """Written to the link, not yet taken by the socket."""
        return self._http2.queued_bytes + self._frame_bytes

    def frame_for(self, size_bytes: int) -> pb.Frame:
        """The outgoing frame for one envelope of about `size_bytes`; fill it in this turn, it leaves at its end."""
        self._http2.schedule_flush()
        if size_bytes > FRAME_BYTES:
            frame = pb.Frame()
            self._bulk.append(frame)
            return frame
        if self._frame_bytes and self._frame_bytes + size_bytes > FRAME_BYTES:
            self._send_frame()
        self._frame_bytes += size_bytes + 1
        return self._frame

    def close(self, reason: str) -> None:
        """Write out what is queued, then close; the handler hears `closed`."""
        self._http2.close(reason)

    # -- what Http2 calls

    def connected(self) -> None:
        if self._role is Role.CLIENT:
            self._open_stream = self._http2.request(OPEN)
            self._bulk_stream = self._http2.request(BULK)
            self._greet(self._open_stream)
            self._greet(self._bulk_stream)

    def headers(self, stream: int, headers: Headers, *, ended: bool) -> None:
        fields = dict(headers)
        if self._role is Role.CLIENT:
            if fields.get(b":status") != b"200" or b"grpc-status" in fields:
                self._http2.close(f"the peer refused the link: {fields}")
            return
        path = fields.get(b":path", b"").decode("latin-1")
        if path not in {OPEN, BULK}:
            if self.on_other is not None:
                self.on_other(self, stream, path)
            return
        if path == OPEN:
            self._open_stream = stream
        else:
            self._bulk_stream = stream
        self._http2.respond(stream)
        self._greet(stream)
        if ended:
            self._http2.finish(stream, [(b"grpc-status", b"0")])

    def message(self, stream: int, payload: bytes) -> None:
        if stream in self.unary_calls:
            self.unary_calls[stream] += payload
            return
        if stream not in {self._open_stream, self._bulk_stream}:
            return  # the request of a call that was refused already
        try:
            frame = pb.Frame.FromString(payload)
        except DecodeError:
            self._http2.abort("the peer sent bytes that are not a turnout.v1.Frame")
            return
        if frame.HasField("hello"):
            self._greeted(stream, frame.hello)
        elif not self._is_open:
            self._http2.abort("the peer sent a frame before its Hello")
            return
        try:
            self._handler.received(self, frame)
        except Exception:
            log.exception("frame_failed", peer=self.peer.instance)
            self._http2.abort("a frame could not be handled; see the log")

    def ended(self, stream: int) -> None:
        if stream in {self._open_stream, self._bulk_stream}:
            self._http2.close("the peer ended the link")
        elif stream in self.unary_calls and self.on_other is not None:
            self.on_other(self, stream, "")

    def lost(self, reason: str) -> None:
        was_open, self._is_open = self._is_open, False
        if was_open:
            self._handler.closed(self, reason)
        if self.on_lost is not None:
            self.on_lost(self, reason)

    # -- inside

    def _greet(self, stream: int) -> None:
        self._http2.send(stream, pb.Frame(hello=self._hello).SerializeToString())

    def _greeted(self, stream: int, hello: pb.Hello) -> None:
        if hello.protocol != PROTOCOL:
            self._http2.close(f"the peer speaks link protocol {hello.protocol}, this is {PROTOCOL}")
        elif stream == self._open_stream and not self._is_open:
            self.peer = hello
            self._is_open = True
            self._handler.opened(self)

    def _gather(self) -> None:
        if self._frame_bytes:
            self._send_frame()
        if self._bulk:
            stream = self._bulk_stream or self._open_stream
            for frame in self._bulk:
                self._http2.send(stream, frame.SerializeToString())
            self._bulk.clear()

    def _send_frame(self) -> None:
        self._http2.send(self._open_stream, self._frame.SerializeToString())
        self._frame = pb.Frame()
        self._frame_bytes = 0


def is_unix(address: str) -> bool:
    return address.startswith("unix:")


def split_address(address: str) -> tuple[str, int]:
    """(host, port) of "host:port"; IPv6 hosts stand in brackets. Raises ValueError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"address {address!r} is not host:port")
    return host.strip("[]"), int(port)


class LinkClient:
    """A link that is dialled again, with jittered backoff, until closed."""

    def __init__(
        self, address: str, handler: LinkHandler, hello: pb.Hello, *, keepalive_s: float = KEEPALIVE_S
    ) -> None:
        self.address = address
        self.link: Link | None = None
        self._handler = handler
        self._hello = hello
        self._keepalive_s = keepalive_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"link-{self.address}")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        least, most = _BACKOFF_S
        wait = least
        while True:
            try:
                link, lost = await self._dial()
            except (OSError, TimeoutError):
                wait = min(most, wait * 2)
            else:
                try:
                    self.link = link
                    await lost
                    wait = least if link.peer.protocol else min(most, wait * 2)
                finally:
                    self.link = None
                    link.close("this end stops")
            await asyncio.sleep(wait * random.uniform(0.5, 1.5))  # noqa: S311 - jitter

    async def _dial(self) -> tuple[Link, "asyncio.Future[str]"]:
        loop = asyncio.get_running_loop()
        lost: asyncio.Future[str] = loop.create_future()
        link = Link(self._handler, self._hello, Role.CLIENT, self._keepalive_s)
        link.on_lost = lambda _, reason: None if lost.done() else lost.set_result(reason)
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            if is_unix(self.address):
                await loop.create_unix_connection(lambda: link.protocol, self.address.removeprefix("unix:"))
            else:
                await loop.create_connection(lambda: link.protocol, *split_address(self.address))
        return link, lost


class LinkServer:
    """The listening end: many links, and plain unary methods on the same port."""

    def __init__(self, handler: LinkHandler, hello: pb.Hello, unary: Mapping[str, Unary], keepalive_s: float) -> None:
        self.address = ""
        self.links: set[Link] = set()
        self._handler = handler
        self._hello = hello
        self._unary = unary
        self._keepalive_s = keepalive_s
        self._server: asyncio.Server | None = None
        self._calls: dict[tuple[Link, int], str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._all_lost = asyncio.Event()

    async def start(self, address: str) -> None:
        loop = asyncio.get_running_loop()
        if is_unix(address):
            path = address.removeprefix("unix:")
            _remove_stale(path)
            self._server = await loop.create_unix_server(self._accept, path)
            os.chmod(path, 0o660)  # noqa: PTH101
            self.address = address
        else:
            host, port = split_address(address)
            self._server = await loop.create_server(self._accept, host, port)
            self.address = f"{host}:{self._server.sockets[0].getsockname()[1]}"

    def drain(self, reason: str) -> None:
        """Tell every peer to send nothing new; requests in flight are answered."""
        for link in self.links:
            link.frame_for(len(reason) + 8).drain.reason = reason

    async def close(self) -> None:
        """Stop listening and close every link after writing out what it holds."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        self._all_lost.clear()
        for link in list(self.links):
            link.close("the peer stops")
        if self.links:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._all_lost.wait()
        for link in list(self.links):
            link.protocol.abort("the peer stops")

    def _accept(self) -> asyncio.Protocol:
        link = Link(self._handler, self._hello, Role.SERVER, self._keepalive_s)
        link.on_lost = self._lost
        link.on_other = self._other
        self.links.add(link)
        if len(self.links) > _MAX_LINKS:
            log.warning("link_refused", reason=f"over {_MAX_LINKS} links")
            asyncio.get_running_loop().call_soon(link.protocol.abort, "too many links")
        return link.protocol

    def _lost(self, link: Link, _reason: str) -> None:
        self.links.discard(link)
        self._calls = {key: path for key, path in self._calls.items() if key[0] is not link}
        if not self.links:
            self._all_lost.set()

    def _other(self, link: Link, stream: int, path: str) -> None:
        """A stream that is no link: first with its path, then with "" when its request has ended."""
        if path:
            if path not in self._unary:
                link.protocol.refuse(stream, _status(UNIMPLEMENTED, f"method {path} is not served here"))
                return
            link.unary_calls[stream] = b""
            self._calls[link, stream] = path
            return
        body = link.unary_calls.pop(stream)
        task = asyncio.get_running_loop().create_task(self._answer(link, stream, self._calls.pop((link, stream)), body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, link: Link, stream: int, path: str, body: bytes) -> None:
        try:
            async with asyncio.timeout(_UNARY_TIMEOUT_S):
                answer = await self._unary[path](body)
        except ServingError as error:
            link.protocol.refuse(stream, _status(error.code, str(error)))
        except Exception:
            log.exception("unary_failed", path=path)
            link.protocol.refuse(stream, _status(INTERNAL, "internal error"))
        else:
            link.protocol.respond(stream)
            link.protocol.send(stream, answer)
            link.protocol.finish(stream, _status(0, ""))


def _remove_stale(path: str) -> None:
    """A socket file outlives its process; binding needs it gone."""
    Path(path).unlink(missing_ok=True)


def _status(code: int, message: str) -> Headers:
    escaped = "".join(c if " " <= c <= "~" and c != "%" else "".join(f"%{b:02X}" for b in c.encode()) for c in message)
    return [(b"grpc-status", str(code).encode()), (b"grpc-message", escaped.encode())]


async def listen(
    address: str,
    handler: LinkHandler,
    hello: pb.Hello,
    *,
    unary: Mapping[str, Unary] | None = None,
    keepalive_s: float = KEEPALIVE_S,
) -> LinkServer:
    """Listen on "host:port" (0 = any free port) or "unix:/path" until closed. Raises OSError when it is taken."""
    server = LinkServer(handler, hello, unary or {}, keepalive_s)
    await server.start(address)
    return server
