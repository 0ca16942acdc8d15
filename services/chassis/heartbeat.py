"""Whether the event loop still turns, and how late it is."""

import asyncio
import time

BEAT_S = 0.5
DEAD_AFTER_S = 5.0


class Heartbeat:
    """Beats on the loop every `beat_s`; read from any thread."""

    def __init__(self, beat_s: float = BEAT_S, dead_after_s: float = DEAD_AFTER_S) -> None:
        self._beat_s = beat_s
        self._dead_after_s = dead_after_s
        self._at = time.monotonic()
        self.lag_s = 0.0  # by which the last beat was late

    @property
    def age_s(self) -> float:
        return time.monotonic() - self._at

    @property
    def is_alive(self) -> bool:
        return self.age_s < self._dead_after_s

    def lag_now_s(self) -> float:
        """How late the loop is: the last beat's lateness, or more when the next one is overdue."""
        return max(self.lag_s, self.age_s - self._beat_s)

    async def run(self) -> None:
        """Beat for ever."""
        while True:
            self._at = time.monotonic()
            await asyncio.sleep(self._beat_s)
            self.lag_s = max(0.0, self.age_s - self._beat_s)
