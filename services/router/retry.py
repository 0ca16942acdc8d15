"""The retry budget: retries are a fixed share of answers, so that they cannot multiply an outage."""


class RetryBudget:
    """Every answer earns `ratio` of a retry, up to `most` saved; a retry spends one whole.

    Starts with a few, so that a quiet service may retry at all.
    """

    def __init__(self, ratio: float, most: float = 100.0) -> None:
        self._ratio = ratio
        self._most = most if ratio else 0.0
        self._saved = min(10.0, self._most)

    def earn(self) -> None:
        saved = self._saved + self._ratio
        self._saved = min(self._most, saved)

    def refund(self) -> None:
        """Give back what was spent on a retry that nobody could take."""
        self._saved = min(self._most, self._saved + 1)

    def spend(self) -> bool:
        """True when a retry may be made now."""
        if self._saved < 1:
            return False
        self._saved -= 1
        return True
