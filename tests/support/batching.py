"""A batcher without processes: time stands still until told, links keep what was sent, workers answer when told."""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from services.batcher.device import Device
from services.batcher.policy import BatchPolicy
from services.batcher.request import Caller
from services.batcher.stream_batcher import batcher_for
from services.batcher.worker import Worker, WorkerFacts
from services.chassis.link import Link
from services.core.batching_spec import Padding
from services.core.names import ModelVersion
from services.core.signature import Signature, TensorSpec
from services.core.tensor import BYTES, encode_bytes
from turnout.v1 import link_pb2 as pb

MS = 1_000_000
ECHO = Signature((TensorSpec("x", "INT32", (-1,)),), (TensorSpec("y", "INT32", (-1,)),), batches=True)
NAME = ModelVersion("echo", "1")


class Time:
    """A clock and a loop's timers, moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000 * MS
        self.wakes = 0
        self._timers: list[tuple[int, int, _Timer]] = []

    def clock(self) -> int:
        return self.now

    def call_later(self, delay_s: float, call: Callable[[], None]) -> "_Timer":
        timer = _Timer(call)
        heapq.heappush(self._timers, (self.now + round(delay_s * 1e9), id(timer), timer))
        return timer

    def advance(self, nanoseconds: int) -> None:
        end = self.now + nanoseconds
        while self._timers and self._timers[0][0] <= end:
            self.now, _, timer = heapq.heappop(self._timers)
            if not timer.cancelled:
                self.wakes += 1
                timer.call()
        self.now = end


class _Timer:
    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeLink:
    """Keeps the envelopes put on it."""

    def __init__(self) -> None:
        self.frame = pb.Frame()
        self.queued_bytes = 0
        self.peer = pb.Hello(service="router", instance="router-1", protocol=1)
        self.closed = ""

    def frame_for(self, size_bytes: int) -> pb.Frame:
        assert size_bytes >= 0
        return self.frame

    def send_encoded(self, *parts: bytes) -> None:
        self.frame.MergeFromString(b"".join(parts))

    def close(self, reason: str) -> None:
        self.closed = reason

    def take(self) -> pb.Frame:
        frame, self.frame = self.frame, pb.Frame()
        return frame


class Puppet:
    """A worker that answers when told."""

    def __init__(self, bench: "Bench", number: int, slots: int) -> None:
        self.link = FakeLink()
        facts = replace(bench.facts, id=f"w{number}", slots=slots)
        self.worker = Worker(facts, cast("Link", self.link), bench.time.clock)
        self.launched: list[pb.Request] = []
        self._bench = bench

    def batches(self) -> list[pb.Request]:
        """What was sent to it and not answered."""
        new = list(self.link.take().requests)
        self.launched += new
        return [request for request in self.launched if request.id in self.worker.in_flight]

    def rows(self) -> list[int]:
        return [request.rows for request in self.batches()]

    def echo(self, request: pb.Request | None = None, **fields: Any) -> None:
        """Answer a batch (the oldest) with its own rows."""
        request = request or self.batches()[0]
        reply = pb.Reply(
            id=request.id, executed=pb.EXECUTED_YES, digest="sha256:1", stages_ns=[1, 2, 3], final=True, **fields
        )
        for tensor in request.inputs:
            output = reply.outputs.add()
            output.CopyFrom(tensor)
            output.name = "y" + tensor.name[1:]
        self.reply(reply)

    def error(self, code: int, message: str, executed: pb.Executed = pb.EXECUTED_YES) -> None:
        """Answer the oldest batch with an error."""
        request = self.batches()[0]
        self.reply(pb.Reply(id=request.id, code=code, message=message, executed=executed, final=True))

    def reply(self, reply: pb.Reply) -> None:
        self._bench.batcher.replied(self.worker, reply, self._bench.time.now)

    def die(self) -> None:
        self.batches()
        self._bench.batcher.detach(self.worker, "killed")


class Bench:
    """One batcher, its caller and its workers."""

    def __init__(
        self,
        policy: BatchPolicy | None = None,
        *,
        slots: int = 1,
        workers: int = 1,
        signature: Signature = ECHO,
        beside: "Bench | None" = None,
        device_slots: int = 64,
        pad_to: Padding | None = None,
    ) -> None:
        """`beside`: another one whose time and device it shares."""
        self.time = beside.time if beside else Time()
        self.signature = signature  # the artifact's
        self.device = beside.device if beside else Device(device_slots)
        self.batcher = batcher_for(
            NAME,
            signature,
            policy or BatchPolicy(),
            self.device,
            pad_to=pad_to,
            clock=self.time.clock,
            call_later=self.time.call_later,
        )
        self.facts = WorkerFacts("", NAME, "sha256:1", 1, signature, pad_to)
        self.link = FakeLink()
        self.caller = Caller(cast("Link", self.link))
        self.answers: dict[int, pb.Reply] = {}
        self.puppets = [self.hire(slots) for _ in range(workers)]
        self._next = 1

    def hire(self, slots: int = 1) -> Puppet:
        puppet = Puppet(self, len(self.batcher.workers), slots)
        self.batcher.attach(puppet.worker)
        return puppet

    @property
    def puppet(self) -> Puppet:
        return self.puppets[0]

    def send(self, *rows: Sequence[int], pump: bool = True, **fields: Any) -> list[int]:
        """One request for each list of numbers, in one frame; their ids."""
        numbers = []
        for values in rows:
            number, self._next = self._next, self._next + 1
            self.offer(ints(number, values, **fields))
            numbers.append(number)
        if pump:
            self.batcher.pump(self.time.now)
        return numbers

    def offer(self, request: pb.Request) -> None:
        self.batcher.lobby.offer(self.caller, request, request.id, self.time.now)

    def cancel(self, number: int) -> None:
        pending = self.caller.pending[number]
        pending.home.cancel(pending)

    def replies(self) -> dict[int, pb.Reply]:
        """Every answer so far, by id. Raises AssertionError when a request was answered twice."""
        for reply in self.link.take().replies:
            assert reply.id not in self.answers, f"request {reply.id} was answered twice"
            assert reply.final
            self.answers[reply.id] = reply
        return self.answers

    def codes(self) -> dict[int, int]:
        return {number: reply.code for number, reply in sorted(self.replies().items())}

    def values(self, number: int) -> list[int]:
        return numbers_of(self.replies()[number].outputs[0].data)


def ints(number: int, values: Sequence[int], **fields: Any) -> pb.Request:
    """A request for a row of each number."""
    request = pb.Request(id=number, rows=len(values), **({"model": NAME.model, "version": NAME.version} | fields))
    data = b"".join(value.to_bytes(4, "little", signed=True) for value in values)
    request.inputs.add(name="x", datatype="INT32", shape=[len(values)], data=data)
    return request


def texts(number: int, values: Sequence[bytes], **fields: Any) -> pb.Request:
    """A request for a row of each text."""
    request = pb.Request(id=number, rows=len(values), **({"model": NAME.model, "version": NAME.version} | fields))
    request.inputs.add(name="x", datatype=BYTES, shape=[len(values)], data=encode_bytes(values))
    return request


def numbers_of(data: bytes) -> list[int]:
    return [int.from_bytes(data[at : at + 4], "little", signed=True) for at in range(0, len(data), 4)]
