"""What the fleet has counted, asked of its replicas when a caller asks: in rounds, of which one is under way."""

import asyncio
from collections.abc import Callable, Sequence

from services.chassis.replicas import Replica
from services.router.ledger import Ledger
from turnout.v1 import link_pb2 as pb

_PATIENCE_S = 1.0  # with a replica that does not answer: its last word counts


class Round:
    """One question to all replicas, for everybody who asked before it began."""

    def __init__(self) -> None:
        self.models: set[str] = set()
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
        self._last = 0

    async def ask(self, model: str) -> None:
        """Return once the ledger holds what every live replica has counted of `model` (empty = of all) until now."""
        if self._next is None:
            self._next = Round()
        mine = self._next
        mine.models.add(model)
        if self._now is None:
            self._begin(mine)
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

    def _begin(self, begun: Round) -> None:
        self._now, self._next = begun, None
        self._last = begun.number = self._last + 1
        begun.missing = {replica for replica in self._replicas() if replica.is_connected and replica.tells_counts}
        begun.timer = asyncio.get_running_loop().call_later(_PATIENCE_S, self._end, begun)
        model = next(iter(begun.models)) if len(begun.models) == 1 else ""
        for replica in begun.missing:
            replica.ask(begun.number, model)
        self._end_if_all_are_here(begun)

    def _end_if_all_are_here(self, now: Round) -> None:
        if not now.missing:
            self._end(now)

    def _end(self, now: Round) -> None:
        if now.timer is not None:
            now.timer.cancel()
        now.over.set()
        self._now = None
        if self._next is not None:
            self._begin(self._next)
