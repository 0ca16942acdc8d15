"""Whatever happens around a batcher of sequences, every request ends in exactly one outcome, and nothing is left."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from services.core.errors import INTERNAL, OK
from tests.support.batching import MS, Puppet
from tests.support.sequencing import SequenceBench, entries, tensor

STRATEGIES: list[dict[str, Any]] = [
    {},
    {"direct": {"max_queue_delay_microseconds": 3000, "minimum_slot_utilization": 0.6}},
    {"oldest": {"max_candidate_sequences": 3}},
    {"oldest": {"max_candidate_sequences": 9, "max_queue_delay_microseconds": 3000, "preferred_batch_size": [2]}},
]

names = st.integers(1, 6)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), names, st.booleans(), st.booleans()),
        st.tuples(st.just("send"), names, st.just(False), st.just(False)),
        st.tuples(st.just("run"), st.integers(0, 2), st.booleans(), st.just(False)),
        st.tuples(st.just("cancel"), st.integers(0, 9), st.just(False), st.just(False)),
        st.tuples(st.just("wait"), st.integers(1, 60), st.just(False), st.just(False)),
        st.tuples(st.just("die"), st.integers(0, 2), st.just(False), st.just(False)),
        st.tuples(st.just("forget"), st.just(0), st.just(False), st.just(False)),
    ),
    max_size=60,
)


class World:
    """A bench, and what is owed to its caller."""

    def __init__(self, strategy: dict[str, Any]) -> None:
        self.bench = SequenceBench(workers=2, slots=2, batching={"max_batch_size": 4, "max_queue_size": 20}, **strategy)
        self.sent: dict[int, int] = {}
        self.gone: set[int] = set()
        self._value = 0

    def act(self, kind: str, value: int, flag: bool, other: bool) -> None:  # noqa: FBT001 - drawn at random
        bench = self.bench
        if kind == "send":
            self._value += 1
            timeout_us = 40_000 if value == 6 else 0
            number = bench.step(value, self._value, start=flag, end=other, deadline_us=timeout_us)
            self.sent[number] = self._value
        elif kind == "run":
            self.answer(self.puppet(value), raises=flag)
        elif kind == "cancel":
            waiting = list(bench.caller.pending)
            if waiting:
                self.gone.add(waiting[value % len(waiting)])
                bench.cancel(waiting[value % len(waiting)])
        elif kind == "wait":
            bench.time.advance(value * MS)
        elif kind == "die":
            self.puppet(value).die()
            bench.puppets[value % 2] = bench.hire(2)
        else:
            self.gone |= bench.caller.pending.keys()
            bench.batcher.lobby.forget(bench.caller)
            for pending in list(bench.caller.pending.values()):
                pending.home.cancel(pending)

    def puppet(self, value: int) -> Puppet:
        return self.bench.puppets[value % 2]

    def answer(self, puppet: Puppet, *, raises: bool = False) -> None:
        batches = puppet.batches()
        self.check(puppet)
        if not batches:
            return
        if raises:
            puppet.error(INTERNAL, "raised")
        else:
            self.bench.run(puppet)

    @staticmethod
    def check(puppet: Puppet) -> None:
        """No sequence is in two batches at once, and empty rows are empty."""
        running = [entry for batch in puppet.batches() for entry in entries(batch)]
        numbers = [number for number, _, _ in running if number]
        assert len(numbers) == len(set(numbers))
        for batch in puppet.batches():
            assert batch.rows == len(batch.sequence_rows) <= 4
            data = tensor(batch, "x").data
            assert all(entry or not any(data[4 * row : 4 * row + 4]) for row, entry in enumerate(batch.sequence_rows))

    def finish(self) -> None:
        for _ in range(200):
            for puppet in self.bench.puppets:
                self.answer(puppet)
            self.bench.time.advance(5 * MS)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(STRATEGIES), steps)
def test_every_request_ends_once_with_its_own_answer(strategy: dict[str, Any], steps: list[Any]) -> None:
    world = World(strategy)
    for kind, value, flag, other in steps:
        world.act(kind, value, flag, other)
    world.finish()
    bench = world.bench
    queue = bench.batcher.lobby.queue

    answers = bench.replies()
    assert world.sent.keys() - world.gone <= answers.keys()
    assert all(bench.values(number) == [world.sent[number]] for number, reply in answers.items() if reply.code == OK)
    assert (queue.rows, queue.size, queue.count) == (0, 0, 0)
    assert (len(queue.table), len(bench.caller.pending)) == (0, 0)
    assert (queue._sequences, bench.batcher.is_idle) == ({}, True)
