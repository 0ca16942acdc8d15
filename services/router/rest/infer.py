"""V2 infer over REST: the same flights as gRPC, awaited by a handler."""

import asyncio
import math
import struct
from collections.abc import Mapping
from time import perf_counter_ns

import structlog

from services.chassis.http import HttpRequest, HttpResponse, Routes
from services.chassis.quick_reply import AnyReply, whole
from services.core.errors import InternalError, InvalidRequestError, OverloadedError, ServingError, UnimplementedError
from services.router.codec import timing_text
from services.router.dispatcher import Dispatcher
from services.router.flight import REQUEST_ID, Flight, request_id_of
from services.router.grpc_front import ARM, TIMING, stages_so_far
from services.router.inference import NOWHERE
from services.router.rest import codec
from services.router.rest.about import INFER
from services.router.rest.v2 import MODEL, VERSION

log = structlog.get_logger()
_TIMEOUT = "x-request-timeout-ms"
_BINARY = "inference-header-content-length"


class RestAnswerer:
    """Answerer of REST flights: settles the future that the handler awaits."""

    def __init__(self) -> None:
        self.outcomes: dict[int, asyncio.Future[HttpResponse]] = {}
        self._last_id = 0

    def expect(self) -> tuple[int, "asyncio.Future[HttpResponse]"]:
        self._last_id = call_id = self._last_id + 1
        future = self.outcomes[call_id] = asyncio.get_running_loop().create_future()
        return call_id, future

    def answer(self, flight: Flight, reply: AnyReply) -> None:
        future = self.outcomes.pop(flight.call_id)
        if future.done():
            return
        target, extras = flight.target, flight.inference.extras
        placed = extras.placed if extras else NOWHERE
        try:
            body = codec.write_response(target.model, target.version, flight.inference.id, whole(reply), placed)
        except ServingError as error:
            future.set_exception(error)
            return
        except (ValueError, struct.error):  # a replica's outputs are not what they say
            log.exception("answer_failed", model=target.model, version=target.version)
            future.set_exception(InternalError("internal error"))
            return
        headers = {ARM: flight.arm}
        if TIMING in flight.headers:
            headers["Server-Timing"] = timing_text(stages_so_far(flight, reply, perf_counter_ns()))
        if request_id := request_id_of(flight.headers):
            headers[REQUEST_ID] = request_id
        future.set_result(HttpResponse(body, headers=headers))

    def fail(self, flight: Flight, error: ServingError) -> None:
        future = self.outcomes.pop(flight.call_id)
        if not future.done():
            future.set_exception(error)


class Infer:
    """The handler of /infer."""

    def __init__(self, dispatcher: Dispatcher, *, max_in_flight: int) -> None:
        self._dispatcher = dispatcher
        self._answerer = RestAnswerer()
        self._max_in_flight = max_in_flight

    def add_routes(self, routes: Routes) -> None:
        for path in (MODEL, VERSION):
            routes.add("POST", path + "/infer", self.infer, about=INFER)

    async def infer(self, request: HttpRequest, model: str, version: str = "") -> HttpResponse:
        started = perf_counter_ns()
        if self._dispatcher.in_flight >= self._max_in_flight:
            raise OverloadedError(f"{self._max_in_flight} requests are in flight, the most this router takes")
        if _BINARY in request.headers:
            raise UnimplementedError("binary tensors are not offered over REST: send data as JSON, or use gRPC")
        remaining_s = timeout_s(request.headers)
        call_id, outcome = self._answerer.expect()
        flight = Flight(self._dispatcher, self._answerer, call_id, request.headers, started)
        flight.caller = request.caller
        try:
            inference = codec.parse_request(model, version, bytes(request.body))
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


def timeout_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that X-Request-Timeout-Ms leaves; None without it. Raises InvalidRequestError."""
    text = headers.get(_TIMEOUT)
    if text is None:
        return None
    try:
        milliseconds = float(text)
    except ValueError:
        milliseconds = math.nan
    if not 0 < milliseconds < 1e9:
        raise InvalidRequestError(f"X-Request-Timeout-Ms is {text[:40]!r}; it takes milliseconds, more than 0")
    return milliseconds / 1000
