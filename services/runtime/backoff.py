"""When a worker that failed is started again, and when it is given up; pure."""

import random

FIRST_S, LONGEST_S = 0.2, 10.0
HEALTHY_S = 60.0


class Restarts:
    """Counts failures in a row; a healthy minute forgets them."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.in_a_row = 0
        self.total = 0

    def delay_s(self, limit: int | None, ready_for_s: float = 0) -> float | None:
        """Seconds until the start after this failure; None once there were more than `limit` (if any) in a row."""
        if ready_for_s >= HEALTHY_S:
            self.in_a_row = 0
        self.in_a_row += 1
        if limit is not None and self.in_a_row > limit:
            return None
        self.total += 1
        longest: float = min(LONGEST_S, FIRST_S * 2.0 ** min(self.in_a_row - 1, 30))
        return max(FIRST_S, longest * self._rng.uniform(0.5, 1.0))
