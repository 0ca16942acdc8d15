"""The batcher of one model version: asks the policy and acts, driven by arrivals, replies and one alarm."""

from collections.abc import Callable, Iterator

import structlog

from services.batcher.alarm import Alarm, CallLater
from services.batcher.collate import WrongRowsError, columns_of
from services.batcher.door import Door
from services.batcher.intake import Intake
from services.batcher.lobby import Lobby
from services.batcher.policy import FOREVER_NS, BatchPolicy, choose, departure, fitting
from services.batcher.queue import Bucket, Queue
from services.batcher.recovery import Recovery
from services.batcher.replies import Layouts, Scatter
from services.batcher.request import LAUNCHED, Pending
from services.batcher.search import Failure
from services.batcher.service_time import ServiceTime
from services.batcher.worker import Batch, Worker
from services.core.errors import INTERNAL, OK, RESOURCE_EXHAUSTED, UNAVAILABLE
from services.core.names import ModelVersion
from services.core.signature import Signature
from turnout.v1 import link_pb2 as pb

_LEAD_NS = 2_000_000  # a batch is sent so long before its worker should be free
_HELD_BYTES = 1 << 20
_LOOK_AHEAD_EVERY = 8  # batches
_ORPHAN_NS = 1_000_000_000  # without a worker for so long, those waiting are told

log = structlog.get_logger()


class Batcher:
    """Queue, workers and recovery of one model version. Every request it accepts gets exactly one outcome."""

    def __init__(
        self,
        name: ModelVersion,
        signature: Signature,
        policy: BatchPolicy,
        *,
        clock: Callable[[], int],
        call_later: CallLater,
    ) -> None:
        self.name = name
        self.workers: list[Worker] = []
        self.service = ServiceTime()
        self._queue = Queue()
        self._alarm = Alarm(call_later, self._rung)
        door = Door(name, policy, self._queue, self.service, self.workers)
        self.lobby = Lobby(name, Intake(name.model, signature), self._queue, door, self._alarm, clock)
        self._recovery = Recovery(self.lobby)
        self._layouts = Layouts()
        self._clock = clock
        self._draining = False
        self._orphaned_ns = FOREVER_NS  # when those waiting are told that there is no worker
        self._reserved: Worker | None = None  # for the suspect that is next, or runs there

    @property
    def policy(self) -> BatchPolicy:
        return self.lobby.door.policy

    @property
    def in_flight(self) -> int:
        """Batches with the workers."""
        return sum([len(worker.in_flight) for worker in self.workers])

    @property
    def is_idle(self) -> bool:
        return not (self._queue.rows or self._recovery or self.in_flight)

    @property
    def is_over(self) -> bool:
        """Its last worker left so long ago that everybody was told."""
        return not self.workers and bool(self.lobby.door.closed) and self.is_idle

    def apply(self, policy: BatchPolicy) -> None:
        """Use `policy` from now on; what waits stays."""
        self.lobby.door.apply(policy)
        self.pump(self._clock())

    # -- launches

    def pump(self, now_ns: int) -> None:
        """Launch everything that may leave now."""
        if self._recovery:
            self._pump_recovery(now_ns)
        while self._queue.rows:
            worker = self._free_worker(now_ns)
            if worker is None or not self._launch_next(worker, now_ns):
                return

    def _free_worker(self, now_ns: int) -> Worker | None:
        """The least loaded worker with a free slot that is nobody's, and is about to need a batch.

        One that is busy for longer gets none yet: those who come until then can still be in it. Unless it is large:
        its way to the worker takes time that the batch before it hides.
        """
        best: Worker | None = None
        may_hold = self._queue.size < _HELD_BYTES
        for worker in self.workers:
            if worker.free_slots <= 0 or worker is self._reserved:
                continue
            if may_hold and worker.in_flight and worker.busy_until_ns - _LEAD_NS > now_ns:
                self._alarm.set(worker.busy_until_ns - _LEAD_NS, now_ns)
            elif best is None or len(worker.in_flight) < len(best.in_flight):
                best = worker
        return best

    def _launch_next(self, worker: Worker, now_ns: int) -> bool:
        """Whether the queue moved; else the alarm is set for when it must."""
        policy = self.lobby.door.policy
        start_ns = max(now_ns, worker.busy_until_ns)
        service = self.service if self.service.known(now_ns) else None
        for bucket in self._queue.departing():
            oldest = bucket.oldest()
            if oldest is None:
                continue
            rows, at_ns = policy.max_batch_rows, now_ns
            if policy.delay_ns:
                rows, at_ns = departure(policy, bucket.rows, oldest.arrival_ns, now_ns, int(self.lobby.gap_ns))
            if at_ns > now_ns:
                self._alarm.set(at_ns, now_ns)
                continue
            count, is_late = fitting(bucket.members, rows, start_ns, service)
            if is_late and service is not None:
                self._launch_in_time(worker, bucket, start_ns, now_ns)
            else:
                self._recovery.budget.earn()
                self._launch(worker, Batch(self._queue.take(bucket, count), now_ns), now_ns)
            return True
        return False

    def _launch_in_time(self, worker: Worker, bucket: Bucket, start_ns: int, now_ns: int) -> None:
        """Launch those who can be in time; tell those who cannot."""
        chosen, hopeless = choose(bucket.members, self.policy.max_batch_rows, start_ns, self.service)
        if chosen:
            self._queue.pick(chosen)
            self._recovery.budget.earn()
            self._launch(worker, Batch(chosen, now_ns), now_ns)
        for pending in hopeless:
            self._shed(pending, now_ns)

    def _shed(self, pending: Pending, now_ns: int) -> None:
        message = f"{self.name} cannot answer in the {(pending.deadline_ns - now_ns) / 1e6:.1f} ms that are left"
        self.lobby.fail(pending, UNAVAILABLE, message, retry_after_us=self.lobby.door.retry_after_us(now_ns))

    def _launch(self, worker: Worker, batch: Batch, now_ns: int) -> None:
        self.lobby.tally.batch_rows.observe(batch.rows)
        worker.launch(batch, self.service.predict_ns(batch.cost) if self.service.known(now_ns) else 0)

    def _launch_again(self, worker: Worker, batch: Batch, now_ns: int) -> None:
        for pending in batch.members:
            pending.state = LAUNCHED
            pending.retries += 1
        self._launch(worker, batch, now_ns)

    def _pump_recovery(self, now_ns: int) -> None:
        recovery, reserved = self._recovery, self._reserved
        while worker := self._free_worker(now_ns):
            batch = recovery.next_group(now_ns)
            if batch is None:
                break
            self._launch_again(worker, batch, now_ns)
        if reserved is not None and any(batch.suspect for batch in reserved.in_flight.values()):
            return
        self._reserved = None
        accepting = [worker for worker in self.workers if worker.accepting]
        if not accepting or recovery.suspect is None:
            return
        # Alone, on a worker with nothing else on it; until there is one, the least loaded takes nothing new.
        worker = self._reserved = min(accepting, key=lambda each: len(each.in_flight))
        if not worker.in_flight:
            self._launch_again(worker, recovery.next_suspect(now_ns), now_ns)

    # -- what workers do

    def attach(self, worker: Worker) -> None:
        """`worker` takes batches from now on; those with another artifact take no more."""
        lobby, facts = self.lobby, worker.facts
        lobby.digest = facts.digest
        for other in self.workers:
            other.accepting = other.accepting and other.facts.digest == facts.digest
        if facts.signature != lobby.intake.signature:
            self._tell_waiting(f"{self.name} was replaced by an artifact with another signature")
            lobby.intake = Intake(self.name.model, facts.signature)
        self.workers.append(worker)
        self._orphaned_ns = FOREVER_NS
        if not self._draining:
            lobby.door.closed = ""
        self.pump(self._clock())

    def detach(self, worker: Worker, reason: str) -> None:
        """The link to `worker` is gone: what was there did maybe run."""
        now_ns = self._clock()
        if worker not in self.workers:
            return
        self.workers.remove(worker)
        if worker is self._reserved:
            self._reserved = None
        batches = list(worker.in_flight.values())
        worker.in_flight.clear()
        if batches:
            self.lobby.tally.deaths += 1
            requests = sum([len(batch.members) for batch in batches])
            log.warning("worker_lost", model=str(self.name), instance=worker.facts.id, requests=requests, reason=reason)
        for batch in batches:
            self._recovery.lost(batch, now_ns)
        if not self.workers:
            self._orphaned_ns = now_ns + _ORPHAN_NS
            self._alarm.set(self._orphaned_ns, now_ns)
        self.pump(now_ns)

    def replied(self, worker: Worker, reply: pb.Reply, now_ns: int) -> None:
        """A batch is done."""
        found = worker.take_back(reply.id, now_ns)
        if found is None:
            return
        batch, took_ns = found
        if batch.suspect:
            self._reserved = None
        if reply.code == OK:
            self.service.measured(batch.cost, took_ns, now_ns)
            self.lobby.tally.service_s.observe(took_ns / 1e9)
            worker.recount(self.service.predict_ns, now_ns)
            if not self.service.samples % _LOOK_AHEAD_EVERY:
                self.lobby.door.look_ahead(now_ns)
            self._succeeded(batch, reply, now_ns)
        else:
            if reply.code == UNAVAILABLE and reply.executed == pb.EXECUTED_NO:
                self._recovery.refused(batch, reply.message)
            elif reply.code == RESOURCE_EXHAUSTED and self._recovery.part(batch, reply.message):
                pass
            else:
                self._recovery.raised(batch, Failure(reply.code, reply.message), reply.executed)
            self.pump(now_ns)
        if self.lobby.door.closed:
            self.lobby.quiet()

    def _succeeded(self, batch: Batch, reply: pb.Reply, now_ns: int) -> None:
        lobby = self.lobby
        try:
            columns = columns_of(reply.outputs, batch.rows) if lobby.intake.batches else None
        except WrongRowsError as error:
            self._recovery.broken(batch, str(error))
            self.pump(now_ns)
            return
        self._recovery.succeeded(batch)
        self.pump(now_ns)  # the worker's next batch before this one's answers
        wait_us = int(lobby.door.wait_ns(now_ns) / 1000)
        scatter = Scatter(batch, reply, now_ns, wait_us, self._layouts, self._clock)
        if columns is None:
            scatter.whole()
        else:
            scatter.split(columns)
        lobby.tally.answered(scatter.count, scatter.queue_ns, scatter.middle_ns, scatter.scatter_ns)

    # -- time, and the end

    def drain(self) -> None:
        """Nobody gets in any more; who is in is answered."""
        self._draining = True
        self.lobby.door.closed = "is draining here; another replica may take it"

    def give_up(self, reason: str) -> None:
        """Answer everyone now: UNAVAILABLE where nothing ran."""
        self._tell_waiting(reason)
        for pending in list(self._elsewhere()):
            self.lobby.fail(pending, INTERNAL, f"{reason}, while this request ran", executed=pb.EXECUTED_MAYBE)
        self._recovery.clear()

    def _tell_waiting(self, reason: str) -> None:
        retry_us = self.lobby.door.retry_after_us(self._clock())
        for pending in list(self._queue):
            self.lobby.fail(pending, UNAVAILABLE, reason, retry_after_us=retry_us)

    def _elsewhere(self) -> Iterator[Pending]:
        """Requests that are in here but not in the queue."""
        for worker in self.workers:
            for batch in worker.in_flight.values():
                yield from batch.members
        yield from self._recovery

    def _rung(self) -> None:
        now_ns = self._clock()
        self.lobby.expire(self._elsewhere(), now_ns)
        if now_ns >= self._orphaned_ns:
            self._orphaned_ns = FOREVER_NS
            self.lobby.door.closed = self.lobby.door.closed or "has no running process here"
            self.give_up(f"{self.name} has no running process")
        elif self._orphaned_ns < FOREVER_NS:
            self._alarm.set(self._orphaned_ns, now_ns)
        self.pump(now_ns)
