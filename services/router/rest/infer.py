"""V2 infer over REST: bodies in, flights, bodies out, all in callbacks."""

import math
from collections.abc import Mapping
from time import perf_counter_ns
from typing import NamedTuple

import structlog

from services.chassis.http import Routes
from services.chassis.http_server.exchange import Exchange
from services.chassis.http_server.head import Head
from services.chassis.quick_reply import AnyReply
from services.core.errors import InternalError, InvalidRequestError, OverloadedError, ServingError
from services.router.codec import timing_text
from services.router.dispatcher import Dispatcher
from services.router.flight import REQUEST_ID, Flight, request_id_of
from services.router.grpc_front import ARM, TIMING, stages_so_far
from services.router.inference import NOWHERE, Inference
from services.router.rest.about import INFER
from services.router.rest.answers import write_answer
from services.router.rest.codec import ALL_BINARY, LENGTH, NO_WISHES, Body
from services.router.rest.known_bodies import KnownBodies
from services.router.rest.raw import RawDraft, RawTensors, raw_inference
from services.router.rest.v2 import MODEL, VERSION

log = structlog.get_logger()
_TIMEOUT = "x-request-timeout-ms"
_LENGTH = LENGTH.lower()
LARGE_JSON_BYTES = 64 << 10  # takes the loop long to read: only of those who may call the model
_MOST_FIELDS = 1024  # forms of header lines that are remembered


class Asked(NamedTuple):
    """What the head of a request says of its inference."""

    model: str
    version: str
    json_bytes: int | None  # that the body begins with; None = all of it
    remaining_s: float | None


class InferCall:
    """One request and the Answerer of its flight; what its exchange tells when the caller goes away."""

    __slots__ = ("_api", "exchange", "flight", "wishes")

    def __init__(self, api: "Infer", exchange: Exchange) -> None:
        self._api = api
        self.exchange = exchange
        self.flight: Flight | None = None  # until it has ended: they hold each other
        self.wishes = NO_WISHES

    def answer(self, flight: Flight, reply: AnyReply) -> None:
        self.flight = None
        self._api.answer(self, flight, reply)

    def fail(self, _flight: Flight, error: ServingError) -> None:
        self.flight = None
        self.exchange.refuse(error)

    def gone(self) -> None:
        flight, self.flight = self.flight, None
        if flight is not None:
            self._api.dispatcher.cancel(flight)


class Infer:
    """The handler of /infer."""

    def __init__(self, dispatcher: Dispatcher, *, max_in_flight: int) -> None:
        self.dispatcher = dispatcher
        self._max_in_flight = max_in_flight
        self._bodies = KnownBodies()
        self._raw = RawTensors()
        self._fields: dict[tuple[str, int], bytes] = {}

    def add_routes(self, routes: Routes) -> None:
        for path in (MODEL, VERSION):
            routes.add_hot("POST", path + "/infer", self.infer, about=INFER)

    def infer(self, exchange: Exchange) -> None:
        """Begin a flight. Raises ServingError for what is refused before there is one."""
        started = perf_counter_ns()
        dispatcher = self.dispatcher
        if len(dispatcher.flights) >= self._max_in_flight:
            raise OverloadedError(f"{self._max_in_flight} requests are in flight, the most this router takes")
        head = exchange.head
        asked = head.memo
        if asked is None:
            asked = head.memo = asked_of(head)
        call = exchange.waiter = InferCall(self, exchange)
        flight = call.flight = Flight(dispatcher, call, 0, head.headers, started)
        flight.peer, flight.certificate = exchange.peer, exchange.certificate
        try:
            inference = self._read(asked, exchange.body, call, flight)
        except ServingError as error:
            dispatcher.fail(flight, error)
        else:
            dispatcher.begin(flight, inference, asked.remaining_s)

    def _read(self, asked: Asked, body: Body, call: InferCall, flight: Flight) -> Inference:
        model, version, json_bytes, _ = asked
        if (len(body) if json_bytes is None else json_bytes) > LARGE_JSON_BYTES:
            self.dispatcher.access.require("predict", model, flight.headers, flight.peer, flight.certificate)
        if json_bytes is None:
            return self._bodies.read_json(model, version, body, call, flight)
        if json_bytes:
            return self._bodies.read_binary(model, version, body, json_bytes, call, flight)
        call.wishes = ALL_BINARY
        flight.draft = RawDraft(flight, body, self._raw)
        return raw_inference(model, version, len(body))

    def answer(self, call: InferCall, flight: Flight, reply: AnyReply) -> None:
        """Write a flight's answer."""
        target, inference = flight.target, flight.inference
        placed = inference.extras.placed if inference.extras else NOWHERE
        try:
            body, json_bytes = write_answer(target.model, target.version, inference.id, reply, placed, call.wishes)
        except ServingError as error:
            call.exchange.refuse(error)
            return
        except Exception:  # a replica's outputs are not what they say
            log.exception("answer_failed", model=target.model, version=target.version)
            call.exchange.refuse(InternalError("internal error"))
            return
        fields = self._fields.get((flight.arm, json_bytes)) or self._new_fields(flight.arm, json_bytes)
        call.exchange.respond(200, fields + fields_asked_for(flight, reply), body)

    def _new_fields(self, arm: str, json_bytes: int) -> bytes:
        if len(self._fields) >= _MOST_FIELDS:
            self._fields.clear()
        kind = "application/octet-stream" if json_bytes else "application/json"
        fields = f"content-type: {kind}\r\n{ARM}: {arm}\r\n"
        if json_bytes:
            fields += f"{_LENGTH}: {json_bytes}\r\n"
        encoded = self._fields[arm, json_bytes] = fields.encode()
        return encoded


def fields_asked_for(flight: Flight, reply: AnyReply) -> bytes:
    """Header lines of an answer that its request asked for."""
    headers, fields = flight.headers, b""
    if TIMING in headers:
        fields = b"server-timing: %b\r\n" % timing_text(stages_so_far(flight, reply, perf_counter_ns())).encode()
    if REQUEST_ID in headers and (request_id := request_id_of(headers)):
        fields += b"%b: %b\r\n" % (REQUEST_ID.encode(), request_id.encode())
    return fields


def asked_of(head: Head) -> Asked:
    """What a head says. Raises InvalidRequestError."""
    names, headers = head.names, head.headers
    return Asked(names["model"], names.get("version", ""), _json_bytes(headers), timeout_s(headers))


def _json_bytes(headers: Mapping[str, str]) -> int | None:
    text = headers.get(_LENGTH)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise InvalidRequestError(
            f"{LENGTH} is {text[:40]!r}; it takes the number of bytes of JSON that the body begins with"
        )
    return int(text)


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
