"""One hot gRPC method on the front door: raw bytes in, a flight, raw bytes out. Its codec says of which protocol."""

from time import perf_counter_ns
from typing import Protocol

import structlog

from services.chassis.front import Front, Metadata
from services.chassis.quick_reply import AnyReply
from services.chassis.retry_hint import status_details
from services.core import stages
from services.core.errors import DeadlineExceededError, InternalError, OverloadedError, ServingError, TooLargeError
from services.router.codec import timing_text
from services.router.dispatcher import Dispatcher
from services.router.flight import REQUEST_ID, Flight, request_id_of
from services.router.inference import Inference
from services.router.metrics import RouterMetrics
from services.router.templates import Template

log = structlog.get_logger()
TIMING = "turnout-timing"
ARM = "turnout-arm"


class Codec(Protocol):
    """A protocol's messages."""

    def find(self, payload: bytes) -> tuple[Template, bytes | memoryview] | None:
        """The template of a request that begins as one of before, and its tensor data."""

    def parse(self, payload: bytes) -> Inference:
        """The request. Raises InvalidRequestError."""

    def learn(self, payload: bytes, inference: Inference) -> None:
        """Remember how a request begins that was well-formed."""

    def write(self, flight: Flight, reply: AnyReply) -> bytes:
        """The answer to a flight."""


class HotMethod:
    """FrontHandler of a hot method, and the Answerer of its flights."""

    front: Front  # set once the listener is open

    def __init__(
        self,
        codec: Codec,
        dispatcher: Dispatcher,
        metrics: RouterMetrics,
        *,
        max_in_flight: int,
        max_message_bytes: int,
    ) -> None:
        self._codec = codec
        self._find, self._write = codec.find, codec.write
        self._dispatcher = dispatcher
        self._metrics = metrics
        self._max_in_flight = max_in_flight
        self._max_message_bytes = max_message_bytes
        self._calls: dict[int, Flight] = {}
        self._arms: dict[str, list[tuple[str, str | bytes]]] = {}

    # -- FrontHandler

    def call(
        self,
        call_id: int,
        payload: bytes,
        metadata: Metadata,
        remaining_s: float | None,
        peer: str,
        certificate: bytes,
    ) -> None:
        started = perf_counter_ns()
        dispatcher = self._dispatcher
        if (
            len(payload) > self._max_message_bytes
            or len(dispatcher.flights) >= self._max_in_flight
            or (remaining_s is not None and remaining_s <= 0)
        ):
            refusal = self._refusal(payload, remaining_s)
            self.front.fail(call_id, refusal.code, str(refusal), status_details(refusal))
            return
        flight = Flight(dispatcher, self, call_id, dict(metadata), started)
        flight.peer = peer
        flight.certificate = certificate
        self._calls[call_id] = flight
        found = self._find(payload)
        if found is not None:
            flight.template, flight.data = found
            dispatcher.begin(flight, found[0].inference, remaining_s)
            return
        try:
            inference = self._codec.parse(payload)
        except ServingError as error:
            dispatcher.fail(flight, error)
        except Exception:  # ours: the call ends all the same
            log.exception("parse_failed")
            dispatcher.fail(flight, InternalError("internal error"))
        else:
            dispatcher.begin(flight, inference, remaining_s)
            self._codec.learn(payload, inference)

    def cancelled(self, call_id: int) -> None:
        flight = self._calls.pop(call_id, None)
        if flight is not None:
            self._dispatcher.cancel(flight)

    # -- Answerer

    def answer(self, flight: Flight, reply: AnyReply) -> None:
        call_id = flight.call_id
        self._calls.pop(call_id, None)
        try:
            payload = self._write(flight, reply)
        except Exception:  # a replica's outputs are not what they say
            log.exception("answer_failed", model=flight.target.model, version=flight.target.version)
            self.fail(flight, InternalError("internal error"))
            return
        self.front.respond(call_id, payload, self._trailing(flight, reply))

    def fail(self, flight: Flight, error: ServingError) -> None:
        self._calls.pop(flight.call_id, None)
        trailing = [*status_details(error)]
        if request_id := request_id_of(flight.headers):
            trailing.append((REQUEST_ID, request_id))
        self.front.fail(flight.call_id, error.code, str(error), trailing)

    # -- inside

    def _refusal(self, payload: bytes, remaining_s: float | None) -> ServingError:
        """Why a call is not worth parsing."""
        if len(payload) > self._max_message_bytes:
            self._metrics.refused_early.labels("too_large").inc()
            return TooLargeError(f"the message has {len(payload)} bytes; this router takes {self._max_message_bytes}")
        if remaining_s is not None and remaining_s <= 0:
            self._metrics.refused_early.labels("late").inc()
            return DeadlineExceededError("the deadline passed before the router saw the call")
        self._metrics.refused_early.labels("in_flight").inc()
        return OverloadedError(f"{self._max_in_flight} requests are in flight, the most this router takes")

    def _trailing(self, flight: Flight, reply: AnyReply) -> list[tuple[str, str | bytes]]:
        trailing = self._arms.get(flight.arm)
        if trailing is None:
            trailing = self._arms[flight.arm] = [(ARM, flight.arm)]
        headers = flight.headers
        if TIMING in headers:
            trailing = [*trailing, (TIMING, timing_text(stages_so_far(flight, reply, perf_counter_ns())))]
        if REQUEST_ID in headers and (request_id := request_id_of(headers)):
            trailing = [*trailing, (REQUEST_ID, request_id)]
        return trailing


def stages_so_far(flight: Flight, reply: AnyReply, now_ns: int) -> list[tuple[str, int]]:
    """(stage, nanoseconds) of an answer about to be written; `mark_ns` is when its reply came."""
    link_ns = flight.mark_ns - flight.sent_ns - reply.total_ns
    before = (flight.parse_ns, flight.auth_ns, flight.route_ns, flight.features_ns, link_ns)
    durations = (*before, *reply.stages_ns, now_ns - flight.mark_ns, now_ns - flight.started_ns)
    return list(zip((*stages.STAGES, stages.TOTAL), durations, strict=True))
