"""The listener: its connections, their clock, and the handlers' tasks."""

import asyncio
import math
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

import orjson
import structlog

from services.chassis.http import HttpResponse, MethodNotAllowedError, Routes
from services.chassis.http_server.connection import Connection
from services.chassis.http_server.encoding import inflate
from services.chassis.http_server.exchange import Exchange
from services.chassis.http_server.head import Head, KnownHeads, too_large
from services.chassis.http_server.limits import Limits
from services.chassis.http_server.wire import Wire
from services.chassis.listening import CannotListenError, split_address
from services.chassis.tls import ListenerSecurity
from services.core.errors import InternalError, ServingError, http_status_of

log = structlog.get_logger()
_BACKLOG = 1024
_SMALL_BYTES = 4 << 10  # inflated at once; more is inflated on a thread, for it may grow a thousandfold
_HANDSHAKE_S = 10.0


def refusal(error: ServingError) -> HttpResponse:
    """An error as its status, {"error": …} and the fields that belong to it."""
    fields = {}
    if error.retry_after_s is not None:
        fields["retry-after"] = str(math.ceil(error.retry_after_s))
        fields["retry-after-ms"] = str(math.ceil(error.retry_after_s * 1000))
    if isinstance(error, MethodNotAllowedError):
        fields["allow"] = ", ".join(error.allowed)
    return HttpResponse(orjson.dumps({"error": str(error)}), http_status_of(error), headers=fields)


class HttpServer:
    """One listener of `routes`; `address` is the bound host:port.

    `echoed`: the header field that an answer repeats, if its value is fit for that (a request's id).
    """

    def __init__(self, routes: Routes, limits: Limits, *, echoed: str = "") -> None:
        self.limits = limits
        self.heads = KnownHeads()
        self.now_s = 0
        self.is_draining = False
        self.address = ""
        self._routes = routes
        self._echoed = echoed
        self._connections: set[Any] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._reserved = 0
        self._inflating = asyncio.Semaphore(limits.bodies_at_once)
        self._lines: dict[int, bytes] = {}
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()

    async def start(self, address: str, *, reuse_port: bool = False, security: ListenerSecurity | None = None) -> None:
        """`security` None = plaintext. Raises CannotListenError."""
        host, port = split_address(address)
        try:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: Connection(self),
                host,
                port,
                backlog=_BACKLOG,
                reuse_port=reuse_port or None,
                ssl=security.context if security else None,
                ssl_handshake_timeout=_HANDSHAKE_S if security else None,
            )
        except OSError as error:
            raise CannotListenError.explain(address, error) from error
        bound = self._server.sockets[0].getsockname()[1]
        self.address = f"[{host}]:{bound}" if ":" in host else f"{host}:{bound}"
        self._tick()

    async def stop(self, grace_s: float = 1.0) -> None:
        """Listen no more, let what is at work end within `grace_s`, then cut it off."""
        self.is_draining = True
        self._lines.clear()
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.close_if_idle()
        if self._connections:
            self._empty.clear()
            try:
                async with asyncio.timeout(grace_s):
                    await self._empty.wait()
            except TimeoutError:
                for connection in list(self._connections):
                    connection.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._timer is not None:
            self._timer.cancel()

    # -- what connections call

    def opened(self, wire: Wire) -> bool:
        if len(self._connections) >= self.limits.connections:
            return False
        self._connections.add(wire)
        return True

    def closed(self, wire: Wire) -> None:
        self._connections.discard(wire)
        if not self._connections:
            self._empty.set()

    def resolve(self, head: Head) -> None:
        """Find the route of a head that is new."""
        try:
            head.route, head.names = self._routes.find(head.method, head.path)
        except ServingError as error:
            head.fault = error

    def first_lines(self, status: int) -> bytes:
        """The status line and the date."""
        lines = self._lines.get(status)
        if lines is None:
            known = status in HTTPStatus._value2member_map_
            phrase = HTTPStatus(status).phrase if known else "Unknown"
            lines = f"HTTP/1.1 {status} {phrase}\r\ndate: {formatdate(usegmt=True)}\r\n".encode()
            self._lines[status] = lines
        return lines

    def refusal(self, head: Head | None, error: ServingError) -> HttpResponse:
        response = refusal(error)
        value = head.headers.get(self._echoed, "") if head is not None and self._echoed else ""
        if value and len(value) <= 256 and value.isascii() and value.isprintable():
            response.headers = {**response.headers, self._echoed: value}
        return response

    def reserve(self, count: int) -> bool:
        """Make room for `count` bytes of a body that is not whole."""
        if self._reserved + count > self.limits.bodies_at_once * self.limits.body_bytes:
            return False
        self._reserved += count
        return True

    def release(self, count: int) -> None:
        self._reserved -= count

    def work(self, exchange: Exchange) -> None:
        """Give a whole request to its handler."""
        head = exchange.head
        if head.fault is not None:
            exchange.refuse(head.fault)
        elif head.route.is_hot and not head.encoding:
            self._hot(exchange)
        else:
            task = asyncio.get_running_loop().create_task(self._serve(exchange))
            exchange.waiter = _AtWork(task)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    # -- inside

    def _hot(self, exchange: Exchange) -> None:
        try:
            exchange.head.route.handler(exchange)
        except ServingError as error:
            exchange.refuse(error)
        except Exception:
            log.exception("http_failed", path=exchange.head.path)
            exchange.refuse(InternalError("internal error"))

    async def _serve(self, exchange: Exchange) -> None:
        """A request whose body is compressed, or whose handler is awaited."""
        route = exchange.head.route
        try:
            await self._inflate(exchange)
            if route.is_hot:
                self._hot(exchange)
                return
            await exchange.reply(await route.handler(exchange.request(), **exchange.head.names))
        except ServingError as error:
            exchange.refuse(error)
        except Exception:
            log.exception("http_failed", path=exchange.head.path)
            exchange.refuse(InternalError("internal error"))

    async def _inflate(self, exchange: Exchange) -> None:
        encoding, body, limit = exchange.head.encoding, exchange.body, self.limits.body_bytes
        if not encoding:
            return
        self._routes.ask(exchange.request(), exchange.head.route, exchange.head.names)
        if len(body) <= _SMALL_BYTES:
            exchange.body = inflate(encoding, body, limit, too_large)
            return
        async with self._inflating:  # what is inflated is parsed before the next one may begin
            exchange.body = await asyncio.to_thread(inflate, encoding, body, limit, too_large)

    def look_around(self) -> None:
        """End what took too long by now."""
        for connection in list(self._connections):
            connection.look(self.now_s)

    def _tick(self) -> None:
        self.now_s += 1
        self._lines.clear()
        self.look_around()
        self._timer = asyncio.get_running_loop().call_later(1.0, self._tick)


class _AtWork:
    """Ends a handler's task when its caller goes away."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        self._task = task

    def gone(self) -> None:
        self._task.cancel()
