"""More load than can be served, in simulated time: a worker that takes 20 ms a batch and 0.7 ms a row."""

import random
from collections import Counter

import pytest

from services.core.errors import OK
from tests.support.batching import MS, Bench

SECONDS = 3
DEADLINE_MS = 50


def goodput(rate: int, slots: int) -> float:
    """Answers in time a second, at `rate` requests a second in Poisson arrivals, after a second to learn in."""
    rng = random.Random(rate)
    bench = Bench(slots=slots)
    start = bench.time.now
    arrival, busy_until, running = start, 0, None
    counted: list[int] = []
    while bench.time.now < start + SECONDS * 1000 * MS:
        bench.time.advance(max(0, min(arrival, busy_until or arrival) - bench.time.now))
        if running is not None and bench.time.now >= busy_until:
            bench.puppet.echo(running)
            running, busy_until = None, 0
        if bench.time.now >= arrival:
            numbers = bench.send([1], deadline_us=DEADLINE_MS * 1000)
            counted += numbers if bench.time.now > start + 1000 * MS else []
            arrival += int(rng.expovariate(rate) * 1000 * MS)
        if running is None and (batches := bench.puppet.batches()):
            running = batches[0]
            busy_until = bench.time.now + int((20 + 0.7 * running.rows) * MS)
    codes = bench.codes()
    return Counter(codes.get(number) for number in counted)[OK] / (SECONDS - 1)


@pytest.mark.parametrize("slots", [1, 2])
def test_goodput_does_not_fall_when_the_load_grows(slots: int) -> None:
    good = [goodput(rate, slots) for rate in (150, 300, 600, 1200, 2400)]

    assert good[0] > 140
    assert all(more >= 0.9 * max(good[: n + 1]) for n, more in enumerate(good))
