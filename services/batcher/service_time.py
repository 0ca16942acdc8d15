"""How long batches take: base + per_row x rows, learnt from what was measured. Pure; `now` is an argument."""

_MEMORY = 0.95  # weight of the past, a batch
_FEWEST = 8  # batches before anything is predicted
_OUTLIER = 4.0  # a measurement counts as at most so many times the prediction
_FAST = 0.5  # of the prediction: quicker than that, and the past weighs only as much as the present
_STALE_NS = 1_000_000_000  # without a measurement for so long, the next request is a probe


class ServiceTime:
    """An exponentially weighted line through (rows, nanoseconds).

    Robust against single stalls, and quick to forget a slow time: an estimate too high refuses what would correct it.
    """

    __slots__ = (
        "_like",
        "_measured_ns",
        "_rows",
        "_rows2",
        "_time",
        "_time_rows",
        "_weight",
        "base_ns",
        "error_ns",
        "row_ns",
        "samples",
    )

    def __init__(self, like: "ServiceTime | None" = None) -> None:
        """`like`: whose predictions stand in until this one has its own."""
        self._like = like
        self.base_ns = 0.0
        self.row_ns = 0.0
        self.error_ns = 0.0  # how far predictions usually are off
        self.samples = 0
        self._measured_ns = 0
        self._weight = self._rows = self._rows2 = self._time = self._time_rows = 0.0

    def known(self, now_ns: int) -> bool:
        """Whether predictions are worth acting upon: enough was measured, and lately."""
        if self.samples >= _FEWEST and now_ns - self._measured_ns < _STALE_NS:
            return True
        return self._like is not None and self._like.known(now_ns)

    def predict_ns(self, rows: int) -> float:
        if self._like is not None and self.samples < _FEWEST:
            return self._like.predict_ns(rows)
        return self.base_ns + self.row_ns * rows

    def gain(self, rows: int) -> float:
        """How many times more rows a second batches of `rows` rows give than single rows."""
        whole = self.predict_ns(rows)
        return rows * self.predict_ns(1) / whole if whole else float(rows)

    def measured(self, rows: int, took_ns: int, now_ns: int) -> None:
        """One batch of `rows` had a worker to itself for `took_ns`."""
        took: float = took_ns
        memory = _MEMORY
        if self.samples >= _FEWEST:
            predicted = self.predict_ns(rows)
            took = min(took, _OUTLIER * predicted)
            self.error_ns += (abs(took - predicted) - self.error_ns) * (1 - _MEMORY)
            if took < _FAST * predicted:
                memory = 1 / (1 + self._weight)
        self.samples += 1
        self._measured_ns = now_ns
        self._weight = self._weight * memory + 1
        self._rows = self._rows * memory + rows
        self._rows2 = self._rows2 * memory + rows * rows
        self._time = self._time * memory + took
        self._time_rows = self._time_rows * memory + took * rows
        self._fit()

    def _fit(self) -> None:
        mean_rows, mean_time = self._rows / self._weight, self._time / self._weight
        spread = self._rows2 / self._weight - mean_rows * mean_rows
        slope = 0.0
        if spread > 1e-3 and mean_rows > 0:
            slope = (self._time_rows / self._weight - mean_rows * mean_time) / spread
            slope = min(max(slope, 0.0), mean_time / mean_rows)
        self.row_ns = slope
        self.base_ns = mean_time - slope * mean_rows
