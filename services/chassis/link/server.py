"""The listening end of links, and plain unary gRPC methods on the same port."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import structlog
from ngh2 import Role

from services.chassis.http2 import Headers
from services.chassis.link.connection import LISTENING_KEEPALIVE_S, Link, LinkHandler, is_unix
from services.chassis.listening import split_address
from services.chassis.tls import LinkSecurity
from services.core.errors import INTERNAL, UNIMPLEMENTED, ServingError
from turnout.v1 import link_pb2 as pb

_UNARY_TIMEOUT_S = 30.0
_MAX_LINKS = 512
_HANDSHAKE_S = 5.0

log = structlog.get_logger()
Unary = Callable[[bytes], Awaitable[bytes]]


class LinkServer:
    """The listening end: many links, and plain unary methods on the same port."""

    def __init__(
        self,
        handler: LinkHandler,
        hello: pb.Hello,
        unary: Mapping[str, Unary],
        keepalive_s: float,
        security: LinkSecurity | None,
    ) -> None:
        self.address = ""
        self.links: set[Link] = set()
        self._handler = handler
        self._hello = hello
        self._unary = unary
        self._keepalive_s = keepalive_s
        self._security = security
        self._server: asyncio.Server | None = None
        self._calls: dict[tuple[Link, int], str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._all_lost = asyncio.Event()

    async def start(self, address: str, sock: socket.socket | None = None) -> None:
        loop = asyncio.get_running_loop()
        if sock is not None:
            self._server = await loop.create_unix_server(self._accept, sock=sock)
            self.address = address
        elif is_unix(address):
            path = address.removeprefix("unix:")
            _remove_stale(path)
            self._server = await loop.create_unix_server(self._accept, path)
            os.chmod(path, 0o660)  # noqa: PTH101
            self.address = address
        else:
            host, port = split_address(address)
            context = self._security.server if self._security else None
            self._server = await loop.create_server(
                self._accept, host, port, ssl=context, ssl_handshake_timeout=_HANDSHAKE_S if context else None
            )
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
        link.on_connected = self._connected
        link.on_lost = self._lost
        link.on_other = self._other
        return link.protocol

    def _connected(self, link: Link) -> None:
        """It is there, and TLS, where there is any, is agreed."""
        self.links.add(link)
        tls = link.protocol.tls
        fault = self._security.fault_of(tls) if self._security and tls else ""
        if len(self.links) > _MAX_LINKS:
            fault = f"over {_MAX_LINKS} links"
        if fault:
            log.warning("link_refused", reason=fault)
            asyncio.get_running_loop().call_soon(link.protocol.abort, fault)

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
    keepalive_s: float = LISTENING_KEEPALIVE_S,
    sock: socket.socket | None = None,
    security: LinkSecurity | None = None,
) -> LinkServer:
    """Listen on "host:port" (0 = any free port) or "unix:/path" until closed. Raises OSError when it is taken.

    `sock` is a Unix socket that listens there already, and is owned from now on. `security` is for ports only: who may
    use a Unix socket, its file's mode says.
    """
    server = LinkServer(handler, hello, unary or {}, keepalive_s, security)
    await server.start(address, sock)
    return server
