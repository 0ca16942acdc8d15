"""One worker process as its batcher sees it: the link to it, and the batches on it."""

import struct
from collections.abc import Callable
from dataclasses import dataclass

from services.batcher.request import Pending
from services.batcher.search import Search
from services.chassis.link import Link
from services.core.known_headers import Data
from services.core.names import ModelVersion
from services.core.protowire import bytes_field, packed_field, tag, varint, varint_field
from services.core.signature import Signature

_ID = struct.Struct("<BQ")  # tag and fixed64
_JOINED_BYTES = 64 << 10  # of an input that is joined here; a larger one is joined on its way into the socket


class Batch:
    """Requests that run together."""

    __slots__ = ("cost", "members", "picked_ns", "rows", "search", "sent_ns", "suspect")

    def __init__(
        self, members: list[Pending], picked_ns: int, *, search: Search[Pending] | None = None, suspect: bool = False
    ) -> None:
        self.members = members
        self.rows = sum([member.rows for member in members])
        self.cost = self.rows or 1
        self.picked_ns = picked_ns
        self.sent_ns = picked_ns
        self.search = search  # the one that this launch serves
        self.suspect = suspect  # the members were with a worker that died


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

    def launch(self, batch: Batch, expected_ns: float) -> None:
        """Send `batch`; it should take `expected_ns` (0 = not known)."""
        facts = self.facts
        number, self._next = self._next, self._next + 1
        self.in_flight[number] = batch
        self._link.send_encoded(*encoded(number, facts, batch))
        batch.sent_ns = self._clock()
        self.busy_until_ns = max(self.busy_until_ns, batch.sent_ns) + int(expected_ns)

    def take_back(self, number: int, now_ns: int) -> tuple[Batch, int] | None:
        """The batch that a reply is for and how long it had the worker to itself; None for an unknown number."""
        batch = self.in_flight.pop(number, None)
        if batch is None:
            return None
        took_ns = now_ns - max(batch.sent_ns, self.freed_ns)
        self.freed_ns = now_ns
        return batch, took_ns

    def recount(self, expected_ns: Callable[[int], float], now_ns: int) -> None:
        """Expect anew when it will have done what is on it."""
        self.busy_until_ns = now_ns
        if self.in_flight:
            self.busy_until_ns += int(sum([expected_ns(batch.cost) for batch in self.in_flight.values()]))


def encoded(number: int, facts: WorkerFacts, batch: Batch) -> list[Data]:
    """`batch` as Frame.requests (see link.proto), in parts: members' bytes are copied but once, into the frame."""
    members, name = batch.members, facts.name
    parts: list[Data] = [
        _ID.pack(0x09, number)
        + bytes_field(2, name.model.encode())
        + bytes_field(3, name.version.encode())
        + varint_field(4, batch.rows)
    ]
    if len(members) == 1:
        parts += [bytes_field(7, output.encode()) for output in members[0].wanted]
        parts.append(bytes_field(12, members[0].request_id.encode()))
    rows = [batch.rows] if facts.signature.batches else []
    for position, spec in enumerate(facts.signature.inputs):
        data: list[Data] = [member.inputs[position] for member in members]
        size = sum(map(len, data))
        if size <= _JOINED_BYTES:
            data = [b"".join(data)]
        tensor = bytes_field(1, spec.name.encode()) + bytes_field(2, spec.datatype.encode())
        tensor += packed_field(3, [*rows, *members[0].bucket.inner[position]]) + tag(4, 2) + varint(size)
        parts.append(tag(6, 2) + varint(len(tensor) + size) + tensor)
        parts += data
    return [tag(2, 2) + varint(sum(map(len, parts))), *parts]
