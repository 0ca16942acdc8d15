"""Leaves a store alone for a moment after it failed several times in a row. Pure: `now` is an argument."""


class Breaker:
    """Closed until `failures` in a row; then open for `open_s`, after which one try decides."""

    def __init__(self, failures: int, open_s: float) -> None:
        self._failures = failures
        self._open_s = open_s
        self._in_a_row = 0
        self._closed_from = 0.0

    def allows(self, now: float) -> bool:
        """May the store be asked? While open, True once every `open_s`: for the try that decides."""
        if self._in_a_row < self._failures:
            return True
        if now < self._closed_from:
            return False
        self._closed_from = now + self._open_s
        return True

    def succeeded(self) -> bool:
        """Whether this ends a run of failures."""
        recovered = self._in_a_row > 0
        self._in_a_row = 0
        return recovered

    def failed(self, now: float) -> bool:
        """Whether this begins a run of failures."""
        self._in_a_row += 1
        if self._in_a_row == self._failures:
            self._closed_from = now + self._open_s
        return self._in_a_row == 1

    def retry_after_s(self, now: float) -> float:
        """Until the store may be asked again; open_s when it may already."""
        return self._closed_from - now if self._closed_from > now else self._open_s
