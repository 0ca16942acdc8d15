import pytest

from services.router.access.limits import Bucket, seconds, share, share_of_places

S = 1_000_000_000


def bucket(per_s: float | None, burst_s: float = 1.0) -> Bucket:
    made = Bucket()
    made.follow(per_s, burst_s)
    return made


def test_a_burst_passes_and_then_what_the_rate_allows() -> None:
    one = bucket(10)

    taken = [one.take(1, 5 * S) for _ in range(11)]
    assert taken[:10] == [0.0] * 10
    assert taken[10] == pytest.approx(0.1 * S)
    assert one.take(1, 5 * S + S // 10 + 1) == 0
    assert one.take(1, 5 * S + S // 10 + 2) > 0


def test_after_as_long_as_it_says_there_is_a_token_again() -> None:
    one, now = bucket(3, burst_s=2), 7 * S
    while not (wait_ns := one.take(1, now)):
        pass

    assert one.take(1, now + int(wait_ns) - 2000) > 0
    assert one.take(1, now + int(wait_ns) + 2000) == 0


def test_over_a_long_time_no_more_than_the_rate_passes() -> None:
    one = bucket(7, burst_s=3)

    passed = sum(one.take(1, moment * S // 100) == 0 for moment in range(100 * 60))
    assert 7 * 60 <= passed <= 7 * 63


def test_what_is_larger_than_the_burst_passes_and_is_paid_for() -> None:
    rows = bucket(100)

    assert rows.take(1000, 0) == 0
    assert rows.take(1, 0) == pytest.approx(9.01 * S)
    assert rows.take(1, int(9.0 * S)) > 0
    assert rows.take(1, int(9.02 * S)) == 0


def test_another_rate_forgets_nothing_that_was_taken() -> None:
    one = bucket(10)
    for _ in range(10):
        one.take(1, 0)

    one.follow(5, 1.0)
    assert one.take(1, 0) > 0
    one.follow(None, 1.0)
    assert [one.take(100, 0) for _ in range(3)] == [0, 0, 0]


def test_a_slow_rate_lets_one_through_at_a_time() -> None:
    one = bucket(0.1)

    assert one.take(1, 0) == 0
    assert one.take(1, 9 * S) == pytest.approx(1 * S)
    assert one.take(1, 10 * S) == 0


def test_limits_are_shared_by_the_routers_there_are() -> None:
    assert [share(10, routers) for routers in (0, 1, 4)] == [10, 10, 2.5]
    assert share(None, 3) is None
    assert [share_of_places(7, routers) for routers in (0, 1, 2, 9)] == [7, 7, 3, 1]
    assert share_of_places(None, 3) is None


def test_a_hint_is_never_too_short() -> None:
    assert [seconds(wait_ns) for wait_ns in (1.0, 1e6, 1.1e6, 2.5e9)] == [0.001, 0.001, 0.002, 2.5]
