"""V1's predict, classify and regress over REST: bodies in, flights, bodies out, all in callbacks."""

from collections.abc import Callable
from functools import lru_cache, partial
from time import perf_counter_ns
from typing import Any, NamedTuple, Protocol

import structlog

from services.chassis.http import Routes
from services.chassis.http_server.exchange import Exchange
from services.chassis.http_server.head import Head
from services.chassis.quick_reply import AnyReply, QuickReply
from services.core.errors import InternalError, NotFoundError, OverloadedError, ServingError, UnimplementedError
from services.router.dispatcher import Dispatcher
from services.router.flight import Draft, Flight
from services.router.grpc_front import ARM
from services.router.inference import Inference
from services.router.rest import v1_about
from services.router.rest.infer import LARGE_JSON_BYTES, fields_asked_for, timeout_s
from services.router.rest.v1 import PATHS
from services.router.tfserving import examples, predict_json, results
from services.router.tfserving.described import explicit_version

log = structlog.get_logger()


class Verb(Protocol):
    """One body on its way."""

    def parse(self, model: str, version: str, body: bytes) -> tuple[Inference, Draft]:
        """The request. Raises InvalidRequestError."""

    def write(self, model: str, outputs: Any) -> bytes:
        """The answer. Raises InvalidRequestError for outputs that it cannot be made of."""


class Output(NamedTuple):
    """As a turnout.v1.Tensor."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: bytes | memoryview


class Predict:
    """Rows are answered by rows, columns by columns."""

    __slots__ = ("_is_rows",)

    def parse(self, model: str, version: str, body: bytes) -> tuple[Inference, Draft]:
        inference, draft = predict_json.parse(model, version, body)
        self._is_rows = draft.is_rows
        return inference, draft

    def write(self, _model: str, outputs: Any) -> bytes:
        return predict_json.write(outputs, is_rows=self._is_rows)


class OfExamples:
    """Examples are answered by what `results_of` makes of the outputs."""

    __slots__ = ("_results_of",)

    def __init__(self, results_of: Callable[[str, Any], list[Any]]) -> None:
        self._results_of = results_of

    def parse(self, model: str, version: str, body: bytes) -> tuple[Inference, Draft]:
        return examples.parse_json(model, version, body)

    def write(self, model: str, outputs: Any) -> bytes:
        return results.write(self._results_of(model, outputs))


_VERBS: dict[str, Callable[[], Verb]] = {
    "predict": Predict,
    "classify": partial(OfExamples, results.classified),
    "regress": partial(OfExamples, results.regressed),
}


class Asked(NamedTuple):
    """What the head of a request says."""

    model: str
    version: str  # or label
    verb: Callable[[], Verb]
    remaining_s: float | None


class V1Call:
    """One request and the Answerer of its flight; what its exchange tells when the caller goes away."""

    __slots__ = ("_dispatcher", "_exchange", "flight", "verb")

    def __init__(self, dispatcher: Dispatcher, exchange: Exchange, verb: Verb) -> None:
        self._dispatcher = dispatcher
        self._exchange = exchange
        self.flight: Flight | None = None  # until it has ended: they hold each other
        self.verb = verb

    def answer(self, flight: Flight, reply: AnyReply) -> None:
        self.flight = None
        target = flight.target
        try:
            body = self.verb.write(target.model, _outputs(reply))
        except ServingError as error:
            self._exchange.refuse(error)
            return
        except Exception:  # a replica's outputs are not what they say
            log.exception("answer_failed", model=target.model, version=target.version)
            self._exchange.refuse(InternalError("internal error"))
            return
        self._exchange.respond(200, _fields(flight.arm) + fields_asked_for(flight, reply), body)

    def fail(self, _flight: Flight, error: ServingError) -> None:
        self.flight = None
        if type(error) is NotFoundError:  # TensorFlow Serving's words, then ours
            asked = self._exchange.head.memo
            which = f"Specific({asked.model}, {asked.version})" if asked.version else f"Latest({asked.model})"
            error = NotFoundError(f"Servable not found for request: {which}: {error}")
        self._exchange.refuse(error)

    def gone(self) -> None:
        flight, self.flight = self.flight, None
        if flight is not None:
            self._dispatcher.cancel(flight)


class V1Infer:
    """The handler of a model's verbs."""

    def __init__(self, dispatcher: Dispatcher, *, max_in_flight: int) -> None:
        self._dispatcher = dispatcher
        self._max_in_flight = max_in_flight

    def add_routes(self, routes: Routes) -> None:
        for path in PATHS:
            routes.add_hot("POST", path + ":{verb}", self.infer, about=v1_about.INFER)

    def infer(self, exchange: Exchange) -> None:
        """Begin a flight. Raises ServingError for what is refused before there is one."""
        started = perf_counter_ns()
        dispatcher = self._dispatcher
        if len(dispatcher.flights) >= self._max_in_flight:
            raise OverloadedError(f"{self._max_in_flight} requests are in flight, the most this router takes")
        head = exchange.head
        asked: Asked = head.memo
        if asked is None:
            asked = head.memo = _asked_of(head)
        verb = asked.verb()
        call = exchange.waiter = V1Call(dispatcher, exchange, verb)
        flight = call.flight = Flight(dispatcher, call, 0, head.headers, started)
        flight.peer, flight.certificate = exchange.peer, exchange.certificate
        try:
            if len(exchange.body) > LARGE_JSON_BYTES:
                dispatcher.access.require("predict", asked.model, flight.headers, flight.peer, flight.certificate)
            inference, flight.draft = verb.parse(asked.model, asked.version, bytes(exchange.body))
        except ServingError as error:
            dispatcher.fail(flight, error)
        else:
            dispatcher.begin(flight, inference, asked.remaining_s)


def _asked_of(head: Head) -> Asked:
    """What a head says. Raises ServingError."""
    names = head.names
    version = explicit_version(names.get("version", ""), names.get("label", ""))
    return Asked(names["model"], version, _verb_of(names["verb"]), timeout_s(head.headers))


def _verb_of(name: str) -> Callable[[], Verb]:
    verb = _VERBS.get(name.lower())
    if verb is not None:
        return verb
    if name.lower() == "explain":
        raise UnimplementedError("explain is not offered; there is predict, classify and regress")
    raise NotFoundError(f"{name[:64]!r} is nothing that models do; there is predict, classify and regress")


def _outputs(reply: AnyReply) -> Any:
    return [Output(*reply.layout.tensor, reply.data)] if isinstance(reply, QuickReply) else reply.outputs


@lru_cache(maxsize=64)
def _fields(arm: str) -> bytes:
    """The header lines of every answer."""
    return f"content-type: application/json\r\n{ARM}: {arm}\r\n".encode()
