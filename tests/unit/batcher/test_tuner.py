"""Rows of a batch and its delay find what a target allows."""

import pytest

from services.batcher.policy import BatchForm, BatchPolicy
from services.batcher.service_time import ServiceTime
from services.batcher.tuner import Tuner

MS = 1_000_000


def took(rows: int, base_ms: float, row_ms: float) -> int:
    return round((base_ms + row_ms * rows) * MS)


def saturated(tuner: Tuner, base_ms: float, row_ms: float, batches: int) -> list[int]:
    """Batches as large as they may be, one after the other; the rows of each."""
    service, sizes = ServiceTime(), []
    for number in range(batches):
        rows = tuner.form.rows
        taken = took(rows, base_ms, row_ms)
        service.measured(rows, taken, number * MS)
        tuner.ran(rows, taken, 2 * taken, rows, service)
        sizes.append(rows)
    return sizes


def test_without_a_target_batches_are_what_the_policy_says() -> None:
    tuner = Tuner(BatchPolicy(max_batch_rows=64, preferred_rows=(8, 32), delay_ns=5 * MS))
    saturated(tuner, 5, 0.2, 100)

    assert tuner.form == BatchForm(64, 5 * MS, (8, 32))


@pytest.mark.parametrize(("base_ms", "row_ms"), [(5, 0.2), (1, 1), (0.1, 0.5)])
def test_batches_settle_where_two_of_them_take_the_target(base_ms: float, row_ms: float) -> None:
    tuner = Tuner(BatchPolicy(max_batch_rows=256, target_ns=30 * MS))
    fits = (15 - base_ms) / row_ms
    sizes = saturated(tuner, base_ms, row_ms, 400)

    settled = sizes[200:]
    assert 0.85 * fits <= sum(settled) / len(settled) <= 1.02 * fits
    assert max(settled) <= 1.05 * fits + 2


def test_what_even_one_row_takes_too_long_for_runs_one_by_one() -> None:
    tuner = Tuner(BatchPolicy(max_batch_rows=64, target_ns=10 * MS))

    assert saturated(tuner, 50, 1, 200)[-1] == 1


def test_a_model_that_gets_faster_gets_its_rows_back() -> None:
    tuner = Tuner(BatchPolicy(max_batch_rows=64, target_ns=30 * MS))
    saturated(tuner, 5, 2, 200)
    assert tuner.form.rows < 8

    assert saturated(tuner, 1, 0.1, 800)[-1] == 64


def test_a_delay_that_makes_requests_late_is_given_up_and_comes_back() -> None:
    tuner = Tuner(BatchPolicy(max_batch_rows=64, delay_ns=40 * MS, target_ns=30 * MS))
    service = ServiceTime()
    for _ in range(200):
        waited = tuner.form.delay_ns
        tuner.ran(4, 5 * MS, waited + 5 * MS, 4, service)
    assert 5 * MS < tuner.form.delay_ns <= 26 * MS

    late = tuner.form.delay_ns
    for _ in range(100):
        tuner.ran(4, MS, MS, 4, service)

    assert tuner.form.delay_ns > late


def test_lateness_of_full_batches_is_overload_and_makes_none_smaller() -> None:
    tuner = Tuner(BatchPolicy(max_batch_rows=64, delay_ns=MS, target_ns=30 * MS))
    for _ in range(200):
        tuner.ran(64, 10 * MS, 500 * MS, 64, ServiceTime())

    assert tuner.form == BatchForm(64, MS, ())


def test_one_stall_costs_a_tenth() -> None:
    tuner = Tuner(BatchPolicy(max_batch_rows=64, target_ns=30 * MS))
    tuner.ran(64, 900 * MS, 900 * MS, 64, ServiceTime())

    assert tuner.form.rows == 57


def test_where_batching_gains_nothing_nobody_waits() -> None:
    tuner = Tuner(BatchPolicy(max_batch_rows=64, delay_ns=5 * MS))
    service = ServiceTime()
    for number in range(64):
        rows = 1 + number % 16
        service.measured(rows, took(rows, 0.001, 1), number)
        tuner.ran(rows, 0, 0, rows, service)

    assert tuner.form.delay_ns == 0
    assert service.gain(64) < 1.05


def test_a_new_policy_keeps_what_was_learnt_as_far_as_it_fits() -> None:
    tuner = Tuner(BatchPolicy(max_batch_rows=64, target_ns=30 * MS))
    saturated(tuner, 5, 1, 200)
    learnt = tuner.form.rows
    assert learnt < 16

    tuner.apply(BatchPolicy(max_batch_rows=128, target_ns=30 * MS))
    assert tuner.form.rows == learnt

    tuner.apply(BatchPolicy(max_batch_rows=4, target_ns=30 * MS))
    assert tuner.form.rows == 4
