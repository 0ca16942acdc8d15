"""Quantiles of durations in bounded memory."""

import math
from collections.abc import Sequence

_GROWTH = 1.04  # each bucket is 4% wider than the one before, so a quantile is off by at most 2%
_LOG_GROWTH = math.log(_GROWTH)
_SMALLEST_S, _LARGEST_S = 1e-7, 1e4  # beyond, durations count in the outermost bucket
_FIRST, _LAST = (math.ceil(math.log(bound) / _LOG_GROWTH) for bound in (_SMALLEST_S, _LARGEST_S))


class Sketch:
    """Counts of durations in logarithmic buckets, at most some 650; the order of observations does not matter.

    Source: Masson, Rim, Lee, "DDSketch: A Fast and Fully-Mergeable Quantile Sketch" (2019).
    """

    def __init__(self) -> None:
        self.count = 0
        self.sum_s = 0.0
        self._buckets: dict[int, int] = {}

    def observe(self, duration_s: float) -> None:
        bounded = min(max(duration_s, _SMALLEST_S), _LARGEST_S)
        bucket = min(max(math.ceil(math.log(bounded) / _LOG_GROWTH), _FIRST), _LAST)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1
        self.count += 1
        self.sum_s += duration_s

    def mean_s(self) -> float:
        """0.0 when nothing was observed."""
        return self.sum_s / self.count if self.count else 0.0

    def quantile_s(self, q: float) -> float:
        """The duration that a share of `q` (0 to 1) does not exceed; 0.0 when nothing was observed."""
        wanted = max(1, math.ceil(q * self.count))
        for bucket, count in sorted(self._buckets.items()):
            wanted -= count
            if wanted <= 0:
                return 2 * _GROWTH**bucket / (_GROWTH + 1)
        return 0.0

    def at_most(self, bounds_s: Sequence[float]) -> list[int]:
        """Observations up to each of the rising `bounds_s`, as a cumulative histogram, to the width of a bucket."""
        buckets = sorted(self._buckets.copy().items())  # one step: a scrape reads it from another thread
        return [sum(count for bucket, count in buckets if _GROWTH**bucket <= bound) for bound in bounds_s]
