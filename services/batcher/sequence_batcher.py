"""The batcher of a model that keeps state from request to request (docs/adr/0014)."""

from collections.abc import Callable, Sequence
from typing import cast

from services.batcher.alarm import CallLater
from services.batcher.assemble import Joined
from services.batcher.batcher import Batcher, Parts
from services.batcher.buckets import Bucket
from services.batcher.device import Device
from services.batcher.intake import Intake
from services.batcher.launcher import Launcher
from services.batcher.policy import BatchPolicy
from services.batcher.recovery import Recovery
from services.batcher.request import DONE, Caller, Pending
from services.batcher.search import Failure
from services.batcher.sequence_inputs import Controls, Row
from services.batcher.sequence_lobby import SequenceLobby
from services.batcher.sequence_policy import SequencePolicy, departure
from services.batcher.sequence_queue import SequenceQueue
from services.batcher.sequences import FAILED, WORKER, Host
from services.batcher.sequences import Sequence as Steps
from services.batcher.worker import Batch, Worker
from services.core.batching_spec import Padding
from services.core.errors import INTERNAL, UNAVAILABLE
from services.core.names import ModelVersion
from services.core.protowire import packed_field
from services.core.signature import Signature
from turnout.v1 import link_pb2 as pb

_ENTRIES, _OVER = 16, 17  # Request.sequence_rows, Request.sequences_over


class SequenceBatch(Batch):
    """At most one request of each of some sequences of one worker; rows of a direct batch may be empty."""

    __slots__ = ("_controls", "_over", "_rows", "sequences")

    def __init__(
        self,
        members: Sequence[Pending],
        rows: Sequence[Row | None],
        over: Sequence[int],
        controls: Controls,
        now_ns: int,
    ) -> None:
        super().__init__(list(members), now_ns)
        self.sequences: list[tuple[Pending, Steps[Pending]]] = []
        self._rows = rows
        self._over = over
        self._controls = controls

    @property
    def first(self) -> Pending:
        return next(member for member, row in zip(self.members, self._rows, strict=True) if row is not None)

    @property
    def oldest_ns(self) -> int:
        return min([each.arrival_ns for each, row in zip(self.members, self._rows, strict=True) if row is not None])

    def inputs(self, signature: Signature) -> list[Joined]:  # noqa: ARG002 - the controls' own
        return self._controls.joined(self.members, self._rows)

    def extra(self) -> bytes:
        entries = [0 if row is None else row.entry for row in self._rows]
        return packed_field(_ENTRIES, entries) + packed_field(_OVER, list(self._over))


class SequenceLauncher(Launcher):
    """Gives the next requests of sequences to the workers that hold these."""

    queue: SequenceQueue
    policy: SequencePolicy
    controls: Controls
    clock: Callable[[], int]

    @property
    def waiting(self) -> tuple[bool, bool]:
        return bool(self.queue.ready_rows), False

    def launch_one(self, now_ns: int, *, shadows: bool) -> bool:
        """Launch the next batch, if one may leave now."""
        if shadows:
            return False
        for worker in sorted(self._workers, key=lambda each: len(each.in_flight)):
            host = self.queue.table.hosts.get(worker)
            if host is not None and host.ready and self._is_due(worker, now_ns) and self._try(host, worker, now_ns):
                return True
        return False

    def _is_due(self, worker: Worker, now_ns: int) -> bool:
        """Whether it takes another batch, and is about to need one. Who takes no new sequences serves those it has."""
        return len(worker.in_flight) < worker.facts.slots and not self._is_early(worker, now_ns)

    def _try(self, host: Host[Pending], worker: Worker, now_ns: int) -> bool:
        """Launch a batch of sequences whose next requests have equal shapes, if one may leave now."""
        alike: dict[Bucket, list[Steps[Pending]]] = {}
        for sequence in host.ready:
            group = alike.setdefault(sequence.waiting[0].bucket, [])
            group.append(sequence)
            if len(group) == self.policy.most_rows:
                break
        for sequences in alike.values():
            since_ns = host.ready[sequences[0]]
            rows, at_ns = departure(self.policy, len(sequences), len(host.seated), since_ns, now_ns)
            if at_ns <= now_ns:
                self._launch(worker, self._batch(host, sequences[:rows], now_ns), now_ns)
                return True
            self._alarm.set(at_ns, now_ns)
        return False

    def _batch(self, host: Host[Pending], sequences: Sequence[Steps[Pending]], now_ns: int) -> SequenceBatch:
        direct = self.policy.direct and self.policy.most_rows > 1
        count = 1 + max(sequence.row for sequence in sequences) if direct else len(sequences)
        members, rows = [_EMPTY] * count, cast("list[Row | None]", [None] * count)
        taken = []
        for place, sequence in enumerate(sequences):
            at = sequence.row if direct else place
            members[at], rows[at] = self.queue.launch(sequence)
            taken.append((members[at], sequence))
        batch = SequenceBatch(members, rows, tuple(host.over), self.controls, now_ns)
        host.over.clear()
        batch.sequences = taken
        return batch

    def landed(self, batch: Batch, took_ns: int) -> None:
        """A batch has left the device: its sequences may go on."""
        super().landed(batch, took_ns)
        if not isinstance(batch, SequenceBatch):
            return
        now_ns, table = self.clock(), self.queue.table
        for pending, sequence in batch.sequences:
            self.queue.sequence_of(pending)
            table.landed(sequence, now_ns)
        self._alarm.set(table.expiry_ns, now_ns)


class SequenceRecovery(Recovery):
    """Nothing runs again: the state of a sequence would not be what its caller thinks."""

    _lobby: SequenceLobby

    def raised(self, batch: Batch, failure: Failure, executed: pb.Executed) -> None:
        """A batch raised: its sequences are over."""
        self._lobby.tally.raised += 1
        self._log_raised(batch, failure)
        self._end_all(batch, failure.code, failure.message, FAILED, executed)

    def refused(self, batch: Batch, message: str) -> None:
        """A worker did not begin."""
        self._end_all(batch, UNAVAILABLE, message, FAILED, pb.EXECUTED_NO)

    def broken(self, batch: Batch, message: str) -> None:
        """A batch ran, but what came back cannot be told apart."""
        super().broken(batch, message)  # which tells their callers
        self._end_all(batch, INTERNAL, message, FAILED, pb.EXECUTED_YES)

    def crashed(self, batch: Batch, error: Exception) -> None:
        """What was to be done about a batch raised."""
        super().crashed(batch, error)
        self._end_all(batch, INTERNAL, "internal error", FAILED, pb.EXECUTED_MAYBE)

    def part(self, batch: Batch, message: str) -> bool:  # noqa: ARG002 - a Recovery's shape
        return False

    def lost(self, batch: Batch, now_ns: int) -> None:  # noqa: ARG002 - a Recovery's shape
        """A worker died with the batch, and with the state of its sequences."""
        message = f"the process of {self._lobby.name} died with this request; its sequence is over"
        self._end_all(batch, INTERNAL, message, WORKER, pb.EXECUTED_MAYBE)

    def _end_all(self, batch: Batch, code: int, message: str, reason: int, executed: pb.Executed) -> None:
        for pending in batch.members:
            self._lobby.fail(pending, code, message, executed=executed)
        for _, sequence in batch.sequences if isinstance(batch, SequenceBatch) else ():
            self._lobby.end(sequence, reason)


class SequenceBatcher(Batcher):
    """Sequences, workers and places of one model version."""

    parts = Parts(SequenceQueue, SequenceLobby, SequenceRecovery, SequenceLauncher)
    lobby: SequenceLobby
    launcher: SequenceLauncher

    def __init__(
        self,
        name: ModelVersion,
        signature: Signature,
        policy: BatchPolicy,
        device: Device,
        *,
        pad_to: Padding | None = None,
        clock: Callable[[], int],
        call_later: CallLater,
    ) -> None:
        super().__init__(name, signature, policy, device, pad_to=pad_to, clock=clock, call_later=call_later)
        self.launcher.queue = self.lobby.queue
        self.launcher.clock = clock
        self._go_by(policy.sequences, signature)

    def apply(self, policy: BatchPolicy) -> None:
        """Use `policy` from now on; its sequences keep their places."""
        self._go_by(policy.sequences, self._signature)
        super().apply(policy)
        self._alarm.set(self.lobby.queue.table.expiry_ns, self._clock())

    def pump(self, now_ns: int) -> None:
        """Launch everything that may leave now, also on a worker that takes new sequences again."""
        self.lobby.queue.table.promote(now_ns)
        super().pump(now_ns)

    def attach(self, worker: Worker) -> None:
        """`worker` takes sequences from now on; those with another artifact take no new ones."""
        now_ns, signature = self._clock(), worker.facts.signature
        if signature != self._signature:
            for other in self.workers:
                self._close(other, now_ns)
            self._go_by(self.policy.sequences, signature)
        capacity = self.launcher.policy.capacity(worker.facts.slots)
        worker.seated = self.lobby.queue.table.open(worker, capacity, now_ns).seated
        super().attach(worker)

    def detach(self, worker: Worker, reason: str) -> None:
        """The link to `worker` is gone, and the state of its sequences."""
        self._close(worker, self._clock())
        super().detach(worker, reason)

    def _intake(self, policy: BatchPolicy) -> Intake:
        """What reads requests; nothing is filled up, even while a worker of before could."""
        self._pad_to = None
        return super()._intake(policy)

    def retire(self, reason: str) -> list[Worker]:
        """Another batcher takes its place."""
        workers = super().retire(reason)
        for worker in workers:
            self._close(worker, self._clock())
        return workers

    def _close(self, worker: Worker, now_ns: int) -> None:
        self.lobby.refuse(self.lobby.queue.table.close(worker, now_ns))

    def _go_by(self, policy: SequencePolicy | None, signature: Signature) -> None:
        """What all parts go by."""
        if policy is None:
            raise ValueError(f"{self.name} has no sequence_batching")
        self.launcher.policy = policy
        self.launcher.controls = self.lobby.controls = Controls(signature, policy.controls)
        self.lobby.queue.table.idle_ns = policy.idle_ns

    def _rung(self) -> None:
        now_ns, table = self._clock(), self.lobby.queue.table
        table.expire(now_ns)
        super()._rung()
        self._alarm.set(table.expiry_ns, now_ns)


def _empty() -> Pending:
    """What stands in a row of a direct batch whose sequence has no request now: nobody's."""
    pending = Pending(cast("SequenceLobby", None), cast("Caller", None), 0, 1, [], 0, 0)
    pending.state = DONE
    return pending


_EMPTY = _empty()
