"""How long to wait before the next try."""

import random
import time


class Backoff:
    """Doubling from `first_s` to `longest_s`, each 50 to 100% of that, so that clients do not come back in step."""

    def __init__(self, first_s: float = 0.1, longest_s: float = 2.0) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._next_s = first_s
        self._began = time.monotonic()

    def begin(self) -> None:
        """A try begins now; one that lasts longer than the longest wait counts as a success."""
        self._began = time.monotonic()

    def next_s(self) -> float:
        """Seconds to wait after a try that failed."""
        if time.monotonic() - self._began > self._longest_s:
            self._next_s = self._first_s
        wait_s, self._next_s = self._next_s, min(2 * self._next_s, self._longest_s)
        return wait_s * random.uniform(0.5, 1.0)  # noqa: S311 - no secret

    def reset(self) -> None:
        self._next_s = self._first_s
