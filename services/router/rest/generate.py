"""V2 generate and generate_stream: a flat map of inputs in, flat maps of outputs out, one or any number of them."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from time import perf_counter_ns

from services.chassis.http import HttpRequest, HttpResponse, Routes
from services.chassis.quick_reply import AnyReply, whole
from services.chassis.streamed import cost_of
from services.core.errors import InvalidRequestError, OverloadedError, ServingError
from services.router.flight import REQUEST_ID, Flight, request_id_of
from services.router.grpc_front import ARM
from services.router.rest import about
from services.router.rest.codec import error_body
from services.router.rest.flat import FlatDraft, flat_inference, write_flat
from services.router.rest.infer import timeout_s
from services.router.rest.v2 import MODEL, VERSION
from services.router.streaming import StreamDispatcher, StreamFlight
from turnout.v1 import link_pb2

EVENTS = "text/event-stream; charset=utf-8"


class Generation:
    """One request, the answerer of its flight, and its answers for a handler to wait for."""

    def __init__(self, dispatcher: StreamDispatcher, request: HttpRequest, model: str, version: str) -> None:
        self._dispatcher = dispatcher
        self._replies: deque[link_pb2.Reply] = deque()
        self._error: ServingError | None = None
        self._is_over = False
        self._changed = asyncio.Event()
        inference, lists = flat_inference(model, version, request.body)
        remaining_s = timeout_s(request.headers)
        self.flight = flight = StreamFlight(dispatcher, self, 0, request.headers, perf_counter_ns())
        flight.peer, flight.certificate = request.peer, request.certificate
        flight.draft = FlatDraft(inference, lists)
        dispatcher.begin(flight, inference, remaining_s)

    async def answers(self) -> AsyncGenerator[bytes, None]:
        """Each as JSON; leaving early cancels the rest. Raises ServingError."""
        try:
            while True:
                while self._replies:
                    reply = self._replies.popleft()
                    yield write_flat(self.flight, reply)
                    self.flight.read(cost_of(reply))
                if self._error is not None:
                    raise self._error
                if self._is_over:
                    return
                self._changed.clear()
                await self._changed.wait()
        finally:
            self._dispatcher.cancel(self.flight)

    def headers(self) -> dict[str, str]:
        said = {ARM: self.flight.arm}
        if request_id := request_id_of(self.flight.headers):
            said[REQUEST_ID] = request_id
        return said

    # -- StreamAnswerer

    def answer(self, flight: Flight, reply: AnyReply) -> None:  # noqa: ARG002 - there is one flight
        self._replies.append(whole(reply))
        self._end()

    def part(self, flight: StreamFlight, reply: link_pb2.Reply) -> None:  # noqa: ARG002
        self._replies.append(reply)
        self._changed.set()

    def done(self, flight: StreamFlight) -> None:  # noqa: ARG002
        self._end()

    def fail(self, flight: Flight, error: ServingError) -> None:  # noqa: ARG002
        self._error = error
        self._end()

    def _end(self) -> None:
        self._is_over = True
        self._changed.set()


class Generate:
    """The handlers of /generate and /generate_stream."""

    def __init__(self, dispatcher: StreamDispatcher, *, max_in_flight: int) -> None:
        self._dispatcher = dispatcher
        self._max_in_flight = max_in_flight

    def add_routes(self, routes: Routes) -> None:
        for path in (MODEL, VERSION):
            routes.add("POST", path + "/generate", self.generate, about=about.GENERATE)
            routes.add("POST", path + "/generate_stream", self.generate_stream, about=about.GENERATE_STREAM)

    async def generate(self, request: HttpRequest, model: str, version: str = "") -> HttpResponse:
        """The one answer, once it is known that it is the only one."""
        generation = self._begin(request, model, version)
        async with aclosing(generation.answers()) as answers:
            first = await anext(answers, None)
            if first is None:
                raise InvalidRequestError(f"model {model} gave no answer, generate takes one: ask by generate_stream")
            if await anext(answers, None) is not None:
                raise InvalidRequestError(
                    f"model {model} gave more than one answer, generate takes one: ask by generate_stream"
                )
        return HttpResponse(first, headers=generation.headers())

    async def generate_stream(self, request: HttpRequest, model: str, version: str = "") -> HttpResponse:
        """An event for each answer; what fails before the first is a fault of the request as anywhere."""
        generation = self._begin(request, model, version)
        answers = generation.answers()
        try:
            first = await anext(answers, None)
        except BaseException:
            await answers.aclose()
            raise
        return HttpResponse(_events(first, answers), content_type=EVENTS, headers=generation.headers())

    def _begin(self, request: HttpRequest, model: str, version: str) -> Generation:
        if self._dispatcher.in_flight >= self._max_in_flight:
            raise OverloadedError(f"{self._max_in_flight} requests are in flight, the most this router takes")
        return Generation(self._dispatcher, request, model, version)


async def _events(first: bytes | None, answers: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Server-sent events; what fails in the middle is one more."""
    async with aclosing(answers):
        if first is None:
            return
        yield _event(first)
        try:
            async for answer in answers:
                yield _event(answer)
        except ServingError as error:
            yield _event(error_body(str(error)))


def _event(data: bytes) -> bytes:
    return b"data: %b\n\n" % data
