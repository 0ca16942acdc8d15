"""The retry budget: retries are a fixed share of answers, so that they cannot multiply an outage."""

_FIRST = 10.0  # saved at the start, so that a quiet service may retry at all


class RetryBudget:
    """Every answer earns `ratio` of a retry, up to `most` saved; a retry spends one whole.

    Answers are only counted (`answered`), which is all that the hot path pays; what they earned is reckoned when spent.
    """

    def __init__(self, ratio: float, most: float = 100.0) -> None:
        self.answered = 0
        self._reckoned = 0
        self._ratio = ratio
        self._most = most if ratio else 0.0
        self._saved = min(_FIRST, self._most)

    def refund(self) -> None:
        """Give back what was spent on a retry that nobody could take."""
        self._saved = min(self._most, self._saved + 1)

    def spend(self) -> bool:
        """True when a retry may be made now."""
        earned = self._ratio * (self.answered - self._reckoned)
        self._reckoned = self.answered
        self._saved = min(self._most, self._saved + earned)
        if self._saved < 1:
            return False
        self._saved -= 1
        return True
