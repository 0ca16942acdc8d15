"""The batcher of one model version: asks the policy and acts, driven by arrivals, replies and one alarm."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import ClassVar, NamedTuple

import structlog

from services.batcher.alarm import Alarm, CallLater
from services.batcher.answers import Answers
from services.batcher.collate import Column
from services.batcher.device import Device
from services.batcher.door import Door
from services.batcher.intake import Intake
from services.batcher.launcher import Launcher
from services.batcher.lobby import Lobby
from services.batcher.padding import Padder
from services.batcher.policy import FOREVER_NS, BatchPolicy
from services.batcher.queue import Queue
from services.batcher.recovery import Recovery
from services.batcher.request import HELD, Pending
from services.batcher.service_time import ServiceTime
from services.batcher.tally import PaddingTally
from services.batcher.tuner import Tuner
from services.batcher.worker import Batch, Worker, WorkerFacts
from services.core.batching_spec import Padding
from services.core.errors import INTERNAL, OK, UNAVAILABLE
from services.core.names import ModelVersion
from services.core.signature import Signature
from turnout.v1 import link_pb2 as pb

_ORPHAN_NS = 1_000_000_000  # without a worker for so long, those waiting are told

log = structlog.get_logger()


class Parts(NamedTuple):
    """What a batcher is made of."""

    queue: type[Queue]
    lobby: type[Lobby]
    recovery: type[Recovery]
    launcher: type[Launcher]


class Batcher:
    """Queue, workers and recovery of one model version. Every request it accepts gets exactly one outcome."""

    parts: ClassVar[Parts] = Parts(Queue, Lobby, Recovery, Launcher)
    streams: ClassVar[bool] = False  # any number of answers to one request

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
        self.name = name
        self.workers: list[Worker] = []
        self.service = ServiceTime()
        self.tuner = Tuner(policy)
        self.padding = PaddingTally()
        self._signature = signature  # the artifact's
        self._pad_to = pad_to
        parts = self.parts
        self._queue = parts.queue()
        self._alarm = Alarm(call_later, self._rung)
        door = Door(name, policy, self._queue, self.service, self.workers)
        intake = self._intake(policy)
        self.lobby = parts.lobby(name, intake, self._queue, self.service, door, self._alarm, clock)
        self._recovery = parts.recovery(self.lobby)
        self._answers = Answers(self.lobby, self._recovery, self.tuner, clock)
        self._clock = clock
        self._draining = False
        self._orphaned_ns = FOREVER_NS  # when those waiting are told that there is no worker
        self.launcher = parts.launcher(self.lobby, self._recovery, self.workers, self.tuner, device, self._alarm)

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
        if self.policy.levels and not policy.levels:
            self._queue.forget_levels()
        self.lobby.door.apply(policy)
        self.tuner.apply(policy)
        self._read_by(self._intake(policy))
        self.launcher.pump(self._clock())

    def _read_by(self, intake: Intake) -> None:
        """Read what comes by `intake`, if that differs; what waits goes on as it was read."""
        if not intake.is_like(self.lobby.intake):
            self._queue.close_buckets()
            self.lobby.intake = intake

    def _follow(self, facts: WorkerFacts) -> None:
        """Read what comes from now on as a worker with these facts takes it."""
        if facts.signature == self._signature:
            self._pad_to = facts.pad_to
            self._read_by(self._intake(self.policy))

    def _intake(self, policy: BatchPolicy) -> Intake:
        """What reads requests: by the signature as callers see it."""
        pad_to, whole = self._pad_to, self._signature
        padder = Padder(pad_to, whole, self.padding) if pad_to is not None else None
        filled = policy.filled_inputs | (pad_to.told() if pad_to is not None else frozenset())
        seen = whole.without(filled, policy.kept_outputs)
        if policy.sequences is not None:
            seen = replace(seen, more=())  # these have neither state nor controls
        return Intake(self.name.model, seen, padder)

    def pump(self, now_ns: int) -> None:
        """Launch everything that may leave now."""
        self.launcher.pump(now_ns)

    # -- what workers do

    def attach(self, worker: Worker) -> None:
        """`worker` takes batches from now on; those that run otherwise take none meanwhile."""
        lobby, facts = self.lobby, worker.facts
        lobby.digest = facts.digest
        for other in self.workers:
            other.follow(facts)
        if facts.signature != self._signature:
            self._tell_all_but_running(f"{self.name} was replaced by an artifact with another signature")
            self._signature = facts.signature
        self._follow(facts)
        self.workers.append(worker)
        self._orphaned_ns = FOREVER_NS
        if not self._draining:
            lobby.door.closed = ""
        self.launcher.pump(self._clock())

    def detach(self, worker: Worker, reason: str) -> None:
        """The link to `worker` is gone: what was there did maybe run."""
        now_ns = self._clock()
        if worker not in self.workers:
            return
        self.workers.remove(worker)
        self._go_back()
        batches = list(worker.in_flight.values())
        worker.in_flight.clear()
        if batches:
            self.lobby.tally.deaths += 1
            requests = sum([len(batch.members) for batch in batches])
            log.warning("worker_lost", model=str(self.name), instance=worker.facts.id, requests=requests, reason=reason)
        for batch in batches:
            self.launcher.landed(batch, 0)
            if self._may_run_again(batch, worker):
                self._recovery.lost(batch, now_ns)
            else:
                self._recovery.end(batch, INTERNAL, f"the process of {self.name} died with this request")
        for other in self.workers:
            if other.accepting:
                self._follow(other.facts)
        if self._is_orphaned:
            self._orphaned_ns = now_ns + _ORPHAN_NS
            self._alarm.set(self._orphaned_ns, now_ns)
        self.launcher.pump(now_ns)

    def _go_back(self) -> None:
        """Once nobody takes batches: the artifact before is served again, if callers see no difference."""
        if any(worker.accepting for worker in self.workers):
            return
        back = [each for each in self.workers if each.is_replaced and each.facts.signature == self._signature]
        if back:
            served = back[-1].facts
            self.lobby.digest = served.digest
            log.warning("artifact_went_back", model=str(self.name), digest=served.digest)
            for worker in self.workers:
                worker.follow(served)

    @property
    def _is_orphaned(self) -> bool:
        """Whether nobody here can take what waits, nor will without being told so."""
        return not any(worker.facts.digest == self.lobby.digest or worker.seated for worker in self.workers)

    def replied(self, worker: Worker, reply: pb.Reply, now_ns: int) -> None:
        """A batch is done. Whatever goes wrong about it here, its members are told."""
        found = worker.take_back(reply.id, now_ns)
        if found is None:
            return
        batch, took_ns = found
        columns: list[Column] | None = None
        try:
            self.launcher.landed(batch, took_ns)
            if reply.code == OK:
                worker.ran(batch, took_ns, reply.total_ns, now_ns)
                self._answers.learn(worker, batch, took_ns, now_ns)
                columns = self._answers.read(batch, reply)
            else:
                worker.recount(now_ns)
                self._recovery.failed(batch, reply, again=self._may_run_again(batch, worker))
        except Exception as error:  # noqa: BLE001 - it is logged, and is the end of this batch only
            self._recovery.crashed(batch, error)
        try:
            self.launcher.pump(now_ns)  # the worker's next batch before this one's answers
        finally:
            if columns is not None:
                self._answer(batch, reply, columns, now_ns)
        if self.lobby.door.closed:
            self.lobby.quiet()

    def _answer(self, batch: Batch, reply: pb.Reply, columns: list[Column], now_ns: int) -> None:
        try:
            self._answers.send(batch, reply, columns, now_ns)
        except Exception as error:  # noqa: BLE001 - as above
            batch.search = None  # it goes on: for it the batch ran well
            self._recovery.crashed(batch, error)

    def _may_run_again(self, batch: Batch, worker: Worker) -> bool:
        """Whether the members of a batch were read as its worker's successors take them, and by this batcher."""
        return batch.first.home is self.lobby and worker.facts.signature == self._signature

    # -- time, and the end

    def drain(self) -> None:
        """Nobody gets in any more; who is in is answered."""
        self._draining = True
        self.lobby.door.closed = "is draining here; another replica may take it"

    def retire(self, reason: str) -> list[Worker]:
        """Another batcher takes its place, and its workers: who waits is told, what runs is answered by the other."""
        self._tell_all_but_running(reason)
        self._alarm.cancel()
        self.launcher.leave()
        workers, self.workers[:] = self.workers[:], []
        return workers

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

    def _tell_all_but_running(self, reason: str) -> None:
        """Answer those who wait, also those who wait to run again."""
        self._tell_waiting(reason)
        for pending in list(self._elsewhere()):
            if pending.state == HELD:
                self.lobby.fail(
                    pending, INTERNAL, f"{reason}, before this request ran again", executed=pb.EXECUTED_MAYBE
                )
        self._recovery.clear()
        for worker in self.workers:
            for batch in worker.in_flight.values():
                batch.search = None

    def _elsewhere(self) -> Iterator[Pending]:
        """Requests that are in here but not in the queue; some twice."""
        for worker in self.workers:
            for batch in worker.in_flight.values():
                yield from batch.members
                if batch.search is not None:
                    yield from batch.search.waiting
        yield from self._recovery

    def _rung(self) -> None:
        now_ns = self._clock()
        self.lobby.expire(self._elsewhere(), now_ns)
        if now_ns >= self._orphaned_ns:
            self._orphaned_ns = FOREVER_NS
            self.lobby.door.closed = self.lobby.door.closed or "has no running process here"
            reason = f"{self.name} has lost its process and has no other yet"
            if self.workers:  # of another artifact, which may still run something
                self._tell_all_but_running(reason)
            else:
                self.give_up(reason)
        elif self._orphaned_ns < FOREVER_NS:
            self._alarm.set(self._orphaned_ns, now_ns)
        self.launcher.pump(now_ns)
