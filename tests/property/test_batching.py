"""Every accepted request ends in exactly one outcome, in batches within the limit, with its own rows."""

import math
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from services.batcher.policy import BatchPolicy, WaitPolicy
from services.batcher.search import Failure, Search
from services.core.errors import INTERNAL, OK
from tests.support.batching import ECHO, MS, Bench, numbers_of

POISON = 0
LEVELS = (WaitPolicy(), WaitPolicy(timeout_ns=8 * MS, delays=True), WaitPolicy(max_rows=10))
KINDS = ("", "shadow", "1", "2", "3", "hurry")  # of a request: shadow, a priority, little time

steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.lists(st.integers(0, 9), min_size=1, max_size=6), st.sampled_from(KINDS)),
        st.tuples(st.just("poison"), st.integers(0, 3), st.booleans()),
        st.tuples(st.just("answer"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("cancel"), st.integers(0, 99), st.just(0)),
        st.tuples(st.just("wait"), st.integers(0, 40), st.just(0)),
        st.tuples(st.just("die"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("hire"), st.integers(1, 3), st.sampled_from([False, False, True])),
        st.tuples(st.just("respecify"), st.integers(1, 8), st.booleans()),
    ),
    max_size=60,
)


class World:
    """A bench, and what is owed to each caller."""

    def __init__(self, policy: BatchPolicy) -> None:
        self.bench = Bench(policy, workers=2, slots=2)
        self.limit = policy.max_batch_rows
        self.sent: dict[int, list[int]] = {}
        self.cancelled: set[int] = set()
        self._value = 1

    def step(self, kind: str, value: object, flag: object) -> None:
        bench = self.bench
        match kind, value:
            case "send", list(rows):
                self.send([self._fresh(n) for n in rows], str(flag))
            case "poison", int(rows):
                self.send([[*self._fresh(rows), POISON]], "shadow" if flag else "")
            case "respecify", int(most):
                levels, default = (LEVELS, 2) if flag else ((), 0)
                policy = replace(bench.batcher.policy, max_batch_rows=most, levels=levels, default_level=default)
                bench.batcher.apply(policy)
                self.limit = max(self.limit, most)
            case "answer", int(which):
                self.answer(which)
            case "cancel", int(which) if bench.caller.pending:
                number = list(bench.caller.pending)[which % len(bench.caller.pending)]
                self.cancelled.add(number)
                bench.cancel(number)
            case "wait", int(milliseconds):
                bench.time.advance(milliseconds * MS)
            case "die", int(which) if len(bench.batcher.workers) > 1:
                live = [puppet for puppet in bench.puppets if puppet.worker in bench.batcher.workers]
                live[which % len(live)].die()
            case "hire", int(slots):
                if flag:  # another artifact, whose signature differs
                    outputs = ECHO.outputs if bench.facts.signature != ECHO else (*ECHO.outputs, *ECHO.inputs)
                    bench.facts = replace(bench.facts, signature=replace(ECHO, outputs=outputs), digest=str(outputs))
                bench.puppets.append(bench.hire(slots))

    def send(self, rows: list[list[int]], kind: str) -> None:
        deadline_us = 10_000 if kind == "hurry" else 30_000 if len(rows) % 2 else 0
        priority = int(kind) if kind.isdigit() else 0
        numbers = self.bench.send(*rows, shadow=kind == "shadow", priority=priority, deadline_us=deadline_us)
        self.sent |= dict(zip(numbers, rows, strict=True))

    def answer(self, which: int) -> bool:
        busy = [p for p in self.bench.puppets if p.worker in self.bench.batcher.workers and p.batches()]
        if not busy:
            return False
        puppet = busy[which % len(busy)]
        batch = puppet.batches()[0]
        values = numbers_of(batch.inputs[0].data)
        assert len(values) == batch.rows <= max(self.limit, 1)
        if POISON in values:
            puppet.error(INTERNAL, f"poison in row {values.index(POISON)}")
        else:
            puppet.echo()
        return True

    def finish(self) -> None:
        if not any(worker.accepting for worker in self.bench.batcher.workers):
            self.bench.puppets.append(self.bench.hire())
        while self.answer(0):
            pass

    def _fresh(self, rows: int) -> list[int]:
        self._value += rows
        return list(range(self._value - rows, self._value))


policies = st.builds(
    BatchPolicy,
    max_batch_rows=st.integers(1, 8),
    max_queue_rows=st.just(40),
    delay_ns=st.sampled_from([0, 0, 5 * MS]),
    target_ns=st.sampled_from([0, 20 * MS]),
    idempotent=st.booleans(),
    preserve_ordering=st.booleans(),
    wait=st.sampled_from([WaitPolicy(), WaitPolicy(timeout_ns=8 * MS)]),
    levels=st.sampled_from([(), LEVELS]),
    default_level=st.just(2),
)


@settings(max_examples=300, deadline=None)
@given(steps=steps, policy=policies)
def test_every_accepted_request_ends_in_exactly_one_outcome_with_its_own_rows(
    steps: list[tuple[str, object, object]], policy: BatchPolicy
) -> None:
    world = World(policy if policy.levels else replace(policy, default_level=0))
    for step in steps:
        world.step(*step)
    world.finish()
    world.bench.time.advance(50 * MS)
    world.finish()

    assert world.bench.batcher.is_idle
    assert not world.bench.caller.pending
    queue = world.bench.batcher.lobby.queue
    assert queue.rows == queue.size == world.bench.device.in_flight == 0
    assert all(level.rows == level.size == 0 for level in queue.levels.values())
    answers = world.bench.replies()
    assert set(world.sent) == set(answers) | world.cancelled
    assert not set(answers) & world.cancelled
    for number, reply in answers.items():
        if reply.code == OK:
            assert world.bench.values(number) == world.sent[number]
            assert POISON not in world.sent[number]


def search(members: list[int], bad: set[int], *, alike: bool) -> tuple[set[int], dict[int, Failure], int]:
    """Who succeeded, who failed, and the launches of a whole search."""
    good: set[int] = set()
    found = Search(members, Failure(13, "batch"), lambda member: member in good)
    while (group := found.next()) is not None:
        assert not set(group) & good
        raised = bad & set(group)
        if raised:
            found.failed(Failure(13, "bad" if alike else f"bad {min(raised)}"))
        else:
            good |= set(group)
            found.succeeded()
    verdicts = [member for member, _ in found.verdicts]
    assert len(verdicts) == len(set(verdicts))
    return good, dict(found.verdicts), found.launches


@given(count=st.integers(2, 200), data=st.data(), alike=st.booleans())
def test_one_bad_request_is_found_in_bounded_launches_and_its_neighbours_succeed(
    count: int,
    data: st.DataObject,
    alike: bool,  # noqa: FBT001
) -> None:
    bad = data.draw(st.integers(0, count - 1))
    good, failed, launches = search(list(range(count)), {bad}, alike=alike)

    assert set(failed) == {bad}
    assert good == set(range(count)) - {bad}
    assert launches <= math.ceil(math.log2(count)) + 2


@given(count=st.integers(2, 100), data=st.data(), alike=st.booleans())
def test_any_number_of_bad_requests_ends_with_a_verdict_or_an_answer_for_each_in_bounded_launches(
    count: int,
    data: st.DataObject,
    alike: bool,  # noqa: FBT001
) -> None:
    bad = data.draw(st.sets(st.integers(0, count - 1), min_size=1))
    good, failed, launches = search(list(range(count)), bad, alike=alike)

    assert good | set(failed) == set(range(count))
    assert not good & set(failed)
    assert bad <= set(failed)
    assert launches <= 2 * math.ceil(math.log2(count)) + 2


@given(count=st.integers(2, 100))
def test_a_raise_that_does_not_come_again_costs_at_most_one_request(count: int) -> None:
    good, failed, _ = search(list(range(count)), set(), alike=False)

    assert len(failed) <= 1
    assert good | set(failed) == set(range(count))


@given(count=st.integers(2, 64), left=st.sets(st.integers(0, 63)))
def test_those_who_left_before_the_search_get_no_verdict_and_no_launch(count: int, left: set[int]) -> None:
    members = list(range(count))
    found = Search(members, Failure(13, "batch"), left.__contains__)
    seen: set[int] = set()
    while (group := found.next()) is not None:
        seen |= set(group)
        found.failed(Failure(13, f"bad {group}"))

    assert not seen & left
    assert {member for member, _ in found.verdicts} == set(members) - left
