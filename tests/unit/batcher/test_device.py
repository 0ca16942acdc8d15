"""Models that share a device: as much of it for each as its weight says, and shadow requests on what is left."""

from collections import Counter

import pytest

from services.batcher.policy import BatchPolicy
from tests.support.batching import MS, Bench

ONE = BatchPolicy(max_batch_rows=1)


def run(benches: list[Bench], took_ms: list[int], total_ms: int) -> Counter[int]:
    """Milliseconds that each bench had the device, when all of them always have something waiting."""
    time = benches[0].time
    end = time.now + total_ms * MS
    spent: Counter[int] = Counter()
    while time.now < end:
        for number, bench in enumerate(benches):
            while bench.batcher.lobby.queue.rows < 4:
                bench.send([number])
            if bench.puppet.batches():
                time.advance(took_ms[number] * MS)
                spent[number] += took_ms[number]
                bench.puppet.echo()
    return spent


@pytest.mark.parametrize(("weights", "shares"), [((1, 1), (0.5, 0.5)), ((3, 1), (0.75, 0.25))])
def test_the_device_is_shared_by_time_not_by_batches(weights: tuple[float, float], shares: tuple[float, float]) -> None:
    first = Bench(BatchPolicy(max_batch_rows=1, weight=weights[0]), device_slots=1)
    second = Bench(BatchPolicy(max_batch_rows=1, weight=weights[1]), beside=first)

    spent = run([first, second], [10, 2], 10_000)

    assert [spent[n] / spent.total() for n in (0, 1)] == pytest.approx(shares, abs=0.03)


def test_no_more_batches_than_slots_run_at_once() -> None:
    benches = [Bench(ONE, device_slots=2)]
    benches += [Bench(ONE, beside=benches[0]) for _ in range(2)]
    for bench in benches:
        bench.send([1], [2])
    running = [len(bench.puppet.batches()) for bench in benches]

    assert running == [1, 1, 0]

    benches[0].time.advance(MS)
    benches[0].puppet.echo()

    assert [len(bench.puppet.batches()) for bench in benches] == [0, 1, 1]


def test_who_was_silent_has_no_credit() -> None:
    first = Bench(ONE, device_slots=1)
    second = Bench(ONE, beside=first)
    run([first], [10], 5_000)

    spent = run([first, second], [10, 10], 1_000)

    assert spent[0] == pytest.approx(spent[1], abs=20)


def test_a_shadow_runs_only_when_no_model_has_a_primary_request_waiting() -> None:
    first = Bench(ONE, device_slots=1)
    second = Bench(ONE, beside=first)
    first.send([1])
    second.send([2], shadow=True)
    first.send([3])
    first.puppet.echo()
    assert second.puppet.batches() == []

    first.puppet.echo()

    assert second.puppet.rows() == [1]


def test_a_worker_that_dies_gives_its_place_back() -> None:
    first = Bench(BatchPolicy(max_batch_rows=1, idempotent=False), device_slots=1)
    second = Bench(ONE, beside=first)
    first.send([1])
    second.send([2])
    first.puppet.die()

    assert (second.puppet.rows(), first.device.in_flight) == ([1], 1)


def test_a_model_that_waits_for_its_delay_holds_nobody_up() -> None:
    first = Bench(BatchPolicy(delay_ns=50 * MS), device_slots=1)
    second = Bench(ONE, beside=first)
    first.send([1])
    second.send([2])

    assert (first.puppet.rows(), second.puppet.rows()) == ([], [1])


def test_models_that_wait_for_nothing_cost_nothing() -> None:
    first = Bench(ONE, device_slots=1)
    others = [Bench(ONE, beside=first) for _ in range(50)]
    for bench in (first, *others):
        bench.send([1])
        bench.puppet.batches() and bench.puppet.echo()
    while any(bench.puppet.batches() for bench in (first, *others)):
        for bench in (first, *others):
            bench.puppet.batches() and bench.puppet.echo()
    first.send([2])

    assert len(first.device._waiting) == 1


def test_a_worker_that_hangs_holds_its_place_only_for_so_long() -> None:
    hung = Bench(ONE, device_slots=1)
    other = Bench(ONE, beside=hung)
    hung.send([1])
    other.send([2])
    assert other.puppet.rows() == []

    other.time.advance(1001 * MS)

    assert other.puppet.rows() == [1]

    hung.puppet.echo()
    other.puppet.echo()

    assert other.device.in_flight == 0


def test_a_batch_that_is_known_to_take_long_is_not_overdue() -> None:
    slow = Bench(ONE, device_slots=1)
    other = Bench(ONE, beside=slow)
    for _ in range(10):
        slow.send([1])
        slow.time.advance(400 * MS)
        slow.puppet.echo()
    slow.send([1])
    other.send([2])
    slow.time.advance(1500 * MS)

    assert other.puppet.rows() == []
