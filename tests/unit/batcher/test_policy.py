"""What leaves, and when."""

import pytest

from services.batcher.policy import BatchForm, BatchPolicy, WaitPolicy, choose, departure, fitting
from services.batcher.request import DONE, WAITING
from services.batcher.service_time import ServiceTime
from services.core.model_spec import ModelSpec

MS = 1_000_000


class Member:
    def __init__(self, cost: int, deadline_ns: int = 1 << 62, state: int = WAITING) -> None:
        self.cost, self.deadline_ns, self.state = cost, deadline_ns, state


def ten_and_one_a_row() -> ServiceTime:
    service = ServiceTime()
    for rows in (1, 10) * 10:
        service.measured(rows, (10 + rows) * MS, 0)
    return service


def test_without_a_delay_everything_leaves_now() -> None:
    assert departure(BatchForm(8, 0, ()), 1, 0, 100, 0) == (8, 100)


def test_with_a_delay_the_oldest_waits_exactly_so_long() -> None:
    form = BatchForm(8, 10, ())

    assert departure(form, 1, 95, 100, 0) == (8, 105)
    assert departure(form, 1, 90, 100, 0) == (8, 100)


def test_no_batch_waits_for_a_partner_that_is_not_expected_in_time() -> None:
    assert departure(BatchForm(8, 10, ()), 1, 100, 100, 11) == (8, 100)


@pytest.mark.parametrize(("rows", "leaves"), [(1, (8, 110)), (2, (2, 100)), (5, (4, 100)), (8, (8, 100))])
def test_a_preferred_size_leaves_without_delay(rows: int, leaves: tuple[int, int]) -> None:
    assert departure(BatchForm(8, 10, (2, 4)), rows, 100, 100, 0) == leaves


@pytest.mark.parametrize(
    ("costs", "most", "count"),
    [([5, 5, 5], 8, 1), ([1, 2, 3], 6, 3), ([1, 2, 4], 6, 2), ([9], 8, 1), ([1] * 9, 8, 8), ([], 8, 0), ([1, 1], 0, 1)],
)
def test_a_batch_fits_and_the_next_request_would_not(costs: list[int], most: int, count: int) -> None:
    assert fitting([Member(cost) for cost in costs], most, 0, None) == (count, False)


def test_those_who_left_do_not_count() -> None:
    members = [Member(1, state=DONE), Member(2), Member(9, state=DONE), Member(2)]

    assert fitting(members, 4, 0, None) == (2, False)


def test_nobody_joins_who_would_make_a_member_late() -> None:
    service = ten_and_one_a_row()
    members = [Member(1, 15 * MS + 1000), *(Member(1) for _ in range(20))]

    assert fitting(members, 64, 0, service) == (5, True)
    assert fitting([Member(1, 5 * MS)], 64, 0, service) == (0, True)


def test_when_the_rest_is_in_time_in_the_next_batch_arrival_decides() -> None:
    members = [Member(1, 13 * MS), *(Member(1, 60 * MS) for _ in range(10))]
    choice = choose(members, 64, 0, ten_and_one_a_row())

    assert choice.chosen == members[:2] or choice.chosen == members[:3]
    assert choice.hopeless == []


def test_when_not_all_can_be_in_time_the_largest_batch_runs_and_the_hopeless_are_told() -> None:
    members = [*(Member(1, 12 * MS) for _ in range(3)), *(Member(1, 31 * MS) for _ in range(20))]
    choice = choose(members, 64, 0, ten_and_one_a_row())

    assert len(choice.chosen) >= 19
    assert set(choice.chosen) <= set(members[3:])
    assert set(choice.hopeless) >= set(members[:3])


def test_a_large_request_without_a_chance_does_not_stand_before_a_small_one_with_one() -> None:
    large, small = Member(40, 30 * MS), Member(1, 20 * MS)
    choice = choose([large, small], 64, 0, ten_and_one_a_row())

    assert choice.chosen == [small]
    assert choice.hopeless == [large]


def test_when_nobody_can_be_in_time_everybody_is_told() -> None:
    members = [Member(1, 5 * MS), Member(2, 6 * MS)]

    assert choose(members, 64, 0, ten_and_one_a_row()) == ([], members)


def test_of_those_who_can_be_in_time_the_first_run_and_the_last_wait() -> None:
    late = [Member(1, 12 * MS) for _ in range(3)]
    early, last = [Member(1, 30 * MS) for _ in range(4)], [Member(1, 60 * MS) for _ in range(4)]

    choice = choose([*late, *early, *last], 4, 0, ten_and_one_a_row())
    assert choice.chosen == early
    assert choice.hopeless == late


@pytest.mark.parametrize(
    ("default", "override", "asked", "holds"),
    [(0, True, 0, 0), (0, True, 5, 5), (9, True, 5, 5), (5, True, 9, 5), (9, False, 5, 9), (9, True, 0, 9)],
)
def test_a_queue_timeout_asked_for_holds_also_without_a_default(
    default: int,
    override: bool,  # noqa: FBT001
    asked: int,
    holds: int,
) -> None:
    assert WaitPolicy(timeout_ns=default, allow_override=override).timeout_of(asked) == holds


def test_a_spec_becomes_a_policy() -> None:
    spec = ModelSpec.parse(
        b'{"batching": {"max_batch_size": 8, "preferred_batch_size": [4, 2], "max_queue_delay_microseconds": 500,'
        b' "max_queue_size": 100, "default_timeout_microseconds": 7}, "idempotent": false}'
    )
    policy = BatchPolicy.of(spec, batches=True)

    assert (policy.max_batch_rows, policy.preferred_rows, policy.delay_ns) == (8, (2, 4), 500_000)
    assert (policy.max_queue_rows, policy.wait.timeout_ns, policy.max_request_rows) == (100, 7000, 100)
    assert not policy.idempotent
    assert BatchPolicy.of(spec, batches=False).max_batch_rows == 0
