"""Plays recorded requests against a router: as they were sent, at a pace of one's own."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter
from typing import Any, NamedTuple

import grpc
import grpc.aio

from inference import grpc_service_pb2 as pb
from inference.grpc_service_pb2_grpc import GRPCInferenceServiceStub
from services.cli.client import unreachable
from services.cli.replayed import OK, Outcome, Tally
from services.cli.security import caller
from services.core.signature import Given
from turnout.v1 import recorded_pb2

_LATE_S = 0.1
_LONGEST_S = 30.0  # of a request that was recorded without a deadline
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),
]


class Pace(NamedTuple):
    """When each request leaves: so many a second, or as they were recorded times `speed`; else as soon as may be."""

    rate: float = 0
    speed: float = 0

    def due_s(self, index: int, record: recorded_pb2.Recorded, first_ns: int) -> float:
        """Seconds after the first one."""
        if self.rate:
            return index / self.rate
        return (record.at_ns - first_ns) / 1e9 / self.speed if self.speed else 0.0


class Player:
    """Sends requests, at most `concurrency` at once; those of one sequence one after the other."""

    def __init__(self, address: str, tally: Tally, concurrency: int, *, model: str = "", version: str = "") -> None:
        self._address = address
        self._tally = tally
        self._room = asyncio.Semaphore(concurrency)
        self._model = model
        self._version = version
        self._metadata: tuple[tuple[str, str], ...] = ()
        self._last: dict[str, asyncio.Task[None]] = {}  # by sequence

    async def play(self, records: Iterable[recorded_pb2.Recorded], pace: Pace) -> None:
        """Returns once all are answered. Raises CliError where nothing listens."""
        who = caller()
        self._metadata = tuple(who.headers.items())
        async with who.channel(self._address, _OPTIONS) as channel:
            infer = GRPCInferenceServiceStub(channel).ModelInfer
            async with asyncio.TaskGroup() as tasks:
                began, first_ns = perf_counter(), 0
                for index, record in enumerate(records):
                    first_ns = first_ns or record.at_ns
                    due_s = began + pace.due_s(index, record, first_ns)
                    await asyncio.sleep(max(0.0, due_s - perf_counter()))
                    await self._room.acquire()
                    if (pace.rate or pace.speed) and perf_counter() - due_s > _LATE_S:
                        self._tally.late += 1
                    self._begin(infer, record, tasks.create_task)

    def _begin(self, infer: Any, record: recorded_pb2.Recorded, spawn: Callable[[Any], asyncio.Task[None]]) -> None:
        name = sequence_of(record)
        task = spawn(self._one(infer, record, self._last.get(name) if name else None))
        if name:
            self._last[name] = task
            task.add_done_callback(lambda done: self._last.pop(name) if self._last.get(name) is done else None)

    async def _one(self, infer: Any, record: recorded_pb2.Recorded, before: asyncio.Task[None] | None) -> None:
        try:
            if before is not None:
                await asyncio.wait({before})
            self._tally.add(record, await self._ask(infer, record))
        finally:
            self._room.release()

    async def _ask(self, infer: Any, record: recorded_pb2.Recorded) -> Outcome:
        request = to_request(record, self._model, self._version)
        timeout_s = record.allowed_us / 1e6 or _LONGEST_S
        began = perf_counter()
        try:
            response = await infer(request, metadata=[*_metadata(record), *self._metadata], timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            if "failed to connect" in (details := error.details() or ""):
                raise unreachable(self._address, details) from None
            return Outcome(error.code().name, (perf_counter() - began) * 1e3)
        pairs = zip(response.outputs, response.raw_output_contents, strict=True)
        outputs = [Given(each.name, each.datatype, tuple(each.shape), data) for each, data in pairs]
        return Outcome(OK, (perf_counter() - began) * 1e3, outputs)


def to_request(record: recorded_pb2.Recorded, model: str = "", version: str = "") -> pb.ModelInferRequest:
    """As the caller sent it; of another model or version where they are given."""
    request = pb.ModelInferRequest(
        model_name=model or record.model, model_version=version or record.asked_version, id=record.request_id
    )
    for name, value in record.parameters.items():
        kind = value.WhichOneof("value")
        field = {"bool_value": "bool_param", "int_value": "int64_param", "float_value": "double_param",
                 "uint_value": "uint64_param", "string_value": "string_param"}.get(kind or "")  # fmt: skip
        if field:
            setattr(request.parameters[name], field, getattr(value, kind))
    for name in record.wanted:
        request.outputs.add(name=name)
    for tensor in record.inputs:
        request.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        request.raw_input_contents.append(tensor.data)
    return request


def sequence_of(record: recorded_pb2.Recorded) -> str:
    """The sequence that it is part of; empty = none."""
    value = record.parameters.get("sequence_id")
    return "" if value is None else f"{record.model} {value.WhichOneof('value')} {value}"


def _metadata(record: recorded_pb2.Recorded) -> Iterator[tuple[str, str]]:
    """What metadata can carry."""
    pairs = [*record.headers.items(), ("x-routing-key", record.routing_key.decode("latin-1"))]
    return ((name, value) for name, value in pairs if value and value.isascii() and value.isprintable())
