"""Load on a device of a known speed, in simulated time: what callers see, and how soon they are told."""

import pytest

from services.core.errors import OK
from tests.support.simulation import Simulation, in_time, latencies, percentile, refusals

DEADLINE_MS = 50.0


@pytest.mark.parametrize("rate", [500, 2_000, 6_000])
def test_under_overload_who_is_refused_is_told_at_once_and_who_is_answered_is_in_time(rate: int) -> None:
    outcomes = Simulation(base_ms=20, row_ms=0.6875, deadline_ms=DEADLINE_MS).run(rate, 3)

    refused, answered = refusals(outcomes), latencies(outcomes, OK)
    assert percentile(refused, 97) < 5
    assert percentile(answered, 99) <= DEADLINE_MS
    assert in_time(outcomes, DEADLINE_MS) / 2 > (300 if rate == 500 else 550)


def test_a_long_queue_under_overload_is_served_from_its_front() -> None:
    outcomes = Simulation(base_ms=5, row_ms=0.2, deadline_ms=100).run(8_000, 2.5)

    assert percentile(refusals(outcomes), 99) < 5
    assert in_time(outcomes, 100) / 1.5 > 3_400  # it can serve 3,596 a second
    assert percentile(latencies(outcomes, OK), 50) > 80  # nobody overtakes


@pytest.mark.parametrize("way_ms", [0.1, 0.5])
def test_batches_leave_so_late_that_latency_is_that_of_one_slot(way_ms: float) -> None:
    simulation = Simulation(base_ms=5, row_ms=0.2, deadline_ms=1_000, way_ms=way_ms)
    outcomes = simulation.run(1_000, 3)

    # A request waits for half a batch and then for its own, on average: 1.5 times 5 + 0.2 x 6.3 ms; with the ways.
    mean_ms = sum(latencies(outcomes, OK)) / len(outcomes)
    assert mean_ms == pytest.approx(9.7 + 2 * way_ms + 0.6, abs=1.0)
