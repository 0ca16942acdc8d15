"""One worker process as its batcher sees it: the link to it, and the batches on it."""

from collections.abc import Callable, Sized
from dataclasses import dataclass

from services.batcher.assemble import Joined, encoded, joined, wanted
from services.batcher.policy import FOREVER_NS
from services.batcher.request import Pending
from services.batcher.search import Search
from services.batcher.service_time import ServiceTime
from services.chassis.arena import Lender
from services.chassis.link import Link
from services.core.batching_spec import Padding, SequenceBatching, states_and_controls
from services.core.names import ModelVersion
from services.core.protowire import bytes_field
from services.core.signature import Signature

_MOST_LEAD_NS = 2_000_000
_TIMER_NS = 500_000  # alarms ring so much later than asked
_GAP_NS = 300_000  # between two batches; in less a worker only reads one and answers the other
_WAY_SHARE = 0.2  # of the newest measurement


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
        self.expected_ns = 0  # that it should take
        self.search = search  # the one that this launch serves
        self.suspect = suspect  # the members were with a worker that died

    @property
    def first(self) -> Pending:
        """A member with a request."""
        return self.members[0]

    @property
    def service(self) -> ServiceTime:
        """How long such batches take."""
        return self.first.bucket.service

    @property
    def oldest_ns(self) -> int:
        """When the member came that waited longest."""
        return min([member.arrival_ns for member in self.members])

    def left_us(self, now_ns: int) -> int:
        """Until the last member's deadline: nobody waits for it after that. 0 = one of them has none."""
        last_ns = max([member.deadline_ns for member in self.members])
        return 0 if last_ns >= FOREVER_NS else max(1, (last_ns - now_ns) // 1000)

    def inputs(self, signature: Signature) -> list[Joined]:
        """What the model takes, as its worker says it: `signature` is the usual one."""
        asked = self.first.bucket.intake
        return joined(asked.signature if asked.name else signature, self.rows, self.members)

    def outputs(self) -> bytes:
        """Which outputs its members are to get, encoded; empty = the usual ones."""
        intake = self.first.bucket.intake
        return b"" if intake.one_output else wanted(self.members, intake.signature)

    def extra(self) -> bytes:
        """Further fields of the request to the worker, encoded."""
        return bytes_field(18, self.first.bucket.intake.name.encode())


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """What the runtime says of an instance."""

    id: str
    name: ModelVersion
    digest: str
    slots: int
    signature: Signature  # the artifact's
    pad_to: Padding | None = None  # as it was proven to change no answer
    sequences: SequenceBatching | None = None  # with the states and controls that it was started for
    batching: bytes = b""  # as a configuration beside the artifact has it: JSON, for what the spec leaves open

    def runs_like(self, other: "WorkerFacts") -> bool:
        """Whether both run the same batches."""
        mine, theirs = states_and_controls(self.sequences), states_and_controls(other.sequences)
        return self.digest == other.digest and mine == theirs


class Worker:
    """An instance whose link is open."""

    __slots__ = (
        "_clock",
        "_lender",
        "_link",
        "_next",
        "_way_ns",
        "accepting",
        "busy_until_ns",
        "facts",
        "freed_ns",
        "in_flight",
        "is_replaced",
        "over",
        "seated",
    )

    def __init__(self, facts: WorkerFacts, link: Link, clock: Callable[[], int], lender: Lender | None = None) -> None:
        self.facts = facts
        self.accepting = True
        self.is_replaced = False  # it would be accepting, if its artifact were the one that is served
        self.in_flight: dict[int, Batch] = {}
        self.busy_until_ns = 0  # when it should have done all that is on it
        self.freed_ns = 0  # its last reply
        self.seated: Sized = ()  # sequences that have their state there
        self.over: list[int] = []  # numbers of sequences whose state it may forget, and was not told of
        self._link = link
        self._lender = lender
        self._clock = clock
        self._next = 1
        self._way_ns: float = _MOST_LEAD_NS - _TIMER_NS  # to the worker and back

    @property
    def free_slots(self) -> int:
        return self.facts.slots - len(self.in_flight) if self.accepting else 0

    def follow(self, served: WorkerFacts) -> None:
        """What runs like a worker with the facts `served` is served now."""
        if not self.facts.runs_like(served):
            self.is_replaced |= self.accepting
            self.accepting = False
        elif self.is_replaced:
            self.is_replaced, self.accepting = False, True

    @property
    def is_done(self) -> bool:
        """Whether nothing is under way there."""
        return not (self.in_flight or self.seated)

    @property
    def lead_ns(self) -> int:
        """How long before it is free its next batch must be sent to be there in time, and no earlier."""
        return min(_MOST_LEAD_NS, int(self._way_ns) + _TIMER_NS)

    def ran(self, batch: Batch, took_ns: int, compute_ns: int, now_ns: int) -> None:
        """Learn from a batch that is back, had the worker to itself for `took_ns`, and ran there for `compute_ns`.

        What its way took is known if the worker waited for it; if it waited for the worker, it took at most as long.
        """
        if not compute_ns:
            return
        way_ns = max(0, now_ns - batch.sent_ns - compute_ns)
        if way_ns < self._way_ns or took_ns - compute_ns > _GAP_NS:
            self._way_ns += (way_ns - self._way_ns) * _WAY_SHARE

    def launch(self, batch: Batch) -> None:
        """Send `batch`."""
        facts = self.facts
        number, self._next = self._next, self._next + 1
        self.in_flight[number] = batch
        inputs = batch.inputs(facts.signature)
        left_us, extra = batch.left_us(self._clock()), batch.outputs() + batch.extra()
        parts = encoded(number, facts.name, batch.rows, batch.members, inputs, left_us, extra, self._lender)
        self._link.send_encoded(*parts)
        batch.sent_ns = self._clock()
        self.busy_until_ns = max(self.busy_until_ns, batch.sent_ns) + batch.expected_ns

    def cancel(self, number: int) -> None:
        """Nobody waits for the answers to a streamed request any more; its final reply says that it has ended."""
        self._link.frame_for(16).cancels.append(number)

    def credit(self, number: int, given: int) -> None:
        """There is room for more answers to a streamed request."""
        self._link.frame_for(24).credits.add(id=number, bytes=given)

    def give_up(self, batch: Batch) -> None:
        """`batch` could not be sent."""
        self.in_flight = {number: other for number, other in self.in_flight.items() if other is not batch}

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
