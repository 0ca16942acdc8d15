"""Keeps one instance alive: LOADING -> READY -> (BACKOFF -> LOADING)* -> FAILED, and DRAINING when it is let go."""

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Self

import structlog

from services.core.batching_spec import SequenceBatching, states_and_controls
from services.core.model_spec import Limits, ModelSpec
from services.runtime.admission import Admission, Ticket
from services.runtime.backoff import Restarts
from services.runtime.footprints import Need, size_of
from services.runtime.hosting import Hosting
from services.runtime.job import Job
from services.runtime.metrics import RuntimeMetrics
from services.runtime.priority import StandingBack, is_spared
from services.runtime.process import WorkerProcess, describe_exit
from services.runtime.watchdog import Failure, Watchdog
from turnout.v1 import runtime_pb2 as pb


@dataclass
class Bounds:
    """What of the model's spec may change while the instance runs."""

    limits: Limits
    slots: int
    sequences: SequenceBatching | None = None  # with the states and controls of the job

    @classmethod
    def of(cls, spec: ModelSpec) -> Self:
        return cls(spec.limits, spec.batching.slots, spec.batching.sequence_batching)


class Supervisor:
    """One instance. `instance` is what the control stream says of it; `on_change` is called after each change."""

    def __init__(  # noqa: PLR0913 - what it shares with the other instances of its pod
        self,
        job: Job,
        bounds: Bounds,
        on_change: Callable[[], None],
        metrics: RuntimeMetrics,
        admission: Admission,
        *,
        load_timeout_s: float,
        drain_s: float,
        hosting: Hosting | None = None,
        others: Callable[[], Iterable[pb.Instance]] = tuple,
    ) -> None:
        self.bounds = bounds
        self.instance = pb.Instance(
            id=job.id, model=job.model, version=job.version, digest=job.digest, state=pb.LOADING,
            data_socket=str(job.socket), slots=bounds.slots, pad_to=job.pad_to.dump() if job.pad_to else b"",
            sequence_batching=bounds.sequences.dump() if bounds.sequences else b"",
        )  # fmt: skip
        self.ended = asyncio.Event()
        self.failed_loads = 0  # in a row, since it last was ready
        self._was_ready = False
        self._artifact_bytes = 0
        self._ticket: Ticket | None = None
        self._last_failure = ""
        self._job = job
        self._on_change = on_change
        self._metrics = metrics
        self._admission = admission
        self._load_timeout_s = load_timeout_s
        self._drain_s = drain_s
        self._hosting = hosting or Hosting()
        self._others = others
        self._restarts = Restarts(random.Random())  # noqa: S311 - jitter
        self._waits = Restarts(random.Random())  # noqa: S311 - jitter
        self._stop = asyncio.Event()
        self._log = structlog.get_logger().bind(worker=job.id, model=job.model, version=job.version)

    @property
    def state(self) -> pb.InstanceState:
        return self.instance.state

    @property
    def is_stuck(self) -> bool:
        """Whether it waits for memory that no load in progress will leave."""
        return self._ticket is not None and self._ticket.is_short and not self._admission.is_loading

    def adjust(self, bounds: Bounds) -> None:
        """Take changed bounds; they hold from the next look on."""
        if states_and_controls(bounds.sequences) != (self._job.states, self._job.controls):
            bounds.sequences = self.bounds.sequences  # another process is needed for these
        self.bounds = bounds
        if self._ticket is not None:
            self._ticket.need = self._need()
        instance, sequences = self.instance, bounds.sequences.dump() if bounds.sequences else b""
        if (instance.slots, instance.sequence_batching) != (bounds.slots, sequences):
            instance.slots, instance.sequence_batching = bounds.slots, sequences
            self._on_change()

    def stop(self) -> None:
        """Let the instance go: batches in flight finish, then its process ends."""
        self._stop.set()

    async def run(self) -> None:
        """Supervise until stopped; never raises but CancelledError, which kills the process."""
        try:
            while not self._stop.is_set():
                failure = await self._live()
                if failure is None:
                    return
                self._metrics.failures.labels(self._job.model, self._job.version, failure.kind).inc()
                self.failed_loads += not failure.was_ready
                self._last_failure = failure.reason
                delay_s = None if failure.is_final else self._delay_s(failure)
                if delay_s is None:
                    self._give_up(failure)
                    await self._stop.wait()
                    return
                self._log.warning("worker_failed", reason=failure.reason, restarts_in_s=round(delay_s, 3))
                self._set(pb.BACKOFF, failure.reason)
                await _wait(self._stop, delay_s)
        finally:
            with contextlib.suppress(KeyError):
                self._metrics.memory_bytes.remove(self._job.id)
            self._job.socket.unlink(missing_ok=True)
            self.ended.set()

    def _delay_s(self, failure: Failure) -> float | None:
        if failure.waits:
            return self._waits.delay_s(None)
        delay_s = self._restarts.delay_s(self.bounds.limits.max_restarts, failure.ready_for_s)
        self.instance.restarts = self._restarts.total
        return delay_s

    def _give_up(self, failure: Failure) -> None:
        reason = failure.reason
        if not failure.is_final:
            reason = f"given up after {self._restarts.in_a_row} failures in a row; the last: {reason}"
        self._log.error("instance_failed", reason=reason)
        self._set(pb.FAILED, reason)

    async def _live(self) -> Failure | None:
        """One process from start to end; None when it ended because it was told to."""
        if self._job.fault:
            return Failure("place", self._job.fault, is_final=True)
        if not self._artifact_bytes:  # a copy never changes
            with contextlib.suppress(OSError):  # the load will say what is wrong with it
                self._artifact_bytes = await asyncio.to_thread(size_of, self._job.file)
        stopping = asyncio.get_running_loop().create_task(self._stop.wait())
        ticket = self._ticket = self._admission.ask(self._need(), self._wait_for, is_restart=self._was_ready)
        either: set[asyncio.Future] = {ticket.granted, stopping}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            return await self._start(ticket, stopping) if ticket.granted.done() else None
        finally:
            stopping.cancel()
            ticket.leave()

    async def _start(self, ticket: Ticket, stopping: asyncio.Task) -> Failure | None:
        try:
            worker = await self._hosting.start(self._job, self.bounds.limits, self._log)
        except OSError as error:
            return Failure("spawn", f"its process could not be started: {error}")
        ticket.used = worker.memory_bytes
        try:
            self._set(pb.LOADING, self._last_failure, pid=worker.pid)
            watchdog = Watchdog(worker, self._hosting.nursery)
            failure = await self._load(worker, watchdog, stopping)
            ticket.loaded()
            return failure or await self._watch(worker, watchdog, stopping)
        finally:
            worker.kill()
            self.instance.pid = 0
            await self._hosting.end(worker)

    def _is_spared(self) -> bool:
        return is_spared(self.instance, self._others(), is_restart=self._was_ready)

    def _need(self) -> Need:
        """Memory that its process will take while it loads."""
        job, limit = self._job, self.bounds.limits.max_memory_bytes
        return self._admission.footprints.need(job.digest, job.framework, self._artifact_bytes, limit)

    def _wait_for(self, reason: str) -> None:
        self._set(pb.LOADING, f"{reason}; {self._last_failure}" if self._last_failure else reason)

    async def _load(self, worker: WorkerProcess, watchdog: Watchdog, stopping: asyncio.Task) -> Failure | None:
        """Wait until the worker is READY (or told to stop); else why it is not."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        report = loop.create_task(worker.report())
        step_back = self._hosting.step_back
        standing = StandingBack(worker.pid, step_back, self._is_spared, self._load_timeout_s, began_s)
        try:
            while not (report.done() or stopping.done()):
                left_s = began_s + self._load_timeout_s - loop.time()
                if left_s <= 0:
                    return Failure("load", f"did not load within {self._load_timeout_s:g} s")
                pause_s = min(left_s, watchdog.pause_s)
                await asyncio.wait({report, stopping}, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
                if failure := self._look(watchdog):
                    return failure
                await standing.look(loop.time())
            if not report.done():
                return None
            await standing.end()
            return await self._loaded(worker, report.result(), loop.time() - began_s)
        finally:
            report.cancel()

    async def _loaded(self, worker: WorkerProcess, report: pb.Instance | None, load_s: float) -> Failure | None:
        if report is None:
            worker.kill()
            status = await worker.close()
            said = f"; it last said: {worker.last_line}" if worker.last_line else ""
            return self._ended(worker, status, "load", f" while loading{said}")
        if report.state != pb.READY:
            is_final = report.state == pb.FAILED
            return Failure("artifact" if is_final else "load", report.reason, is_final, report.state == pb.LOADING)
        self._metrics.load_seconds.labels(self._job.framework).observe(load_s)
        self._metrics.loads.labels(self._job.model, self._job.version).inc()
        self.failed_loads, self._last_failure, self._was_ready = 0, "", True
        self._admission.footprints.note(self._job.digest, worker.peak_bytes())
        self.instance.signature.CopyFrom(report.signature)
        self._set(pb.READY, report.reason)
        self._log.info("instance_ready", load_s=round(load_s, 3), batches=report.signature.batches)
        return None

    def _ended(self, worker: WorkerProcess, status: int, kind: str = "exit", more: str = "") -> Failure:
        reason = f"its process {describe_exit(status)}{more}"
        if worker.was_out_of_memory:
            return Failure("memory", f"{reason}: over limits.max_memory_bytes {self.bounds.limits.max_memory_bytes}")
        return Failure(kind, reason)

    async def _watch(self, worker: WorkerProcess, watchdog: Watchdog, stopping: asyncio.Task) -> Failure | None:
        loop = asyncio.get_running_loop()
        ready_s = loop.time()
        while True:
            ends = {worker.exited, stopping}
            await asyncio.wait(ends, timeout=watchdog.pause_s, return_when=asyncio.FIRST_COMPLETED)
            ready_for_s = loop.time() - ready_s
            if worker.exited.done():
                end = self._ended(worker, worker.exited.result())
                return None if stopping.done() else end._replace(ready_for_s=ready_for_s, was_ready=True)
            if stopping.done():
                await self._drain(worker)
                return None
            if failure := self._look(watchdog):
                return failure._replace(ready_for_s=ready_for_s, was_ready=True)

    def _look(self, watchdog: Watchdog) -> Failure | None:
        failure = watchdog.look(self.bounds.limits)
        self._metrics.memory_bytes.labels(self._job.id).set(watchdog.memory_bytes)
        return failure

    async def _drain(self, worker: WorkerProcess) -> None:
        """The batcher hears DRAINING and sends nothing new; the worker ends by itself when all is answered."""
        self._set(pb.DRAINING, "")
        worker.terminate()
        done, _ = await asyncio.wait({worker.exited}, timeout=self._drain_s)
        if not done:
            self._log.warning("drain_timed_out", waited_s=self._drain_s)

    def _set(self, state: pb.InstanceState, reason: str, *, pid: int | None = None) -> None:
        self.instance.state = state
        self.instance.reason = reason
        if pid is not None:
            self.instance.pid = pid
        self._on_change()


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        pass
