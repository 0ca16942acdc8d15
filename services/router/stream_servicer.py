"""ModelStreamInfer: requests and answers on one stream, as Triton has it.

Answers of models that give one come in the order of their requests; those of a decoupled model as they are made, in
order for each request. What is wrong with one request is said in its place, and the stream goes on. Who does not read
is sent no more than fits between: requests are not read either then, and generators rest.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from functools import lru_cache
from time import perf_counter_ns
from typing import Any

import grpc

from inference import grpc_service_pb2 as pb
from services.chassis.front import certificate_of, remaining_s
from services.chassis.quick_reply import AnyReply
from services.chassis.streamed import cost_of
from services.core.errors import InvalidRequestError, OverloadedError, ServingError, TooLargeError
from services.core.protowire import bytes_field
from services.router.codec import parse_request, write_response
from services.router.flight import Flight
from services.router.grpc_front import ARM
from services.router.inference import NOWHERE, Inference
from services.router.streaming import StreamDispatcher, StreamFlight
from turnout.v1 import link_pb2

SERVICE, METHOD = "inference.GRPCInferenceService", "ModelStreamInfer"
_FINAL, _ENABLE_EMPTY = "triton_final_response", "triton_enable_empty_final_response"
_MOST_REQUESTS = 64  # of one stream, whose last answer is not written
_MOST_BYTES = 16 << 20  # of answers that a stream has not written; past it no more requests are read
_ERROR, _RESPONSE = 1, 2  # fields of ModelStreamInferResponse


class StreamMethod:
    """The method; `add_to` puts it on a server."""

    def __init__(self, dispatcher: StreamDispatcher, *, max_in_flight: int, max_message_bytes: int) -> None:
        self.dispatcher = dispatcher
        self._max_in_flight = max_in_flight
        self._max_message_bytes = max_message_bytes

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve it on bytes: a message is parsed once, and an answer's tensors are not copied to be encoded."""
        handler = grpc.stream_stream_rpc_method_handler(self._serve)
        server.add_registered_method_handlers(SERVICE, {METHOD: handler})  # type: ignore[attr-defined]

    async def _serve(self, requests: AsyncIterator[bytes], context: Any) -> None:
        await _Stream(self, context).run(requests)

    def parse(self, payload: bytes) -> Inference:
        """One request. Raises ServingError."""
        if len(payload) > self._max_message_bytes:
            raise TooLargeError(f"the message has {len(payload)} bytes; this router takes {self._max_message_bytes}")
        if self.dispatcher.in_flight >= self._max_in_flight:
            raise OverloadedError(f"{self._max_in_flight} requests are in flight, the most this router takes")
        return parse_request(payload)


class _Message:
    """What is to be written for a request, or for one of its answers."""

    __slots__ = ("cost", "flight", "is_last", "payload")

    def __init__(self, flight: Flight, payload: bytes, cost: int = 0, *, is_last: bool = True) -> None:
        self.flight = flight
        self.payload = payload
        self.cost = cost  # of a part
        self.is_last = is_last


class _Stream:
    """One caller's stream, and the answerer of its flights."""

    def __init__(self, method: StreamMethod, context: Any) -> None:
        self._method = method
        self._context = context
        self._headers: dict[str, Any] = dict(context.invocation_metadata() or ())
        self._peer, self._certificate = context.peer(), certificate_of(context)
        left_s = remaining_s(context)
        self._until_s = None if left_s is None else asyncio.get_running_loop().time() + left_s
        self._flights: dict[int, StreamFlight] = {}  # those without an outcome
        self._turns: dict[int, _Message | None] = {}  # of requests that are answered in order, and who has what to say
        self._ready: deque[_Message] = deque()
        self._open = 0  # requests whose last word is not written
        self._unwritten = 0  # bytes
        self._changed = asyncio.Event()
        self._room = asyncio.Event()

    async def run(self, requests: AsyncIterator[bytes]) -> None:
        """Until the caller has sent its last request and got its last answer, or went away."""
        reader = asyncio.get_running_loop().create_task(self._read(requests), name="stream-reader")
        reader.add_done_callback(lambda _: self._changed.set())
        try:
            while True:
                await self._write()
                if reader.done() and not self._open:
                    break
                self._changed.clear()
                await self._changed.wait()
        finally:
            reader.cancel()
            for flight in list(self._flights.values()):
                self._method.dispatcher.cancel(flight)
            with contextlib.suppress(asyncio.CancelledError):
                await reader

    async def _read(self, requests: AsyncIterator[bytes]) -> None:
        number = 0
        async for payload in requests:
            number += 1
            self._begin(number, payload)
            while self._open >= _MOST_REQUESTS or self._unwritten > _MOST_BYTES:
                self._room.clear()
                await self._room.wait()

    def _begin(self, number: int, payload: bytes) -> None:
        dispatcher = self._method.dispatcher
        flight = StreamFlight(dispatcher, self, number, self._headers, perf_counter_ns())
        flight.peer, flight.certificate = self._peer, self._certificate
        self._flights[number] = flight
        self._turns[number] = None
        self._open += 1
        try:
            inference = flight.inference = self._method.parse(payload)
            _wants_empty(inference)
        except ServingError as error:
            dispatcher.fail(flight, error)
            return
        left_s = None if self._until_s is None else self._until_s - asyncio.get_running_loop().time()
        dispatcher.begin(flight, inference, left_s)
        if not flight.is_done and flight.target.is_decoupled:
            self._leave_turn(number)

    async def _write(self) -> None:
        """All that may be written now; each message waits until the one before has found room."""
        while self._ready:
            message = self._ready.popleft()
            await self._context.write(message.payload)
            self._unwritten -= len(message.payload)
            if message.cost and isinstance(message.flight, StreamFlight):
                message.flight.read(message.cost)
            self._end(is_last=message.is_last)

    def _end(self, *, is_last: bool) -> None:
        self._open -= is_last
        self._room.set()

    # -- StreamAnswerer

    def answer(self, flight: Flight, reply: AnyReply) -> None:
        extras = flight.inference.extras
        placed = NOWHERE if extras is None else extras.placed
        target = flight.target
        response = write_response(target.model, target.version, flight.inference.id, reply, placed)
        self._say(_Message(flight, bytes_field(_RESPONSE, response + _said(flight.arm, is_final=True))))

    def part(self, flight: StreamFlight, reply: link_pb2.Reply) -> None:
        target = flight.target
        response = write_response(target.model, target.version, flight.inference.id, reply)
        payload = bytes_field(_RESPONSE, response + _said(flight.arm, is_final=False))
        self._say(_Message(flight, payload, cost_of(reply), is_last=False))

    def done(self, flight: StreamFlight) -> None:
        if not _wants_empty(flight.inference):
            self._flights.pop(flight.call_id, None)
            self._end(is_last=True)
            self._changed.set()
            return
        target = flight.target
        response = write_response(target.model, target.version, flight.inference.id, link_pb2.Reply())
        self._say(_Message(flight, bytes_field(_RESPONSE, response + _said(flight.arm, is_final=True))))

    def fail(self, flight: Flight, error: ServingError) -> None:
        """The error in its place; the id says of which request."""
        inference = getattr(flight, "inference", None)  # there is none of bytes that are no request
        response = pb.ModelInferResponse(id=inference.id if inference is not None else "").SerializeToString()
        payload = bytes_field(_RESPONSE, response + _said(flight.arm, is_final=True))
        self._say(_Message(flight, bytes_field(_ERROR, str(error).encode()) + payload))

    # -- the order of answers

    def _say(self, message: _Message) -> None:
        number = message.flight.call_id
        self._unwritten += len(message.payload)
        if message.is_last:
            self._flights.pop(number, None)
        if number in self._turns:
            self._turns[number] = message
            self._take_turns()
        else:
            self._ready.append(message)
        self._changed.set()

    def _leave_turn(self, number: int) -> None:
        """It is answered as its answers come, and nobody waits behind it."""
        del self._turns[number]
        self._take_turns()

    def _take_turns(self) -> None:
        for number, message in list(self._turns.items()):
            if message is None:
                break
            del self._turns[number]
            self._ready.append(message)
        self._changed.set()


def _wants_empty(inference: Inference) -> bool:
    """Whether the caller asks for an answer that says nothing but that there are no more."""
    value = inference.parameters.get(_ENABLE_EMPTY, False)
    if not isinstance(value, bool):
        raise InvalidRequestError(f"parameter {_ENABLE_EMPTY!r} is {str(value)[:40]!r}; it takes true or false")
    return value


@lru_cache(maxsize=64)
def _said(arm: str, *, is_final: bool) -> bytes:
    """ModelInferResponse.parameters, which are said in metadata where a call has one answer."""
    response = pb.ModelInferResponse()
    response.parameters[_FINAL].bool_param = is_final
    if arm:
        response.parameters[ARM].string_param = arm
    return response.SerializeToString()
