"""What operators and probes ask a process: /metrics, /live and /ready."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from services.chassis.heartbeat import Heartbeat
from services.chassis.listening import CannotListenError, split_address
from services.chassis.tls import ListenerSecurity
from services.core.errors import ServingError, http_status_of

_READY_TIMEOUT_S = 1.0
_CLOSE_S = 1.0
_BACKLOG = 64


Guard = Callable[[Mapping[str, str], str], None]


class Readiness(NamedTuple):
    state: str
    reasons: list[str]  # why it is not ready; empty = ready


class OpsServer:
    """The three answers, from a thread with a loop of its own.

    So scrapes never hold the service up, and a service whose loop hangs still says so.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        heartbeat: Heartbeat,
        readiness: Callable[[], Coroutine[Any, Any, Readiness]],
        security: ListenerSecurity | None = None,
    ) -> None:
        self._tls = security.context if security else None
        self._registry = registry
        self._heartbeat = heartbeat
        self._readiness = readiness  # awaited on the loop that called start()
        # Raises ServingError for who may not read metrics: headers (lower-case names), the peer's address. Asked on the
        # thread of this server.
        self.guard: Guard | None = None
        self._bound: concurrent.futures.Future[str] = concurrent.futures.Future()
        self._closed: concurrent.futures.Future[None] = concurrent.futures.Future()

    async def start(self, address: str) -> str:
        """Listen on "host:port" (0 = any free port); gives the address with its real port. Raises CannotListenError."""
        self._service_loop = asyncio.get_running_loop()
        threading.Thread(target=self._thread, args=(address,), name="ops", daemon=True).start()
        return await asyncio.wrap_future(self._bound)

    async def close(self) -> None:
        """Stop listening, within a second or so."""
        if self._bound.done() and self._bound.exception() is None:
            self._loop.call_soon_threadsafe(self._stop.set)
            await asyncio.wait({asyncio.wrap_future(self._closed)}, timeout=_CLOSE_S)

    def _thread(self, address: str) -> None:
        try:
            asyncio.run(self._serve(address))
        except Exception as error:  # noqa: BLE001 - it is raised where start() waits
            if not self._bound.done():
                self._bound.set_exception(error)
        finally:
            self._closed.set_result(None)

    async def _serve(self, address: str) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application()
        app.add_routes(
            [web.get("/metrics", self._metrics), web.get("/live", self._live), web.get("/ready", self._ready)]
        )
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.5)
        await runner.setup()
        host, port = split_address(address)
        try:
            await web.TCPSite(runner, host, port, backlog=_BACKLOG, ssl_context=self._tls).start()
        except OSError as error:
            raise CannotListenError.explain(address, error) from error
        self._bound.set_result(f"{address.rpartition(':')[0]}:{runner.addresses[0][1]}")
        await self._stop.wait()
        await runner.cleanup()

    async def _metrics(self, request: web.Request) -> web.Response:
        if self.guard is not None:
            try:
                self.guard({name.lower(): value for name, value in request.headers.items()}, request.remote or "")
            except ServingError as error:
                return web.json_response({"error": str(error)}, status=http_status_of(error))
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self._registry), headers={"Content-Type": content_type})

    async def _live(self, _request: web.Request) -> web.Response:
        answer = {"live": self._heartbeat.is_alive, "heartbeat_age_s": round(self._heartbeat.age_s, 3)}
        return web.json_response(answer, status=200 if self._heartbeat.is_alive else 503)

    async def _ready(self, _request: web.Request) -> web.Response:
        asked = asyncio.run_coroutine_threadsafe(self._readiness(), self._service_loop)
        try:
            now = await asyncio.wait_for(asyncio.wrap_future(asked), _READY_TIMEOUT_S)
        except TimeoutError:
            now = Readiness("not_ready", [f"the event loop did not answer within {_READY_TIMEOUT_S:g} s"])
        return web.json_response(now._asdict(), status=503 if now.reasons else 200)
