"""The V2 REST API on aiohttp: the same flights as gRPC, awaited by a handler."""

import asyncio
import logging
import math
import struct
from collections.abc import Awaitable, Callable
from time import perf_counter_ns

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from services.chassis.listening import CannotListenError, split_address
from services.chassis.quick_reply import AnyReply, whole
from services.core.errors import (
    InternalError,
    InvalidRequestError,
    OverloadedError,
    ServingError,
    UnimplementedError,
    http_status_of,
)
from services.router import rest_codec
from services.router.bodies import BodyReader
from services.router.catalogue import Catalogue
from services.router.codec import timing_text
from services.router.dispatcher import Dispatcher
from services.router.flight import REQUEST_ID, Flight, request_id_of
from services.router.grpc_front import ARM, TIMING, stages_so_far

log = structlog.get_logger()
_JSON = "application/json"
_TIMEOUT = "x-request-timeout-ms"
_BINARY = "inference-header-content-length"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class RestAnswerer:
    """Answerer of REST flights: settles the future that the handler awaits."""

    def __init__(self) -> None:
        self.outcomes: dict[int, asyncio.Future[web.Response]] = {}
        self._last_id = 0

    def expect(self) -> tuple[int, "asyncio.Future[web.Response]"]:
        self._last_id = call_id = self._last_id + 1
        future = self.outcomes[call_id] = asyncio.get_running_loop().create_future()
        return call_id, future

    def answer(self, flight: Flight, reply: AnyReply) -> None:
        future = self.outcomes.pop(flight.call_id)
        if future.done():
            return
        target = flight.target
        try:
            body = rest_codec.write_response(target.model, target.version, flight.inference.id, whole(reply))
        except ServingError as error:
            future.set_exception(error)
            return
        except (ValueError, struct.error):  # a replica's outputs are not what they say
            log.exception("answer_failed", model=target.model, version=target.version)
            future.set_exception(InternalError("internal error"))
            return
        response = web.Response(body=body, content_type=_JSON, headers={ARM: flight.arm})
        if TIMING in flight.headers:
            response.headers["Server-Timing"] = timing_text(stages_so_far(flight, reply, perf_counter_ns()))
        if request_id := request_id_of(flight.headers):
            response.headers[REQUEST_ID] = request_id
        future.set_result(response)

    def fail(self, flight: Flight, error: ServingError) -> None:
        future = self.outcomes.pop(flight.call_id)
        if not future.done():
            future.set_exception(error)


class RestApi:
    """GET and POST /v2/…; errors are {"error": "what was wrong and what would be right"}."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        catalogue: Catalogue,
        *,
        max_in_flight: int,
        max_message_bytes: int,
    ) -> None:
        self._dispatcher = dispatcher
        self._catalogue = catalogue
        self._max_in_flight = max_in_flight
        self._bodies = BodyReader(max_message_bytes)
        self._answerer = RestAnswerer()

    def application(self) -> web.Application:
        app = web.Application(middlewares=[_errors])
        one = "/v2/models/{model}"
        version = one + "/versions/{version}"
        app.router.add_get("/v2", self._server)
        app.router.add_get("/v2/health/live", self._live)
        app.router.add_get("/v2/health/ready", self._ready)
        app.router.add_get("/v2/models", self._models)
        for path in (one, version):
            app.router.add_get(path, self._model)
            app.router.add_get(path + "/ready", self._model_ready)
            app.router.add_post(path + "/infer", self._infer)
        return app

    async def _server(self, _request: web.Request) -> web.Response:
        return web.json_response(self._catalogue.server_metadata())

    async def _live(self, _request: web.Request) -> web.Response:
        return web.json_response({"live": True})

    async def _ready(self, _request: web.Request) -> web.Response:
        ready = self._catalogue.is_ready()
        return web.json_response({"ready": ready}, status=200 if ready else 503)

    async def _models(self, _request: web.Request) -> web.Response:
        return web.json_response({"models": self._catalogue.names()})

    async def _model(self, request: web.Request) -> web.Response:
        metadata = self._catalogue.model_metadata(*_names(request))
        return web.json_response(
            {
                "name": metadata.name,
                "versions": list(metadata.versions),
                "platform": metadata.platform,
                "inputs": rest_codec.tensors(metadata.inputs),
                "outputs": rest_codec.tensors(metadata.outputs),
            }
        )

    async def _model_ready(self, request: web.Request) -> web.Response:
        name, version = _names(request)
        self._catalogue.check_model_ready(name, version)
        return web.json_response({"name": name, "ready": True})

    async def _infer(self, request: web.Request) -> web.Response:
        started = perf_counter_ns()
        if self._dispatcher.in_flight >= self._max_in_flight:
            raise OverloadedError(f"{self._max_in_flight} requests are in flight, the most this router takes")
        if _BINARY in request.headers:
            raise UnimplementedError("binary tensors are not offered over REST: send data as JSON, or use gRPC")
        name, version = _names(request)
        remaining_s = _timeout_s(request)
        body = await self._bodies.read(request)
        call_id, outcome = self._answerer.expect()
        headers = {key.lower(): value for key, value in request.headers.items()}
        flight = Flight(self._dispatcher, self._answerer, call_id, headers, started)
        try:
            inference = rest_codec.parse_request(name, version, body)
        except ServingError as error:
            self._dispatcher.fail(flight, error)
        else:
            self._dispatcher.begin(flight, inference, remaining_s)
        try:
            return await outcome
        except asyncio.CancelledError:
            self._answerer.outcomes.pop(call_id, None)
            self._dispatcher.cancel(flight)
            raise


def _names(request: web.Request) -> tuple[str, str]:
    return request.match_info["model"], request.match_info.get("version", "")


def _timeout_s(request: web.Request) -> float | None:
    text = request.headers.get(_TIMEOUT)
    if text is None:
        return None
    try:
        milliseconds = float(text)
    except ValueError:
        milliseconds = math.nan
    if not 0 < milliseconds < 1e9:
        raise InvalidRequestError(f"X-Request-Timeout-Ms is {text[:40]!r}; it takes milliseconds, more than 0")
    return milliseconds / 1000


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every fault ends in its status and {"error": …}; what is nobody's fault but ours is logged and not shown."""
    try:
        return await handler(request)
    except ServingError as error:
        return _refusal(request, error)
    except web.HTTPException as error:
        body = rest_codec.error_body(f"{request.method} {request.path}: {error.reason}")
        return web.Response(body=body, status=error.status, content_type=_JSON)
    except ConnectionError:
        raise
    except Exception:
        log.exception("rest_failed", path=request.path)
        return _refusal(request, InternalError("internal error"))


def _refusal(request: web.Request, error: ServingError) -> web.Response:
    headers = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(math.ceil(error.retry_after_s))
        headers["retry-after-ms"] = str(math.ceil(error.retry_after_s * 1000))
    if request_id := request_id_of(request.headers):
        headers[REQUEST_ID] = request_id
    body = rest_codec.error_body(str(error))
    response = web.Response(body=body, status=http_status_of(error), content_type=_JSON, headers=headers)
    if request.content.exception() is not None:  # there is no telling where the next request begins
        request.content.feed_eof()
        response.force_close()
    return response


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether what aiohttp logs is news: bytes from a caller that are not HTTP are not."""
    fault = record.exc_info[1] if record.exc_info else None
    return not isinstance(fault, HttpProcessingError | web.RequestPayloadError)


class RestServer:
    """The listener; `address` is the bound host:port."""

    def __init__(self, api: RestApi) -> None:
        logger = logging.getLogger("turnout.http")
        logger.addFilter(_is_ours)
        self._runner = web.AppRunner(
            api.application(), access_log=None, logger=logger, handler_cancellation=True, shutdown_timeout=1
        )
        self.address = ""

    async def start(self, address: str, *, reuse_port: bool) -> None:
        """Raises CannotListenError."""
        host, port = split_address(address)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, reuse_port=reuse_port)
        try:
            await site.start()
        except OSError as error:
            raise CannotListenError.explain(address, error) from error
        self.address = f"{host}:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        await self._runner.cleanup()
