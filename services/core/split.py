"""Sticky splits: which version a routing key gets. The same on every router, with no shared state.

A key hashes to one of 1,000,000 points of a circle; each canary owns ranges of it, stable owns the rest.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import mmh3

POINTS = 1_000_000  # 0.0001% each
_UNIT_PER_PERCENT = POINTS // 100


class Share(NamedTuple):
    """One canary's claim: `points` of the circle, clockwise from `start`, through what is still free."""

    version: str
    start: int
    points: int


def point_of(salt: str, key: bytes) -> int:
    """Where `key` lies on the circle, 0 to 999,999. Source: MurmurHash3 x64 128, lower half, over salt NUL key."""
    lower: int = mmh3.hash64(salt.encode() + b"\0" + key, seed=0, x64arch=True, signed=False)[0]
    return lower * POINTS >> 64


def points_of_percent(percent: float) -> int:
    """A percentage as points. Raises ValueError outside 0 to 100 or past four decimals."""
    if not 0 <= percent <= 100:  # NaN neither
        raise ValueError(f"percent {percent} is not within 0 to 100")
    points = round(percent * _UNIT_PER_PERCENT)
    if abs(points - percent * _UNIT_PER_PERCENT) > 1e-6:
        raise ValueError(f"percent {percent} has more than 4 decimals")
    return points


def default_start(index: int) -> int:
    """Start of the index-th canary that names none: 0%, 50%, 25%, 75%, 12.5% … so that neighbours have room to grow."""
    position, step = 0, POINTS
    while index:
        step //= 2
        position += step * (index & 1)
        index >>= 1
    return position


class Ranges:
    """The circle cut into arcs, looked up by bisection."""

    def __init__(self, shares: Sequence[Share]) -> None:
        arcs = _allot(shares)
        self._starts = [start for start, _, _ in arcs]
        self._ends = [end for _, end, _ in arcs]
        self._versions = [version for _, _, version in arcs]

    def version_at(self, point: int) -> str | None:
        """The canary that owns `point`; None where stable does."""
        index = bisect_right(self._starts, point) - 1
        if index >= 0 and point < self._ends[index]:
            return self._versions[index]
        return None

    def arcs(self) -> list[tuple[int, int, str]]:
        """Every owned arc as (start, end, version), ascending."""
        return list(zip(self._starts, self._ends, self._versions, strict=True))


def _allot(shares: Sequence[Share]) -> list[tuple[int, int, str]]:
    taken: list[tuple[int, int, str]] = []
    for share in shares:
        wanted = share.points
        for start, end in _free_from(taken, share.start):
            if wanted <= 0:
                break
            end = min(end, start + wanted)  # noqa: PLW2901 - the rest of this gap stays free
            taken.append((start, end, share.version))
            wanted -= end - start
        if wanted > 0:
            total = sum(claim.points for claim in shares) / _UNIT_PER_PERCENT
            raise ValueError(f"percents sum to {total:.10g}, over 100: no room for version {share.version}")
    return sorted(taken)


def _free_from(taken: Sequence[tuple[int, int, str]], at: int) -> list[tuple[int, int]]:
    """The free gaps of the circle in clockwise order from `at`."""
    gaps: list[tuple[int, int]] = []
    cursor = 0
    for start, end, _ in [*sorted(taken), (POINTS, POINTS, "")]:
        if cursor < start:
            gaps.append((cursor, start))
        cursor = max(cursor, end)
    after = [(max(start, at), end) for start, end in gaps if end > at]
    before = [(start, min(end, at)) for start, end in gaps if start < at]
    return after + before
