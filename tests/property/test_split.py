"""The sticky split over many keys and over random routes."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.route_spec import RouteSpec
from services.core.split import POINTS, Ranges, Share, point_of

KEYS = [f"user-{number}".encode() for number in range(100_000)]
PLACES = [point_of("ctr", key) for key in KEYS]


def owners(shares: list[Share]) -> list[str | None]:
    """Which version each of KEYS gets."""
    ranges = Ranges(shares)
    return [ranges.version_at(place) for place in PLACES]


def percent(value: float) -> int:
    return round(value * POINTS / 100)


@st.composite
def routes(draw: st.DrawFn) -> list[Share]:
    """Canaries that fit onto the circle, wherever they start."""
    left = POINTS
    shares: list[Share] = []
    for version in range(2, 2 + draw(st.integers(0, 6))):
        points = draw(st.integers(0, left) | st.sampled_from([0, left]))
        start = draw(st.integers(0, POINTS - 1) | st.sampled_from([0, POINTS - 1, *(share.start for share in shares)]))
        shares.append(Share(str(version), start, points))
        left -= points
    return shares


@st.composite
def routes_apart(draw: st.DrawFn) -> list[Share]:
    """Canaries that do not meet: each ends at or before the start of the next, the last may go past the end."""
    starts = sorted(draw(st.sets(st.integers(0, POINTS - 1), min_size=1, max_size=6)))
    ends = [*starts[1:], starts[0] + POINTS]
    return [
        Share(str(number), start, draw(st.integers(0, end - start)))
        for number, (start, end) in enumerate(zip(starts, ends, strict=True), 2)
    ]


def test_ten_percent_of_keys_are_ten_percent_within_a_third_of_a_point() -> None:
    count = Counter(owners([Share("2", 0, percent(10))]))

    assert abs(count["2"] / len(KEYS) - 0.1) <= 0.003


def test_the_same_key_never_changes_side() -> None:
    first = owners([Share("2", 0, percent(10))])

    assert all(owners([Share("2", 0, percent(10))]) == first for _ in range(20))


def test_a_growing_canary_keeps_every_user_and_takes_from_stable_only() -> None:
    steps = [owners([Share("2", 0, percent(share)), Share("3", percent(50), percent(5))]) for share in (1, 5, 10, 20)]

    for before, after in pairwise(steps):
        changes = {(was, now) for was, now in zip(before, after, strict=True) if was != now}
        assert changes == {(None, "2")}


def test_a_shrinking_canary_gives_its_users_back_to_stable_only() -> None:
    before = owners([Share("2", 0, percent(20)), Share("3", percent(50), percent(5))])
    after = owners([Share("2", 0, percent(10)), Share("3", percent(50), percent(5))])

    assert {(was, now) for was, now in zip(before, after, strict=True) if was != now} == {("2", None)}


def test_zero_percent_is_nobody_and_a_hundred_everybody() -> None:
    assert set(owners([Share("2", 0, 0)])) == {None}
    assert set(owners([Share("2", percent(37), POINTS)])) == {"2"}


def test_a_hundredth_of_a_percent_is_served() -> None:
    count = Counter(owners([Share("2", 0, percent(0.01))]))

    assert 1 <= count["2"] <= 30


def test_two_salts_sort_the_same_keys_independently() -> None:
    others = [point_of("ranker", key) for key in KEYS]

    half = (POINTS - 1) / 2
    covariance = sum((a - half) * (b - half) for a, b in zip(PLACES, others, strict=True)) / len(KEYS)
    assert abs(covariance / (POINTS**2 / 12)) < 0.01
    both = sum(a < percent(10) and b < percent(10) for a, b in zip(PLACES, others, strict=True))
    assert abs(both / len(KEYS) - 0.01) < 0.001


@pytest.mark.parametrize("tenth", range(10))
def test_keys_spread_evenly_over_the_circle(tenth: int) -> None:
    inside = sum(tenth * POINTS // 10 <= place < (tenth + 1) * POINTS // 10 for place in PLACES)

    assert abs(inside / len(KEYS) - 0.1) <= 0.003


@given(routes())
def test_every_canary_owns_exactly_its_points_and_no_arcs_overlap(shares: list[Share]) -> None:
    owned: Counter[str] = Counter()
    cursor = 0
    for start, end, version in Ranges(shares).arcs():
        assert cursor <= start < end <= POINTS
        owned[version] += end - start
        cursor = end

    assert owned == Counter({share.version: share.points for share in shares})


@given(routes(), st.integers(0, POINTS - 1))
def test_a_point_has_the_owner_that_the_arcs_say(shares: list[Share], point: int) -> None:
    ranges = Ranges(shares)

    holders = [version for start, end, version in ranges.arcs() if start <= point < end]
    assert ranges.version_at(point) == (holders[0] if holders else None)


@given(routes())
def test_a_canary_leaves_no_free_point_behind_on_its_way(shares: list[Share]) -> None:
    for count, share in enumerate(shares, 1):
        arcs = Ranges(shares[:count]).arcs()
        ways = [(end - share.start - 1) % POINTS + 1 for _, end, version in arcs if version == share.version]
        way = max(ways, default=0)
        taken = sum(_covered(start, end, share.start, way) for start, end, _ in arcs)
        assert taken == way


def _covered(start: int, end: int, at: int, way: int) -> int:
    """Points of [start, end) that lie within `way` points clockwise of `at`."""
    windows = [(at, min(at + way, POINTS)), (0, max(0, at + way - POINTS))]
    return sum(max(0, min(end, stop) - max(start, begin)) for begin, stop in windows)


@given(routes(), st.data())
def test_a_growing_canary_keeps_its_points_and_those_before_it_keep_theirs(
    shares: list[Share], data: st.DataObject
) -> None:
    if not shares:
        return
    index = data.draw(st.integers(0, len(shares) - 1))
    room = POINTS - sum(share.points for share in shares)
    grown = shares[index]._replace(points=shares[index].points + data.draw(st.integers(0, room)))

    after = Ranges([*shares[:index], grown, *shares[index + 1 :]])
    kept = {share.version for share in shares[: index + 1]}
    for start, end, version in Ranges(shares).arcs():
        if version in kept:
            assert _held(after, version, start, end)


@given(routes_apart(), st.data())
def test_while_ranges_do_not_meet_nobody_else_moves(shares: list[Share], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(shares) - 1))
    following = shares[(index + 1) % len(shares)].start
    room = (following - shares[index].start - 1) % POINTS + 1
    changed = shares[index]._replace(points=data.draw(st.integers(0, room)))

    def others(claims: list[Share]) -> list[tuple[int, int, str]]:
        return [arc for arc in Ranges(claims).arcs() if arc[2] != changed.version]

    assert others(shares) == others([*shares[:index], changed, *shares[index + 1 :]])


@given(routes(), st.integers(1, POINTS))
def test_one_point_too_many_is_refused(shares: list[Share], over: int) -> None:
    left = POINTS - sum(share.points for share in shares)

    with pytest.raises(ValueError, match="no room for version 99"):
        Ranges([*shares, Share("99", 0, left + over)])


@given(st.dictionaries(st.integers(2, 10**17).map(str), st.integers(0, POINTS // 6), max_size=6))
def test_a_route_in_percent_is_exact_in_points(points: dict[str, int]) -> None:
    route = RouteSpec.model_validate({"stable": "1", "canary": {v: count / 10_000 for v, count in points.items()}})

    owned = dict.fromkeys(points, 0)
    for start, end, version in RouteSpec.parse(route.dump()).ranges().arcs():
        owned[version] += end - start
    assert owned == points


def _held(ranges: Ranges, version: str, start: int, end: int) -> bool:
    """Does `version` own every point of [start, end)?"""
    return sum(max(0, min(end, b) - max(start, a)) for a, b, owner in ranges.arcs() if owner == version) == end - start
