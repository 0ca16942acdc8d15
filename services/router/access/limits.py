"""How much a caller may: token buckets that share a fleet's limit among its routers; time is handed in."""

from math import ceil

_PER_S = 1_000_000_000


class Bucket:
    """A token bucket, kept as the one moment when it will be full again (generic cell rate algorithm).

    What is taken may be more than it holds, if it holds one token: then it is in debt, and gives nothing until that is
    paid. So requests of more rows than the burst pass, as often as the rate allows.
    """

    __slots__ = ("full_ns", "room_ns", "unit_ns")

    def __init__(self) -> None:
        self.unit_ns = 0.0  # until one token is there again; 0 = no limit
        self.room_ns = 0.0  # it may be so far from full and still have a token
        self.full_ns = 0.0

    def follow(self, per_s: float | None, burst_s: float) -> None:
        """Take another rate from now on; what was taken stays taken."""
        self.unit_ns = _PER_S / per_s if per_s else 0.0
        self.room_ns = max(0.0, burst_s * _PER_S - self.unit_ns)

    def take(self, count: int, now_ns: int) -> float:
        """Take `count` tokens; gives 0, or the nanoseconds until there is one when there is none."""
        unit_ns = self.unit_ns
        if not unit_ns:
            return 0.0
        owed_ns = self.full_ns - now_ns
        owed_ns = max(owed_ns, 0.0)
        if owed_ns > self.room_ns:
            return owed_ns - self.room_ns
        self.full_ns = now_ns + owed_ns + count * unit_ns
        return 0.0


def share(limit: float | None, routers: int) -> float | None:
    """One router's part of a rate."""
    return None if limit is None else limit / max(1, routers)


def share_of_places(limit: int | None, routers: int) -> int | None:
    """One router's part of what may be in flight; at least 1, so that nobody is shut out."""
    return None if limit is None else max(1, limit // max(1, routers))


def seconds(wait_ns: float) -> float:
    """A retry hint: whole milliseconds, none too few."""
    return ceil(wait_ns / 1e6) / 1000
