"""Who goes first, who waits, and who makes room."""

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.batcher.policy import AGEING_NS, FOREVER_NS, BatchPolicy, WaitPolicy, rank_of
from services.batcher.request import Pending
from services.core.errors import OK, UNAVAILABLE
from tests.support.batching import MS, Bench, numbers_of

LEVELS = (WaitPolicy(), WaitPolicy(), WaitPolicy())
THREE = BatchPolicy(max_batch_rows=2, levels=LEVELS, default_level=2)


def served(bench: Bench) -> list[list[int]]:
    """The values of every batch from now on, answered one after the other."""
    batches = []
    while waiting := bench.puppet.batches():
        batches.append(numbers_of(waiting[0].inputs[0].data))
        bench.puppet.echo()
    return batches


def busy(policy: BatchPolicy) -> Bench:
    """A bench whose only slot is taken by the value 0."""
    bench = Bench(policy)
    bench.send([0], priority=1)
    return bench


def test_higher_priorities_leave_first_and_fill_up_with_lower_ones() -> None:
    bench = busy(THREE)
    for value, priority in ((31, 3), (21, 2), (11, 1), (32, 3), (12, 1), (13, 1)):
        bench.send([value], priority=priority)

    assert served(bench) == [[0], [11, 12], [13, 21], [31, 32]]


@pytest.mark.parametrize("priority", [0, 4, 1 << 31])
def test_a_priority_that_there_is_not_is_the_default_one(priority: int) -> None:
    bench = busy(THREE)
    for value, level in ((31, 3), (1, priority), (11, 1)):
        bench.send([value], priority=level)

    assert served(bench) == [[0], [11, 1], [31]]


def test_a_model_without_levels_ignores_priorities() -> None:
    bench = busy(BatchPolicy(max_batch_rows=1))
    for value, priority in ((1, 3), (2, 1)):
        bench.send([value], priority=priority)

    assert served(bench) == [[0], [1], [2]]


def test_the_earliest_deadline_of_a_level_leaves_first() -> None:
    bench = busy(BatchPolicy(max_batch_rows=1))
    for value, deadline_ms in ((1, 300), (2, 100), (3, 200), (4, 100)):
        bench.send([value], deadline_us=deadline_ms * 1000)

    assert served(bench) == [[0], [2], [4], [3], [1]]


def test_who_has_much_time_is_overtaken_only_for_a_while() -> None:
    bench = busy(BatchPolicy(max_batch_rows=1))
    bench.send([1])
    bench.time.advance(AGEING_NS - 200 * MS)
    bench.send([2], deadline_us=100_000)
    bench.time.advance(50 * MS)
    bench.send([3], deadline_us=200_000)

    assert served(bench) == [[0], [2], [1], [3]]


@given(
    one=st.tuples(st.integers(0, 10**10), st.integers(0, 10**10)),
    other=st.tuples(st.integers(0, 10**10), st.integers(0, 10**10)),
    levels=st.tuples(st.integers(0, 64), st.integers(0, 64)),
)
def test_ranks_are_levels_then_deadlines_within_the_ageing_time(
    one: tuple[int, int], other: tuple[int, int], levels: tuple[int, int]
) -> None:
    ranks = [rank_of(level, at, at + left) for level, (at, left) in zip(levels, (one, other), strict=True)]
    if levels[0] != levels[1]:
        assert (ranks[0] < ranks[1]) == (levels[0] < levels[1])
    elif one[0] + AGEING_NS <= other[0]:
        assert ranks[0] <= ranks[1]
    elif max(one[1], other[1]) <= AGEING_NS:
        assert (ranks[0] <= ranks[1]) == (sum(one) <= sum(other))
    assert rank_of(levels[0], one[0], FOREVER_NS) == rank_of(levels[0], one[0], one[0] + AGEING_NS)


def test_a_full_queue_makes_room_for_a_higher_priority_at_the_cost_of_the_youngest_of_the_lowest() -> None:
    bench = busy(BatchPolicy(max_batch_rows=1, max_queue_rows=3, levels=LEVELS, default_level=3))
    old, young, middle = bench.send([1]) + bench.send([2]) + bench.send([3], priority=2)
    (first,) = bench.send([4], priority=1)

    assert bench.codes() == {young: UNAVAILABLE}
    assert "request of priority 3 made room" in bench.replies()[young].message

    (refused,) = bench.send([5], priority=3)
    bench.send([6], priority=1)

    assert bench.codes() == {old: UNAVAILABLE, young: UNAVAILABLE, refused: UNAVAILABLE}
    assert served(bench) == [[0], [4], [6], [3]]
    assert bench.codes()[middle] == bench.codes()[first] == OK
    assert bench.batcher.lobby.tally.shed[0] == 2


def test_when_levels_go_those_who_wait_stand_where_they_would_without() -> None:
    bench = busy(BatchPolicy(max_batch_rows=1, levels=LEVELS, default_level=3))
    bench.send([1])
    bench.time.advance(MS)
    bench.send([2], priority=2)
    bench.send([3], shadow=True)
    bench.batcher.apply(BatchPolicy(max_batch_rows=1))
    bench.time.advance(MS)
    bench.send([4])
    bench.send([5], deadline_us=100_000)

    assert served(bench) == [[0], [5], [1], [2], [4], [3]]
    assert bench.batcher.is_idle


def test_a_queue_keeps_no_inputs_of_those_who_have_left() -> None:
    bench = busy(BatchPolicy(max_batch_rows=1, levels=LEVELS, default_level=3))
    numbers = bench.send([1], [2], [3])
    bench.cancel(numbers[-1])

    assert served(bench) == [[0], [1], [2]]
    gc.collect()
    # Not isinstance: that asks objects for their class, and some of other libraries' complain.
    here = [each for each in gc.get_objects() if type(each) is Pending and each.home is bench.batcher.lobby]
    assert [each.id for each in here if each.inputs] == []


def test_shadow_requests_go_before_any_priority_does() -> None:
    bench = busy(BatchPolicy(max_batch_rows=1, max_queue_rows=2, levels=LEVELS, default_level=3))
    low, shadow = bench.send([1]) + bench.send([2], shadow=True)
    bench.send([3], priority=1)

    assert bench.codes() == {shadow: UNAVAILABLE}
    assert low in bench.caller.pending


def test_room_is_made_for_bytes_too() -> None:
    bench = busy(BatchPolicy(max_queue_bytes=12, levels=LEVELS, default_level=3))
    (low,) = bench.send([1, 2, 3])
    (high,) = bench.send([4], priority=1)

    assert bench.codes() == {low: UNAVAILABLE}
    assert high in bench.caller.pending


def test_a_level_has_a_bound_of_its_own() -> None:
    bench = busy(BatchPolicy(levels=(WaitPolicy(), WaitPolicy(max_rows=2)), default_level=2))
    bench.send([1, 2])
    (refused,) = bench.send([3])
    (high,) = bench.send([4], priority=1)

    assert bench.codes() == {refused: UNAVAILABLE}
    assert "priority level 2 of echo/1 is full: 2 of 2 rows wait" in bench.replies()[refused].message
    assert high in bench.caller.pending


def test_a_level_has_a_timeout_of_its_own() -> None:
    levels = (WaitPolicy(), WaitPolicy(timeout_ns=5 * MS))
    bench = busy(BatchPolicy(levels=levels, default_level=1))
    (low,) = bench.send([2], priority=2)
    bench.send([1])
    bench.time.advance(6 * MS)

    assert bench.codes() == {low: UNAVAILABLE}
    assert bench.batcher.lobby.tally.shed[2] == 1


def test_with_delay_a_queue_timeout_puts_a_request_behind_the_others_of_its_level() -> None:
    levels = (WaitPolicy(timeout_ns=5 * MS, delays=True), WaitPolicy())
    bench = busy(BatchPolicy(max_batch_rows=1, levels=levels, default_level=1))
    bench.send([1])
    bench.time.advance(4 * MS)
    bench.send([2])
    bench.send([3], priority=2)
    bench.time.advance(2 * MS)

    assert served(bench) == [[0], [2], [1], [3]]


def test_what_was_put_behind_still_ends_at_its_deadline() -> None:
    bench = busy(BatchPolicy(wait=WaitPolicy(timeout_ns=5 * MS, delays=True)))
    (late,) = bench.send([1], deadline_us=20_000)
    bench.time.advance(19 * MS)
    assert bench.codes() == {}

    bench.time.advance(2 * MS)

    assert "deadline passed after" in bench.replies()[late].message


def test_nobody_is_let_go_for_the_sake_of_a_lower_priority() -> None:
    bench = Bench(BatchPolicy(max_batch_rows=4, levels=LEVELS, default_level=3))
    for _ in range(10):  # it takes 10 ms and 1 ms a row
        for rows in (1, 4):
            bench.send([0] * rows)
            bench.time.advance((10 + rows) * MS)
            bench.puppet.echo()
    bench.send([0, 0, 0, 0])
    (high,) = bench.send([1], priority=1, deadline_us=28_000)
    bench.send([2], [3], [4], deadline_us=40_000)
    bench.time.advance(14 * MS)
    bench.puppet.echo()

    assert high not in bench.replies()
    assert served(bench)[0][0] == 1


def test_levels_changed_live_lose_nobody() -> None:
    bench = busy(THREE)
    for value, priority in ((3, 3), (2, 2), (1, 1)):
        bench.send([value], priority=priority)
    bench.batcher.apply(BatchPolicy(max_batch_rows=8))
    bench.send([4])

    assert sorted(value for batch in served(bench) for value in batch) == [0, 1, 2, 3, 4]
