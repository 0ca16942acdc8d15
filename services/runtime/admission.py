"""Who may load now: loads wait in a queue until what they will need is free, and so many others are done."""

import asyncio
from collections.abc import Callable

from services.runtime.footprints import Footprints, Need
from services.runtime.memory import in_words

_LOOK_S = 0.5  # between two looks at the host's memory while somebody waits
_SAY_S = 5.0  # between two changes of numbers in what is said


class Ticket:
    """One life of a worker: waits, loads, runs. `leave` must follow."""

    def __init__(self, queue: "Admission", need: Need, say: Callable[[str], None], *, is_restart: bool) -> None:
        self.need = need
        self.is_restart = is_restart  # it was ready: it does not wait for others' first loads
        self.granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.used: Callable[[], int] = lambda: 0  # bytes, as measured now
        self.is_short = False  # it waits for memory
        self._queue = queue
        self._say = say
        self._said_at_s = -_SAY_S

    def loaded(self) -> None:
        """It is ready, and needs no more than it has."""
        self._queue.loaded(self)

    def leave(self) -> None:
        """Its process is gone, or it waits no longer."""
        self.granted.cancel()
        self._queue.leave(self)

    def wait_for(self, reason: str, now_s: float, *, is_short: bool) -> None:
        """Say why it waits, at most every few seconds where it goes on for the same reason."""
        if is_short == self.is_short and now_s < self._said_at_s + _SAY_S:
            return
        self.is_short, self._said_at_s = is_short, now_s
        self._say(reason)


class Admission:
    """First come, first served; but who does not fit lets those pass who do."""

    def __init__(self, footprints: Footprints, free: Callable[[], int], *, at_once: int, budget: int | None) -> None:
        """`free` gives the host's bytes; `budget` bounds all workers together."""
        self.footprints = footprints
        self._free = free
        self._at_once = at_once
        self._budget = budget
        self._waiting: list[Ticket] = []
        self._loading: list[Ticket] = []
        self._running: list[Ticket] = []
        self._look: asyncio.TimerHandle | None = None

    @property
    def is_loading(self) -> bool:
        return bool(self._loading)

    def ask(self, need: Need, say: Callable[[str], None], *, is_restart: bool) -> Ticket:
        """Get in line; `granted` is done once it may start. `say` is told why it waits."""
        ticket = Ticket(self, need, say, is_restart=is_restart)
        self._waiting.append(ticket)
        self._serve()
        return ticket

    def loaded(self, ticket: Ticket) -> None:
        if ticket in self._loading:
            self._loading.remove(ticket)
            self._running.append(ticket)
            self._serve()

    def leave(self, ticket: Ticket) -> None:
        for where in (self._waiting, self._loading, self._running):
            if ticket in where:
                where.remove(ticket)
        self._serve()

    def _serve(self) -> None:
        """Let in whoever fits; look again soon if somebody waits."""
        if self._waiting:
            self._let_in()
        if self._look is not None:
            self._look.cancel()
            self._look = None
        if self._waiting:
            self._look = asyncio.get_running_loop().call_later(_LOOK_S, self._serve)

    def _let_in(self) -> None:
        free = self._unclaimed()
        now_s = asyncio.get_running_loop().time()
        for ticket in list(self._waiting):
            if len(self._loading) >= self._at_once and not ticket.is_restart:
                ticket.wait_for(f"waits for {len(self._loading)} other loads", now_s, is_short=False)
            elif ticket.need.size > free:
                ticket.wait_for(_shortage(ticket.need, free), now_s, is_short=True)
            else:
                free -= ticket.need.size
                self._waiting.remove(ticket)
                self._loading.append(ticket)
                ticket.is_short = False
                ticket.granted.set_result(None)

    def _unclaimed(self) -> int:
        """Bytes that are free and that no load in progress will take."""
        free = self._free()
        loading = [(ticket.need.size, ticket.used()) for ticket in self._loading]
        if self._budget is not None:
            used = sum(ticket.used() for ticket in self._running) + sum(used for _, used in loading)
            free = min(free, self._budget - used)
        return free - sum(max(0, need - used) for need, used in loading)


def _shortage(need: Need, free: int) -> str:
    how = " (a guess: limits.max_memory_bytes says it better)" if need.is_guess else ""
    return f"waits for {in_words(need.size)} of memory{how}: {in_words(free)} are free"
