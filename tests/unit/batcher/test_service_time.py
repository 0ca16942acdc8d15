"""What was measured, and what is expected of it."""

import pytest

from services.batcher.service_time import ServiceTime

MS = 1_000_000


def learnt(base_ms: float, row_ms: float, sizes: list[int]) -> ServiceTime:
    service = ServiceTime()
    for rows in sizes * 10:
        service.measured(rows, int((base_ms + row_ms * rows) * MS), 0)
    return service


def test_base_and_rows_are_told_apart() -> None:
    service = learnt(20, 0.5, [1, 7, 30])

    assert service.base_ns == pytest.approx(20 * MS)
    assert service.row_ns == pytest.approx(0.5 * MS)
    assert service.predict_ns(40) == pytest.approx(40 * MS)


def test_batches_of_one_size_say_nothing_about_rows() -> None:
    service = learnt(20, 1, [10])

    assert service.row_ns == 0
    assert service.predict_ns(10) == pytest.approx(30 * MS)


def test_nothing_is_known_before_enough_was_measured_or_long_after() -> None:
    service = ServiceTime()

    assert not service.known(0)

    for _ in range(8):
        service.measured(1, MS, 0)

    assert service.known(900 * MS)
    assert not service.known(1_001 * MS)


def test_one_stall_hardly_moves_the_estimate() -> None:
    service = learnt(10, 0, [1, 2])
    service.measured(1, 60_000 * MS, 0)

    assert service.predict_ns(1) < 13 * MS


def test_a_slow_time_is_forgotten_quickly() -> None:
    service = learnt(100, 0, [1, 2])
    for _ in range(4):
        service.measured(1, MS, 0)

    assert service.predict_ns(1) < 20 * MS
