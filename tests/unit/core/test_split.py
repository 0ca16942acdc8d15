import pytest

from services.core.split import POINTS, Ranges, Share, default_start, point_of, points_of_percent


def test_a_key_lies_where_the_documented_hash_puts_it() -> None:
    assert point_of("ctr", b"user-1") == 6029159179397760298 * POINTS // 2**64 == 326_841


@pytest.mark.parametrize("key", [b"\0", b"\xff\xfe", b"x" * 100_000, "é".encode()])
def test_any_bytes_are_a_key(key: bytes) -> None:
    assert 0 <= point_of("salt", key) < POINTS


def test_the_salt_ends_where_the_key_begins() -> None:
    assert point_of("ab", b"c") != point_of("a", b"bc")


@pytest.mark.parametrize(
    ("percent", "points"),
    [
        (0, 0),
        (-0.0, 0),
        (0.0001, 1),
        (0.5, 5_000),
        (10, 100_000),
        (33.3333, 333_333),
        (99.9999, 999_999),
        (100, POINTS),
    ],
)
def test_a_percentage_is_a_whole_number_of_points(percent: float, points: int) -> None:
    assert points_of_percent(percent) == points


@pytest.mark.parametrize(
    ("percent", "message"),
    [
        (-0.0001, "percent -0.0001 is not within 0 to 100"),
        (100.0001, "percent 100.0001 is not within 0 to 100"),
        (float("nan"), "percent nan is not within 0 to 100"),
        (float("inf"), "percent inf is not within 0 to 100"),
        (0.00001, "percent 1e-05 has more than 4 decimals"),
        (33.33333, "percent 33.33333 has more than 4 decimals"),
    ],
)
def test_other_percentages_are_refused(percent: float, message: str) -> None:
    with pytest.raises(ValueError, match="percent") as caught:
        points_of_percent(percent)

    assert str(caught.value) == message


def test_canaries_that_name_no_start_leave_each_other_room() -> None:
    starts = [default_start(index) * 100 / POINTS for index in range(9)]

    assert starts == [0, 50, 25, 75, 12.5, 62.5, 37.5, 87.5, 6.25]


@pytest.mark.parametrize(
    ("shares", "arcs"),
    [
        ([], []),
        ([Share("2", 0, 0)], []),
        ([Share("2", 0, POINTS)], [(0, POINTS, "2")]),
        ([Share("2", 5, POINTS)], [(0, 5, "2"), (5, POINTS, "2")]),
        ([Share("2", 999_990, 20)], [(0, 10, "2"), (999_990, POINTS, "2")]),
        ([Share("2", 10, 10), Share("3", 5, 10)], [(5, 10, "3"), (10, 20, "2"), (20, 25, "3")]),
        ([Share("2", 10, 10), Share("3", 10, 5)], [(10, 20, "2"), (20, 25, "3")]),
        ([Share("2", 10, 10), Share("3", 15, 5)], [(10, 20, "2"), (20, 25, "3")]),
        ([Share("2", 0, POINTS // 2), Share("3", 0, POINTS // 2)], [(0, 500_000, "2"), (500_000, POINTS, "3")]),
    ],
)
def test_a_share_goes_clockwise_through_what_is_free(shares: list[Share], arcs: list[tuple[int, int, str]]) -> None:
    assert Ranges(shares).arcs() == arcs


def test_shares_over_the_whole_circle_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^percents sum to 100\.0001, over 100: no room for version 3$"):
        Ranges([Share("2", 0, POINTS), Share("3", 7, 1)])


@pytest.mark.parametrize(
    ("point", "version"),
    [(0, None), (9, None), (10, "2"), (19, "2"), (20, None), (29, None), (30, "3"), (999_999, "3")],
)
def test_a_point_belongs_to_the_arc_it_lies_in_and_else_to_stable(point: int, version: str | None) -> None:
    assert Ranges([Share("2", 10, 10), Share("3", 30, POINTS - 30)]).version_at(point) == version
