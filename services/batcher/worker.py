"""One worker process as its batcher sees it: the link to it, and the batches on it."""

from collections.abc import Callable
from dataclasses import dataclass

from services.batcher.assemble import encoded
from services.batcher.request import Pending
from services.batcher.search import Search
from services.batcher.service_time import ServiceTime
from services.chassis.link import Link
from services.core.names import ModelVersion
from services.core.signature import Signature


class Batch:
    """Requests that run together."""

    __slots__ = ("cost", "expected_ns", "members", "picked_ns", "rows", "search", "sent_ns", "suspect")

    def __init__(
        self, members: list[Pending], picked_ns: int, *, search: Search[Pending] | None = None, suspect: bool = False
    ) -> None:
        self.members = members
        self.rows = sum([member.rows for member in members])
        self.cost = self.rows or 1
        self.picked_ns = picked_ns
        self.sent_ns = picked_ns
        self.expected_ns = 0  # that it should take; 0 = not known
        self.search = search  # the one that this launch serves
        self.suspect = suspect  # the members were with a worker that died

    @property
    def service(self) -> ServiceTime:
        """How long such batches take."""
        return self.members[0].bucket.service

    @property
    def oldest_ns(self) -> int:
        """When the member came that waited longest."""
        return min([member.arrival_ns for member in self.members])


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """What the runtime says of an instance."""

    id: str
    name: ModelVersion
    digest: str
    slots: int
    signature: Signature


class Worker:
    """An instance whose link is open."""

    __slots__ = ("_clock", "_link", "_next", "accepting", "busy_until_ns", "facts", "freed_ns", "in_flight")

    def __init__(self, facts: WorkerFacts, link: Link, clock: Callable[[], int]) -> None:
        self.facts = facts
        self.accepting = True
        self.in_flight: dict[int, Batch] = {}
        self.busy_until_ns = 0  # when it should have done all that is on it
        self.freed_ns = 0  # its last reply
        self._link = link
        self._clock = clock
        self._next = 1

    @property
    def free_slots(self) -> int:
        return self.facts.slots - len(self.in_flight) if self.accepting else 0

    def launch(self, batch: Batch) -> None:
        """Send `batch`."""
        facts = self.facts
        number, self._next = self._next, self._next + 1
        self.in_flight[number] = batch
        self._link.send_encoded(*encoded(number, facts.name, facts.signature, batch.rows, batch.members))
        batch.sent_ns = self._clock()
        self.busy_until_ns = max(self.busy_until_ns, batch.sent_ns) + batch.expected_ns

    def take_back(self, number: int, now_ns: int) -> tuple[Batch, int] | None:
        """The batch that a reply is for and how long it had the worker to itself; None for an unknown number."""
        batch = self.in_flight.pop(number, None)
        if batch is None:
            return None
        took_ns = now_ns - max(batch.sent_ns, self.freed_ns)
        self.freed_ns = now_ns
        return batch, took_ns

    def recount(self, now_ns: int) -> None:
        """Expect anew when it will have done what is on it."""
        self.busy_until_ns = now_ns
        if self.in_flight:
            self.busy_until_ns += int(sum([batch.service.predict_ns(batch.cost) for batch in self.in_flight.values()]))
