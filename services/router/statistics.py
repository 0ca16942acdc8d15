"""What the fleet has counted, asked of its replicas when a caller asks: in rounds, of which one is under way."""

import asyncio
import math
from collections.abc import Callable, Sequence

from services.chassis.replicas import Replica
from services.router.ledger import Ledger
from turnout.v1 import link_pb2 as pb

_PATIENCE_S = 1.0  # with a replica that does not answer: its last word counts
_GAP_S = 0.05  # from one question to the next: replicas have other things to do


class Round:
    """One question to all replicas, for everybody who asked before it began."""

    def __init__(self) -> None:
        self.missing: set[Replica] = set()  # who have not answered yet
        self.over = asyncio.Event()
        self.number = 0
        self.timer: asyncio.TimerHandle | None = None


class Statistics:
    """Keeps the ledger current: by what replicas say of themselves, and by asking."""

    def __init__(self, replicas: Callable[[], Sequence[Replica]]) -> None:
        self.ledger = Ledger(lambda: {replica.name for replica in replicas() if replica.is_connected})
        self._replicas = replicas
        self._now: Round | None = None
        self._next: Round | None = None
        self._alarm: asyncio.TimerHandle | None = None  # until the next may begin
        self._began_s = -math.inf
        self._last = 0

    async def ask(self) -> None:
        """Return once the ledger holds what every live replica has counted until now."""
        if self._next is None:
            self._next = Round()
        mine = self._next
        self._go_on()
        await mine.over.wait()

    def received(self, replica: Replica, stats: Sequence[pb.Stats]) -> None:
        """A replica says what it has counted."""
        for said in stats:
            self.ledger.take(replica.name, said.versions)
            now = self._now
            if now is not None and said.answers == now.number:
                now.missing.discard(replica)
                self._end_if_all_are_here(now)

    def changed(self) -> None:
        """Replicas came or went: nobody waits for those that are gone."""
        if self._now is not None:
            self._now.missing = {replica for replica in self._now.missing if replica.is_connected}
            self._end_if_all_are_here(self._now)

    def _go_on(self) -> None:
        """Begin the next round, if somebody waits for it and it may begin."""
        if self._next is None or self._now is not None or self._alarm is not None:
            return
        loop = asyncio.get_running_loop()
        wait_s = self._began_s + _GAP_S - loop.time()
        if wait_s > 0:
            self._alarm = loop.call_later(wait_s, self._rung)
            return
        begun, self._next = self._next, None
        self._now = begun
        self._began_s = loop.time()
        self._last = begun.number = self._last + 1
        begun.missing = {replica for replica in self._replicas() if replica.is_connected and replica.tells_counts}
        begun.timer = loop.call_later(_PATIENCE_S, self._end, begun)
        for replica in begun.missing:
            replica.ask(begun.number)
        self._end_if_all_are_here(begun)

    def _rung(self) -> None:
        self._alarm = None
        self._go_on()

    def _end_if_all_are_here(self, now: Round) -> None:
        if not now.missing:
            self._end(now)

    def _end(self, now: Round) -> None:
        if now.timer is not None:
            now.timer.cancel()
        now.over.set()
        self._now = None
        self._go_on()
