"""The queue of a model that keeps state: each request waits in its sequence, behind those before it."""

from collections.abc import Iterator
from typing import NamedTuple

from services.batcher.queue import Queue
from services.batcher.request import LAUNCHED, Pending
from services.batcher.sequence_inputs import Row
from services.batcher.sequences import Sequence, Sequences


class Step(NamedTuple):
    """What a request says of its sequence."""

    sequence: int | str
    start: bool
    end: bool


class SequenceQueue(Queue):
    """Counts what waits; `table` knows the order."""

    __slots__ = ("_sequences", "_steps", "table")

    def __init__(self) -> None:
        super().__init__()
        self.table: Sequences[Pending] = Sequences(0)
        self._steps: dict[Pending, Step] = {}  # of requests that are being let in
        self._sequences: dict[Pending, Sequence[Pending]] = {}  # of all that wait or are with a worker

    def expect(self, pending: Pending, step: Step) -> None:
        """`pending` is about to be put."""
        self._steps.clear()  # whoever was refused after all
        self._steps[pending] = step

    def put(self, pending: Pending) -> None:
        """Add it at the end of its sequence."""
        pending.bucket.rows += pending.cost
        self.rows += pending.cost
        self.size += pending.size
        self.count += 1
        name, start, end = self._steps.pop(pending)
        table = self.table
        self._sequences[pending] = table.add(name, pending, pending.caller, pending.arrival_ns, start=start, end=end)

    def drop(self, pending: Pending) -> None:
        """It does not wait any more; its sequence is ended by who drops it."""
        self._uncount(pending)

    def launch(self, sequence: Sequence[Pending]) -> tuple[Pending, Row]:
        """The next request of a sequence that is ready goes to its worker."""
        pending, starts, ends = self.table.take(sequence)
        pending.state = LAUNCHED
        self._uncount(pending)
        return pending, Row(sequence.id, sequence.number, starts, ends)

    def sequence_of(self, pending: Pending) -> Sequence[Pending] | None:
        """The sequence of a request that leaves."""
        return self._sequences.pop(pending, None)

    @property
    def ready_rows(self) -> int:
        """Requests that may run; others wait for those before them, or for a place."""
        return sum([len(host.ready) for host in self.table.hosts.values()])

    def work_ns(self, most_rows: int) -> float:
        return sum(
            [
                sequence.waiting[0].bucket.service.predict_ns(most_rows) / most_rows
                for host in self.table.hosts.values()
                for sequence in host.ready
            ]
        )

    def rows_before(self, rank: int) -> float:  # noqa: ARG002 - all sequences are alike
        return self.ready_rows

    def __iter__(self) -> Iterator[Pending]:
        for sequence in self.table:
            yield from sequence.waiting
