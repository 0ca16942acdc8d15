"""Restarts of a worker."""

import random

from services.runtime.backoff import HEALTHY_S, Restarts


def test_delays_double_from_a_fifth_of_a_second_to_ten() -> None:
    restarts = Restarts(random.Random(7))
    delays = [restarts.delay_s(20, 0) or 0 for _ in range(12)]

    assert all(0.2 <= delay <= 10 for delay in delays)
    assert all(0.1 * 2**index <= delay <= 0.2 * 2**index for index, delay in enumerate(delays[1:6], start=1))
    assert all(delay >= 5 for delay in delays[7:])


def test_it_gives_up_after_the_limit_in_a_row() -> None:
    restarts = Restarts(random.Random(7))
    delays = [restarts.delay_s(3, 1) for _ in range(4)]

    assert [delay is None for delay in delays] == [False, False, False, True]
    assert restarts.total == 3


def test_a_limit_of_none_never_restarts() -> None:
    assert Restarts(random.Random(7)).delay_s(0, 0) is None


def test_what_waits_for_something_elsewhere_is_never_given_up() -> None:
    restarts = Restarts(random.Random(7))
    delays = [restarts.delay_s(None) for _ in range(100)]

    assert None not in delays
    assert max(delay or 0 for delay in delays) <= 10


def test_a_healthy_minute_forgets_earlier_failures() -> None:
    restarts = Restarts(random.Random(7))
    for _ in range(50):
        assert restarts.delay_s(1, HEALTHY_S) is not None
    assert restarts.in_a_row == 1
    assert restarts.total == 50


def test_delays_are_jittered() -> None:
    delays = {Restarts(random.Random(seed)) for seed in range(2)}
    firsts = set()
    for restarts in delays:
        for _ in range(4):
            last = restarts.delay_s(10, 0)
        firsts.add(last)

    assert len(firsts) == 2
