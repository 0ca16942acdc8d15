"""What the batchers of one pod share: a device that runs so many batches at once (docs/adr/0012).

Start-time fair queueing: each member has a clock that its batches move on by the time they take, divided by its
weight; whose clock is behind is next. A member that was idle starts from the clock of the last one served, so silence
earns no credit. Source: Goyal, Vin, Cheng, "Start-time fair queueing" (1996).
"""

from typing import Protocol

_PATIENCE_NS = 1_000_000_000
_OVERDUE = 10  # times what it should take


class Run(Protocol):
    """A batch, as its device sees it."""

    expected_ns: int


class Member(Protocol):
    """A batcher, as its device sees it."""

    used: float  # nanoseconds of compute, by weight: its clock

    @property
    def waiting(self) -> tuple[bool, bool]:
        """Whether primary requests, and whether shadow ones, wait for a batch."""

    def launch_one(self, now_ns: int, *, shadows: bool) -> bool:
        """Launch the next batch, if one may leave now."""

    def wake_at(self, at_ns: int, now_ns: int) -> None:
        """Pump again at `at_ns`, if nothing happens before."""


class Device:
    """At most `slots` batches at once, shared between its members by the compute time they use."""

    __slots__ = ("_clock", "_running", "_waiting", "slots")

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._running: dict[Run, int] = {}  # and when each is overdue
        self._clock = 0.0
        self._waiting: dict[Member, None] = {}  # members with something to run

    @property
    def in_flight(self) -> int:
        """Batches that hold a slot."""
        return len(self._running)

    def launched(self, batch: Run, now_ns: int) -> None:
        """A batch holds a slot from now on, until it has landed or is overdue."""
        self._running[batch] = now_ns + max(_PATIENCE_NS, _OVERDUE * batch.expected_ns)

    def landed(self, batch: Run) -> None:
        self._running.pop(batch, None)

    def leave(self, member: Member) -> None:
        """`member` has nothing to run, and never will."""
        self._waiting.pop(member, None)

    def pump(self, member: Member, now_ns: int) -> None:
        """Launch what may leave now, as far as there is room, after something changed for `member`.

        First whose clock is behind; shadow requests when no primary ones wait anywhere.
        """
        if member not in self._waiting:
            member.used = max(member.used, self._clock)
            self._waiting[member] = None
        if len(self._running) >= self.slots and not self._has_overdue(member, now_ns):
            return
        if len(self._waiting) == 1:
            self._serve_only(member, now_ns)
            return
        primary, shadow = [], []
        for number, each in enumerate(list(self._waiting)):
            has_primary, has_shadow = each.waiting
            if has_primary:
                primary.append((each.used, number, each))
            elif has_shadow:
                shadow.append((each.used, number, each))
            else:
                del self._waiting[each]
        if primary:
            self._serve(primary, now_ns, shadows=False)
            if any(each.waiting[0] for _, _, each in primary):
                return
            shadow += [entry for entry in primary if entry[2].waiting[1]]
        if shadow:
            self._serve(shadow, now_ns, shadows=True)

    def _has_overdue(self, member: Member, now_ns: int) -> bool:
        """Let go of the slots of batches that are overdue, or have `member` look again when one is.

        A worker that hangs must not stop other models until somebody ends it.
        """
        overdue = [batch for batch, due_ns in self._running.items() if due_ns <= now_ns]
        for batch in overdue:
            del self._running[batch]
        if not overdue:
            member.wake_at(min(self._running.values()), now_ns)
        return bool(overdue)

    def _serve_only(self, member: Member, now_ns: int) -> None:
        """The common case: nobody else has anything to run."""
        while len(self._running) < self.slots:
            has_primary, has_shadow = member.waiting
            if not has_primary and not has_shadow:
                del self._waiting[member]
                return
            used = member.used
            if not member.launch_one(now_ns, shadows=not has_primary):
                return
            self._clock = max(self._clock, used)

    def _serve(self, queue: list[tuple[float, int, Member]], now_ns: int, *, shadows: bool) -> None:
        """Go round as long as somebody launches and there is room."""
        queue = sorted(queue)
        while queue and len(self._running) < self.slots:
            used, number, member = queue[0]
            if not member.launch_one(now_ns, shadows=shadows):
                del queue[0]
                continue
            self._clock = max(self._clock, used)
            queue[0] = (member.used, number, member)
            if len(queue) > 1:
                queue.sort()
