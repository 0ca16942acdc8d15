"""What the batchers of one pod share: a device that runs so many batches at once (docs/adr/0012).

Start-time fair queueing: each member has a clock that its batches move on by the time they take, divided by its
weight; whose clock is behind is next. A member that was idle starts from the clock of the last one served, so silence
earns no credit. Source: Goyal, Vin, Cheng, "Start-time fair queueing" (1996).
"""

from typing import Protocol


class Member(Protocol):
    """A batcher, as its device sees it."""

    used: float  # nanoseconds of compute, by weight: its clock

    @property
    def waiting(self) -> tuple[bool, bool]:
        """Whether primary requests, and whether shadow ones, wait for a batch."""

    def launch_one(self, now_ns: int, *, shadows: bool) -> bool:
        """Launch the next batch, if one may leave now."""


class Device:
    """At most `slots` batches at once, shared between its members by the compute time they use."""

    __slots__ = ("_clock", "_members", "in_flight", "slots")

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.in_flight = 0
        self._clock = 0.0
        self._members: list[Member] = []

    def join(self, member: Member) -> None:
        member.used = self._clock
        self._members.append(member)

    def leave(self, member: Member) -> None:
        self._members.remove(member)

    def woke(self, member: Member) -> None:
        """`member` had nothing to run and has now."""
        member.used = max(member.used, self._clock)

    def pump(self, now_ns: int) -> None:
        """Launch what may leave now, as far as there is room: first whose clock is behind, shadow requests last."""
        if self.in_flight >= self.slots:
            return
        waiting = [(member.used, number, *member.waiting) for number, member in enumerate(self._members)]
        primary = sorted([(used, number) for used, number, has_primary, _ in waiting if has_primary])
        if self._serve(primary, now_ns, shadows=False) or self.in_flight >= self.slots:
            return
        if not any(member.waiting[0] for member in self._members):
            self._serve(sorted([(used, n) for used, n, _, has_shadow in waiting if has_shadow]), now_ns, shadows=True)

    def _serve(self, queue: list[tuple[float, int]], now_ns: int, *, shadows: bool) -> bool:
        """Go round as long as somebody launches; whether the device is full."""
        while queue:
            used, number = queue[0]
            member = self._members[number]
            if self.in_flight >= self.slots:
                return True
            if not member.launch_one(now_ns, shadows=shadows):
                del queue[0]
                continue
            self._clock = max(self._clock, used)
            queue[0] = (member.used, number)
            if len(queue) > 1:
                queue.sort()
        return False
