"""Whatever callers, workers and time do: a sequence has one place, its requests run in order, its state is its own."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from services.batcher.sequences import CANCELLED, Sequence, Sequences
from services.core.batching_spec import SequenceState
from services.core.signature import Signature, TensorSpec
from services.runtime.sequence_state import SequenceStates

IDLE_NS = 5
X, Y = TensorSpec("x", "INT64", (-1,)), TensorSpec("y", "INT64", (-1,))
SIGNATURE = Signature((X, TensorSpec("before", "INT64", (-1,))), (Y, TensorSpec("after", "INT64", (-1,))), batches=True)
STATES = [SequenceState(input_name="before", output_name="after")]


@dataclass(eq=False)
class Request:
    name: int
    value: int
    outcomes: list[str] = field(default_factory=list)


class Worker(SequenceStates):
    accepting = True

    def __init__(self) -> None:
        super().__init__(STATES, SIGNATURE)
        self.over: list[int] = []


@dataclass(eq=False)
class Batch:
    worker: Worker
    members: list[tuple[Sequence[Request], Request]]
    rows: list[int]
    sums: list[int]


class World:
    """Sequences, accumulating workers, and what each sequence should have summed."""

    def __init__(self, capacity: int) -> None:
        self.now = 0
        self.capacity = capacity
        self.all: Sequences[Request] = Sequences(IDLE_NS)
        self.workers: list[Worker] = []
        self.requests: list[Request] = []
        self.flying: list[Batch] = []
        self.expected: defaultdict[int, list[int]] = defaultdict(list)  # by sequence number: values in order of arrival
        self.done: defaultdict[int, int] = defaultdict(int)  # by sequence number: requests that ran
        self.homes: dict[int, object] = {}
        self.hire()

    def hire(self) -> None:
        self.workers.append(Worker())
        self.all.open(self.workers[-1], self.capacity, self.now)

    def send(self, name: int, value: int, *, start: bool, end: bool, owner: int) -> None:
        if not start and self.all.find(name) is None:
            return
        request = Request(name, value)
        self.requests.append(request)
        sequence = self.all.add(name, request, owner, self.now, start=start, end=end)
        self.expected[sequence.number].append(value)

    def launch(self, pick: int, most: int) -> None:
        hosts = [host for host in self.all.hosts.values() if host.ready]
        if not hosts:
            return
        host = hosts[pick % len(hosts)]
        worker = next(worker for worker in self.workers if worker is host.home)
        batch = Batch(worker, [], [], [])
        for sequence in list(host.ready)[:most]:
            request, starts, ends = self.all.take(sequence)
            batch.members.append((sequence, request))
            batch.rows.append(sequence.number << 2 | starts << 1 | ends)
            assert self.homes.setdefault(sequence.number, worker) is worker
        values = [request.value for _, request in batch.members]
        worker.forget("link", worker.over)
        worker.over.clear()
        before = worker.before("link", batch.rows, len(batch.rows))["before"]
        after = before + np.array(values)
        worker.keep("link", batch.rows, {"y": after, "after": after})
        worker.close("link", batch.rows)
        batch.sums = after.tolist()
        self.flying.append(batch)

    def land(self, pick: int) -> None:
        if not self.flying:
            return
        batch = self.flying.pop(pick % len(self.flying))
        for (sequence, request), total in zip(batch.members, batch.sums, strict=True):
            self.done[sequence.number] += 1
            request.outcomes.append("answered")
            assert total == sum(self.expected[sequence.number][: self.done[sequence.number]])
            self.all.landed(sequence, self.now)

    def cancel(self, pick: int) -> None:
        everyone = list(self.all)
        if everyone:
            self.refuse(self.all.end(everyone[pick % len(everyone)], CANCELLED, self.now))

    def kill(self, pick: int) -> None:
        worker = self.workers.pop(pick % len(self.workers))
        self.refuse(self.all.close(worker, self.now))
        for batch in [batch for batch in self.flying if batch.worker is worker]:
            self.flying.remove(batch)
            for sequence, request in batch.members:
                request.outcomes.append("lost")
                self.all.landed(sequence, self.now)
        self.hire()

    def refuse(self, requests: list[Request]) -> None:
        for request in requests:
            request.outcomes.append("refused")

    def act(self, step: Any) -> None:
        kind, *arguments = step
        self.now += 1
        if kind == "send":
            name, value, start, end, owner = arguments
            self.send(name, value, start=start, end=end, owner=owner)
        elif kind == "launch":
            self.launch(*arguments)
        elif kind == "quiet":
            self.now += arguments[0]
            self.all.expire(self.now)
        elif kind == "lose":
            self.refuse(self.all.end_of(arguments[0], self.now))
        else:
            getattr(self, kind)(*arguments)
        self.check()

    def check(self) -> None:
        seated = [sequence for host in self.all.hosts.values() for sequence in host.seated.values()]
        assert len(seated) + len(self.all.backlog) == len(self.all)
        for host in self.all.hosts.values():
            assert len(host.seated) + host.free == self.capacity
            assert all(host.seated[sequence.row] is sequence for sequence in host.seated.values())
            assert set(host.ready) == {s for s in host.seated.values() if s.waiting and not s.is_running}
        if self.all.backlog:
            assert not any(host.free for host in self.all.hosts.values())
        assert all(sequence.waiting for sequence in self.all.backlog)

    def finish(self) -> None:
        """Let everything run to its end, and every worker hear of what is over."""
        while len(self.all) or self.flying:
            self.launch(0, self.capacity)
            self.land(0)
            self.now += 1
            self.all.expire(self.now)
        for worker in self.workers:
            worker.forget("link", worker.over)


small = st.integers(0, 3)
step = st.one_of(
    st.tuples(st.just("send"), small, st.integers(1, 99), st.booleans(), st.booleans(), st.integers(0, 1)),
    st.tuples(st.just("send"), small, st.integers(1, 99), st.just(False), st.just(False), st.integers(0, 1)),
    st.tuples(st.just("launch"), small, st.integers(1, 3)),
    st.tuples(st.just("land"), small),
    st.tuples(st.just("cancel"), small),
    st.tuples(st.just("kill"), small),
    st.tuples(st.just("quiet"), st.integers(0, 6)),
    st.tuples(st.just("lose"), st.integers(0, 1)),
    st.tuples(st.just("hire")),
)


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 3), st.lists(step, max_size=60))
def test_every_sum_is_its_sequences_own_and_every_request_ends_once(capacity: int, steps: list[Any]) -> None:
    world = World(capacity)
    for each in steps:
        world.act(each)
    world.finish()

    assert [request.outcomes for request in world.requests if len(request.outcomes) != 1] == []
    assert len(world.all) == 0
    assert [len(worker) for worker in world.workers] == [0] * len(world.workers)
    assert sum(world.all.ended) == len(world.expected)
