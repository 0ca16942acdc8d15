"""Schedules offer the rate that was asked for, in the manner that was asked for."""

import numpy as np
import pytest

from loadtest.batching.arrivals import BURSTY_CV, Kind, schedule


@pytest.mark.parametrize("kind", ["poisson", "bursty"])
def test_exactly_the_asked_rate_is_offered(kind: Kind) -> None:
    due = schedule(kind, 500, 4, seed=3)

    assert len(due) == 2000
    assert due[-1] == pytest.approx(4)
    assert (np.diff(due) >= 0).all()


@pytest.mark.parametrize(("kind", "wanted"), [("poisson", 1.0), ("bursty", BURSTY_CV)])
def test_gaps_vary_as_they_should(kind: Kind, wanted: float) -> None:
    gaps = np.diff(schedule(kind, 1000, 400, seed=1))

    assert gaps.std() / gaps.mean() == pytest.approx(wanted, rel=0.05)


def test_the_same_seed_gives_every_rule_the_same_requests() -> None:
    assert (schedule("bursty", 100, 2, seed=5) == schedule("bursty", 100, 2, seed=5)).all()
    assert (schedule("bursty", 100, 2, seed=5) != schedule("bursty", 100, 2, seed=6)).any()
