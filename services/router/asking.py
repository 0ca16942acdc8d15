"""Flights that a coroutine waits for: how handlers that are not hot send a request on the one way of all."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import structlog

from services.chassis.quick_reply import AnyReply, whole
from services.core.errors import InternalError, OverloadedError, ServingError
from services.router.dispatcher import Dispatcher
from services.router.flight import Draft, Flight
from services.router.inference import Inference
from turnout.v1 import link_pb2

log = structlog.get_logger()
T = TypeVar("T")
Parse = Callable[[], tuple[Inference, Draft | None]]  # raises ServingError
Write = Callable[[Flight, link_pb2.Reply], T]  # raises ServingError


class Origin(NamedTuple):
    """Where a request came from, and when; `certificate` and `peer` as on a Flight."""

    headers: Mapping[str, str | bytes]
    remaining_s: float | None
    started_ns: int
    peer: str = ""
    certificate: bytes = b""


class Asker:
    """Answerer of flights whose callers await what `write` makes of the reply."""

    def __init__(self, dispatcher: Dispatcher, *, max_in_flight: int) -> None:
        self._dispatcher = dispatcher
        self._max_in_flight = max_in_flight
        self._waiting: dict[int, tuple[asyncio.Future[Any], Write[Any]]] = {}
        self._last_id = 0

    async def ask(
        self,
        parse: Parse,
        write: Write[T],
        asked: Origin,
    ) -> T:
        """What `write` makes of the reply. Raises ServingError; when cancelled, so is the flight."""
        dispatcher = self._dispatcher
        if dispatcher.in_flight >= self._max_in_flight:
            raise OverloadedError(f"{self._max_in_flight} requests are in flight, the most this router takes")
        self._last_id = call_id = self._last_id + 1
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting[call_id] = (future, write)
        flight = Flight(dispatcher, self, call_id, asked.headers, asked.started_ns)
        flight.peer, flight.certificate = asked.peer, asked.certificate
        try:
            inference, flight.draft = parse()
        except ServingError as error:
            dispatcher.fail(flight, error)
        else:
            dispatcher.begin(flight, inference, asked.remaining_s)
        try:
            return await future
        except asyncio.CancelledError:
            self._waiting.pop(call_id, None)
            dispatcher.cancel(flight)
            raise

    def answer(self, flight: Flight, reply: AnyReply) -> None:
        future, write = self._waiting.pop(flight.call_id)
        if future.done():
            return
        try:
            future.set_result(write(flight, whole(reply)))
        except ServingError as error:
            future.set_exception(error)
        except Exception:  # a replica's outputs are not what they say
            log.exception("answer_failed", model=flight.target.model, version=flight.target.version)
            future.set_exception(InternalError("internal error"))

    def fail(self, flight: Flight, error: ServingError) -> None:
        future, _ = self._waiting.pop(flight.call_id)
        if not future.done():
            future.set_exception(error)
