"""Log lines that must not fill the log."""

_EVERY_NS = 1_000_000_000


class Throttle:
    """Lets one of what happens through a second, and counts the others."""

    __slots__ = ("_held", "_last_ns")

    def __init__(self) -> None:
        self._held = 0
        self._last_ns = -_EVERY_NS

    def count(self, now_ns: int) -> int:
        """How many happened since one was let through, this one included; 0 = hold this one back."""
        self._held += 1
        if now_ns < self._last_ns + _EVERY_NS:
            return 0
        count, self._held, self._last_ns = self._held, 0, now_ns
        return count
