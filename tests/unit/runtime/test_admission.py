"""Who may load, by what is free and how many load already."""

import asyncio
from pathlib import Path

from services.runtime.admission import Admission, Ticket
from services.runtime.footprints import Footprints, Need

MIB = 1 << 20


class Pod:
    """A host with some memory; workers use what they were admitted for once they are loaded."""

    def __init__(self, free_mib: int, *, at_once: int = 10, budget_mib: int | None = None) -> None:
        self.free = free_mib * MIB
        self.said: dict[Ticket, list[str]] = {}
        budget = budget_mib * MIB if budget_mib is not None else None
        self.admission = Admission(Footprints(Path("none")), lambda: self.free, at_once=at_once, budget=budget)

    def ask(self, mib: int, *, is_guess: bool = False, is_restart: bool = False) -> Ticket:
        said: list[str] = []
        ticket = self.admission.ask(Need(mib * MIB, is_guess), said.append, is_restart=is_restart)
        self.said[ticket] = said
        return ticket

    def take(self, ticket: Ticket, mib: int) -> None:
        """A worker grows by so much, as it and its host see it."""
        before = ticket.used()
        ticket.used = lambda: before + mib * MIB
        self.free -= mib * MIB


async def test_loads_in_progress_claim_what_they_will_need() -> None:
    pod = Pod(100)

    first, second, third = pod.ask(60), pod.ask(50), pod.ask(40)

    assert (first.granted.done(), second.granted.done(), third.granted.done()) == (True, False, True)
    assert pod.said[second] == ["waits for 50 MiB of memory: 40 MiB are free"]
    assert second.is_short


async def test_what_a_load_has_taken_already_is_not_claimed_twice() -> None:
    pod = Pod(100)
    first = pod.ask(60)
    pod.take(first, 60)

    assert pod.ask(40).granted.done()


async def test_who_waits_starts_when_a_worker_goes_or_needed_less() -> None:
    pod = Pod(100)
    first, second = pod.ask(60), pod.ask(50)
    pod.take(first, 30)
    first.loaded()
    third = pod.ask(60)
    pod.free += 30 * MIB
    first.used = lambda: 0
    first.leave()

    assert second.granted.done()
    assert not third.granted.done()


async def test_a_budget_bounds_all_workers_together() -> None:
    pod = Pod(1000, budget_mib=100)
    first = pod.ask(60)
    pod.take(first, 55)
    first.loaded()
    second = pod.ask(50)

    assert not second.granted.done()
    assert pod.said[second] == ["waits for 50 MiB of memory: 45 MiB are free"]
    assert pod.ask(45).granted.done()


async def test_so_many_load_at_once_and_a_restart_does_not_wait_for_them() -> None:
    pod = Pod(1000, at_once=2)
    first, second, third = pod.ask(1), pod.ask(1), pod.ask(1)
    restart = pod.ask(1, is_restart=True)
    waited = not third.granted.done() and not third.is_short
    first.loaded()
    restart.leave()
    second.leave()

    assert waited
    assert pod.said[third] == ["waits for 2 other loads"]
    assert restart.granted.done()
    assert third.granted.done()


async def test_a_guess_is_told_as_one() -> None:
    pod = Pod(10)

    ticket = pod.ask(20, is_guess=True)

    assert pod.said[ticket] == [
        "waits for 20 MiB of memory (a guess: limits.max_memory_bytes says it better): 10 MiB are free"
    ]


async def test_memory_that_comes_free_elsewhere_is_noticed() -> None:
    pod = Pod(10)
    ticket = pod.ask(20)
    pod.free = 30 * MIB

    async with asyncio.timeout(20):
        await ticket.granted


async def test_who_left_is_not_started() -> None:
    pod = Pod(10)
    ticket = pod.ask(20)
    ticket.leave()
    pod.free = 30 * MIB

    assert pod.ask(30).granted.done()
    assert ticket.granted.cancelled()
