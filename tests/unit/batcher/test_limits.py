"""Bounds that hold whatever comes: rows of a batch, launches of a version that cannot work, processes that one ends."""

import pytest

from services.batcher.policy import BatchPolicy
from services.core.errors import INTERNAL, INVALID_ARGUMENT, OK, UNAVAILABLE
from tests.support.batching import MS, Bench, numbers_of

BUDGET, SHARE = 32, 0.1  # launches that searches may save up, and what each ordinary launch earns them
KILLER = 999


def run_all(bench: Bench) -> list[int]:
    """Answer until nothing is left; the rows of each launch."""
    sizes: list[int] = []
    while batches := bench.puppet.batches():
        sizes.append(batches[0].rows)
        bench.puppet.echo(batches[0])
    return sizes


@pytest.mark.parametrize("most", [1, 2, 7])
@pytest.mark.parametrize("rows", ["none", "one", "most", "more"])
@pytest.mark.parametrize("company", [0, 3])
def test_any_number_of_rows_beside_any_company_stays_within_max_batch_size(most: int, rows: str, company: int) -> None:
    count = {"none": 0, "one": 1, "most": most, "more": most + 1}[rows]
    bench = Bench(BatchPolicy(max_batch_rows=most, max_request_rows=16))
    sent = {bench.send([0])[0]: [0]}  # while it runs, the others gather
    for neighbour in range(company):
        sent |= {bench.send([neighbour])[0]: [neighbour]}
    sent |= {bench.send(range(100, 100 + count))[0]: list(range(100, 100 + count))}
    sizes = run_all(bench)

    assert {number: bench.values(number) for number in sent} == sent
    assert max(sizes) <= most
    assert sum(sizes) == 1 + company + count
    assert bench.batcher.is_idle


@pytest.mark.parametrize("most", [1, 2, 7])
def test_more_rows_than_a_request_may_have_are_refused_and_cost_no_launch(most: int) -> None:
    bench = Bench(BatchPolicy(max_batch_rows=most, max_request_rows=most))
    (number,) = bench.send(range(most + 1))

    assert bench.codes() == {number: INVALID_ARGUMENT}
    assert bench.puppet.batches() == []


@pytest.mark.parametrize("alike", [True, False])
def test_a_version_that_always_raises_costs_no_more_than_its_budget(alike: bool) -> None:  # noqa: FBT001
    bench = Bench(BatchPolicy(max_batch_rows=8))
    launches = ordinary = 0
    for _ in range(200):
        numbers = bench.send(*[[n] for n in range(8)])
        ordinary += 1
        while bench.puppet.batches():
            launches += 1
            bench.puppet.error(INTERNAL, "no weights" if alike else f"no weights, launch {launches}")

        assert {bench.codes()[number] for number in numbers} == {INTERNAL}

    assert launches <= ordinary * (1 + SHARE) + BUDGET


def test_a_request_that_ends_processes_ends_two_and_its_neighbours_are_answered() -> None:
    bench = Bench(workers=4)
    first, killer, second = bench.send([1], [KILLER], [2])
    deaths = 0
    while busy := [puppet for puppet in bench.puppets if puppet.batches()]:
        if KILLER in numbers_of(busy[0].batches()[0].inputs[0].data):
            busy[0].die()
            deaths += 1
        else:
            busy[0].echo()
    again = bench.send([KILLER])[0]

    assert deaths == 2
    assert bench.codes() == {first: OK, killer: INTERNAL, second: OK, again: INTERNAL}
    assert [puppet.batches() for puppet in bench.puppets] == [[]] * 4


def test_refusals_come_in_the_turn_in_which_the_request_came_while_every_slot_is_busy() -> None:
    bench = Bench(BatchPolicy(max_batch_rows=2, max_queue_rows=3), slots=2, workers=2)
    for value in range(4):
        bench.send([value])
    waiting = bench.send([4], [5], [6])
    before = bench.time.wakes
    refused = bench.send(*[[value] for value in range(50)])

    assert bench.codes() == dict.fromkeys(refused, UNAVAILABLE)
    assert bench.time.wakes == before
    assert not set(waiting) & set(bench.answers)


def test_many_deadlines_each_fire_on_time_while_every_slot_is_busy() -> None:
    bench = Bench(slots=2, workers=2)
    for value in range(4):
        bench.send([value])
    start = bench.time.now
    due = {bench.send([n], deadline_us=1000 * (10 + 37 * n % 100))[0]: 10 + 37 * n % 100 for n in range(60)}
    fired: dict[int, int] = {}
    while bench.time.now < start + 120 * MS:
        bench.time.advance(MS)
        for number in set(bench.codes()) - set(fired):
            fired[number] = (bench.time.now - start) // MS

    assert fired.keys() == due.keys()
    assert all(0 <= fired[number] - due[number] <= 5 for number in due)
    assert [len(puppet.batches()) for puppet in bench.puppets] == [2, 2]


def test_an_answer_to_those_who_left_frees_its_slot_for_the_next() -> None:
    bench = Bench()
    running = bench.send([1], [2])
    waiting = bench.send([3])
    for number in running:
        bench.cancel(number)
    bench.puppet.echo()
    bench.puppet.echo()

    assert bench.codes() == {waiting[0]: OK}
    assert bench.batcher.lobby.tally.cancelled == [0, 2]
    assert bench.batcher.is_idle
