"""Ends flights that are past their deadline although their replica should have said so."""

import asyncio
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from time import perf_counter_ns

from services.router.flight import Flight

_EVERY_S = 0.05
_GRACE_NS = 20_000_000  # the batcher expires first, on time; this is for one that hangs


class Sweep:
    """Looks at the flights now and then, while there are any."""

    def __init__(self, late: Callable[[Flight], None]) -> None:
        self._late = late
        self.is_due = False

    def start(self, flights: AbstractSet[Flight]) -> None:
        """Look again soon, unless that is due anyway."""
        self.is_due = True
        asyncio.get_running_loop().call_later(_EVERY_S, self._expire, flights)

    def _expire(self, flights: AbstractSet[Flight]) -> None:
        before = perf_counter_ns() - _GRACE_NS
        self.is_due = False
        if flights:  # first, so that one flight's fault is not the end of it
            self.start(flights)
        for flight in [flight for flight in flights if 0 < flight.deadline_ns < before]:
            self._late(flight)
