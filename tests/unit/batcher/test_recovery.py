"""After a batch raised, or its worker died."""

import pytest

from services.batcher.policy import BatchPolicy
from services.core.errors import DEADLINE_EXCEEDED, INTERNAL, INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNAVAILABLE
from tests.support.batching import MS, Bench, Puppet, numbers_of
from turnout.v1 import link_pb2 as pb

POISON = 666


def run(puppet: Puppet) -> int:
    """Answer everything: batches with the poison raise. Gives the number of launches."""
    launches = 0
    while batches := puppet.batches():
        launches += 1
        values = numbers_of(batches[0].inputs[0].data)
        if POISON in values:
            puppet.error(INTERNAL, f"row {values.index(POISON)} is poison")
        else:
            puppet.echo()
    return launches


def batch_with_poison(bench: Bench, rows: int, position: int) -> list[int]:
    """Ids of requests that sit in one batch; the one at `position` is bad."""
    bench.send([0])
    numbers = bench.send(*[[POISON if n == position else n] for n in range(rows)])
    bench.puppet.echo()
    bench.replies()
    return numbers


def test_one_bad_request_of_eight_fails_alone_wherever_it_is() -> None:
    for position in range(8):
        bench = Bench()
        numbers = batch_with_poison(bench, 8, position)
        launches = run(bench.puppet)
        bad = numbers.pop(position)

        assert bench.codes()[bad] == INTERNAL
        assert [bench.values(n) for n in numbers] == [[n] for n in range(8) if n != position]
        assert launches - 1 <= 3 + 2


@pytest.mark.parametrize(("code", "executed"), [(DEADLINE_EXCEEDED, pb.EXECUTED_YES), (UNAVAILABLE, pb.EXECUTED_MAYBE)])
def test_what_is_slow_or_gone_is_not_asked_again_for_every_half(code: int, executed: pb.Executed) -> None:
    bench = Bench()
    numbers = batch_with_poison(bench, 8, 0)
    bench.puppet.error(code, "not now", executed)

    assert bench.puppet.batches() == []
    assert [bench.replies()[number].code for number in numbers] == [code] * 8
    assert {bench.answers[number].executed for number in numbers} == {executed}


def test_two_faults_of_callers_that_read_alike_are_no_fault_of_the_model() -> None:
    bench = Bench()
    bench.send([0])
    numbers = bench.send(*[[POISON if n in {1, 6} else n] for n in range(8)])
    bench.puppet.echo()
    while batches := bench.puppet.batches():
        if POISON in numbers_of(batches[0].inputs[0].data):
            bench.puppet.error(INVALID_ARGUMENT, "no text")
        else:
            bench.puppet.echo()
    codes = [bench.replies()[number].code for number in numbers]

    assert codes == [INVALID_ARGUMENT if place in {1, 6} else 0 for place in range(8)]


def test_a_batch_is_sent_with_the_latest_deadline_of_its_members() -> None:
    bench = Bench()
    bench.send([0])
    bench.send([1], deadline_us=40_000)
    bench.send([2], deadline_us=90_000)
    first, *_ = bench.puppet.batches()
    bench.time.advance(5 * MS)
    bench.puppet.echo()
    (second,) = bench.puppet.batches()

    assert first.deadline_us == 0
    assert (second.rows, second.deadline_us) == (2, 85_000)


def test_answers_after_a_search_say_how_often_they_were_launched_again() -> None:
    bench = Bench()
    numbers = batch_with_poison(bench, 2, 1)
    run(bench.puppet)

    assert bench.replies()[numbers[0]].retries == 1


def test_a_model_that_always_raises_costs_two_launches_more() -> None:
    bench = Bench()
    bench.send([0])
    numbers = bench.send(*[[n] for n in range(8)])
    bench.puppet.echo()
    launches = 0
    while bench.puppet.batches():
        bench.puppet.error(INTERNAL, "no weights")
        launches += 1

    assert launches == 3
    assert {bench.codes()[n] for n in numbers} == {INTERNAL}


def test_searches_cost_a_tenth_of_the_launches_at_most() -> None:
    bench = Bench()
    again = total = 0
    for _ in range(300):
        total += 1
        numbers = batch_with_poison(bench, 8, 3)
        again += run(bench.puppet) - 1

        assert set(numbers) <= set(bench.codes())

    assert again <= 32 + 0.1 * (2 * total)


def test_requests_cancelled_during_a_search_are_not_launched_again() -> None:
    bench = Bench()
    numbers = batch_with_poison(bench, 8, 7)
    bench.puppet.error(INTERNAL, "row 7 is poison")
    for number in numbers[1:]:
        bench.cancel(number)
    run(bench.puppet)

    assert bench.codes() == {1: 0, numbers[0]: 0}
    assert bench.batcher.is_idle


def test_a_model_that_is_not_idempotent_is_not_run_again() -> None:
    bench = Bench(BatchPolicy(idempotent=False))
    numbers = batch_with_poison(bench, 4, 0)

    assert run(bench.puppet) == 1
    assert {bench.codes()[n] for n in numbers} == {INTERNAL}


def test_after_a_death_each_suspect_runs_once_more_alone_on_one_worker() -> None:
    bench = Bench(workers=2)
    numbers = bench.send([1], [2], [3])
    victim, other = bench.puppets if bench.puppets[0].batches() else bench.puppets[::-1]
    victim.die()
    seen = []
    while batches := other.batches():
        seen.append([numbers_of(batch.inputs[0].data) for batch in batches])
        other.echo(batches[0])

    assert seen == [[[1]], [[2]], [[3]]]
    assert bench.codes() == dict.fromkeys(numbers, 0)


def test_other_workers_go_on_serving_while_a_suspect_runs() -> None:
    bench = Bench(workers=3)
    bench.send([1])
    bench.puppet.die()
    bench.send([2])
    batches = [numbers_of(batch.inputs[0].data) for puppet in bench.puppets[1:] for batch in puppet.batches()]

    assert sorted(batches) == [[1], [2]]


def test_a_suspect_waits_until_nobody_else_is_on_its_worker() -> None:
    bench = Bench(workers=2, slots=2)
    for value in range(3):
        bench.send([value])
    victim, other = bench.puppets
    victim.die()

    assert len(other.batches()) == 1

    other.echo()

    assert [batch.rows for batch in other.batches()] == [1]


def test_a_second_death_answers_internal_and_quarantines_the_input_for_a_minute() -> None:
    bench = Bench(workers=3)
    (number,) = bench.send([POISON])
    bench.puppets[0].die()
    next(puppet for puppet in bench.puppets[1:] if puppet.batches()).die()

    assert bench.codes() == {number: INTERNAL}
    assert "died with this request, twice" in bench.answers[number].message
    assert bench.answers[number].executed == pb.EXECUTED_MAYBE

    again, other = bench.send([POISON]) + bench.send([5])

    assert bench.codes()[again] == INTERNAL
    assert "refused for a minute" in bench.answers[again].message
    assert other not in bench.answers

    bench.time.advance(61_000 * MS)
    (later,) = bench.send([POISON])

    assert later not in bench.codes()


def test_a_death_is_not_tried_again_when_the_router_tried_already_or_the_model_is_not_idempotent() -> None:
    tried, careful = Bench(workers=2), Bench(BatchPolicy(idempotent=False), workers=2)
    for bench, tries in ((tried, 1), (careful, 0)):
        (number,) = bench.send([1], tries=tries)
        next(puppet for puppet in bench.puppets if puppet.batches()).die()

        assert bench.codes() == {number: INTERNAL}
        assert bench.answers[number].executed == pb.EXECUTED_MAYBE


def test_without_any_worker_everybody_is_told_within_a_second() -> None:
    bench = Bench()
    running, waiting = bench.send([1]) + bench.send([2])
    bench.puppet.die()
    bench.time.advance(1_001 * MS)

    assert bench.codes() == {running: INTERNAL, waiting: UNAVAILABLE}

    (late,) = bench.send([3])

    assert bench.codes()[late] == UNAVAILABLE


def test_a_worker_that_comes_back_in_time_serves_who_waited() -> None:
    bench = Bench()
    numbers = bench.send([1]) + bench.send([2])
    bench.puppet.die()
    bench.time.advance(500 * MS)
    fresh = bench.hire()
    run(fresh)

    assert bench.codes() == dict.fromkeys(numbers, 0)


def test_a_death_during_a_search_leaves_nobody_unanswered() -> None:
    bench = Bench(workers=2)
    bench.puppets[1].worker.accepting = False
    numbers = batch_with_poison(bench, 8, 3)
    bench.puppet.error(INTERNAL, "row 3 is poison")
    bench.puppets[1].worker.accepting = True
    bench.puppet.die()
    while bench.puppets[1].batches():
        bench.puppets[1].echo()

    assert set(numbers) <= set(bench.codes())
    assert bench.batcher.is_idle


def test_answers_too_large_together_come_one_by_one_and_what_is_too_large_alone_is_told() -> None:
    bench = Bench()
    bench.send([0])
    small, other, large = bench.send([1], [2], [3, 4])
    bench.puppet.echo()
    assert bench.puppet.rows() == [4]

    bench.puppet.error(RESOURCE_EXHAUSTED, "outputs of 4 rows take too much")
    launched = []
    while rows := bench.puppet.rows():
        launched += rows
        if rows == [2]:
            bench.puppet.error(RESOURCE_EXHAUSTED, "outputs of 2 rows take too much")
        else:
            bench.puppet.echo()

    assert launched == [1, 1, 2]
    assert (bench.values(small), bench.values(other)) == ([1], [2])
    assert bench.codes()[large] == RESOURCE_EXHAUSTED
    assert not bench.caller.pending


def test_a_status_that_is_none_is_an_internal_error() -> None:
    bench = Bench()
    (number,) = bench.send([1])
    bench.puppet.error(99, "what is this?")

    assert (bench.codes()[number], bench.replies()[number].message) == (INTERNAL, "what is this?")


def test_a_cut_request_that_ended_two_workers_is_refused_before_a_part_of_it_runs() -> None:
    bench = Bench(BatchPolicy(max_batch_rows=2), workers=3)
    (killer,) = bench.send([1, 2, POISON], pump=True)
    while victims := [
        puppet for puppet in bench.puppets for batch in puppet.batches() if POISON in numbers_of(batch.inputs[0].data)
    ]:
        victims[0].die()
    survivor = next(puppet for puppet in bench.puppets if puppet.worker in bench.batcher.workers)
    while survivor.batches():
        survivor.echo()
    again, harmless = bench.send([1, 2, POISON]) + bench.send([1, 2, 3])
    run(survivor)

    assert [bench.codes()[number] for number in (killer, again, harmless)] == [INTERNAL, INTERNAL, 0]
    assert (bench.replies()[again].executed, bench.batcher.lobby.queue.rows) == (pb.EXECUTED_NO, 0)
    assert "refused for a minute" in bench.replies()[again].message
    assert bench.batcher.is_idle
