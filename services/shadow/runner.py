"""Runs candidates on what was mirrored: bounded, at the lowest priority, never waiting and never twice."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol

import structlog

from services.chassis.quick_reply import whole
from services.chassis.replicas import OnReply
from services.core.errors import DEADLINE_EXCEEDED, OK, UNAVAILABLE, UNKNOWN
from services.shadow.comparator import compare_answer, pair_of
from services.shadow.lanes import Job, Lane, Lanes, Room
from services.shadow.tally import Answer, Digests, Tallies
from turnout.v1 import link_pb2, shadow_pb2

log = structlog.get_logger()

_INLINE_BYTES = 256 << 10  # compared on the loop; more is compared in a thread
_ENVELOPE_BYTES = 256  # of a request beside its inputs
_CODE_NAMES = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)
_NOT_BEGUN = {UNAVAILABLE: "shed", DEADLINE_EXCEEDED: "expired"}  # what a candidate's refusal counts as


class Replica(Protocol):
    def request(self, rows: int, size_bytes: int, on_reply: OnReply) -> link_pb2.Request: ...
    def cancel(self, request_id: int) -> None: ...


class Replicas(Protocol):
    """Where candidates run."""

    def pick(self, model: str, version: str) -> Replica | None: ...
    def served(self, model: str, version: str) -> link_pb2.Served | None: ...


class Limits(NamedTuple):
    room: Room
    running: int  # requests in flight per candidate
    deadline_s: float  # of one request; and the longest wait before it is sent


class Runner:
    """Every mirror offered is settled once: compared, failed or dropped, and counted in its pair's tally."""

    def __init__(
        self, replicas: Replicas, tallies: Tallies, limits: Limits, now_s: Callable[[], float] = time.time
    ) -> None:
        self.uncounted: Counter[str] = Counter()  # mirrors that belong to no tally, by reason
        self.lanes = Lanes(limits.room, lambda job: job.tally.drop("queue_full"))
        self._replicas = replicas
        self._tallies = tallies
        self._limits = limits
        self._now_s = now_s
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "compare")
        self._comparing: set[asyncio.Task[None]] = set()
        self._is_draining = False
        self._idle = asyncio.Event()
        self._idle.set()

    def offer(self, mirror: shadow_pb2.Mirror) -> None:
        """Take a mirror, or drop it at once."""
        pair = pair_of(mirror)
        if pair is None:
            self.uncounted["bad_mirror"] += 1
            return
        tally = self._tallies.of(pair, self._now_s())
        if tally is None:
            self.uncounted["too_many_pairs"] += 1
            return
        tally.arrived(self._now_s())
        if self._is_draining:
            tally.drop("draining")
            return
        lane = self.lanes.add(mirror, tally, self._loop.time())
        if lane is None:
            tally.drop("queue_full")
            return
        self._idle.clear()
        self._run(lane)

    async def drain(self) -> None:
        """Drop what waits and what comes, and wait for what runs."""
        self._is_draining = True
        for lane in self.lanes:
            while lane.waiting:
                self._settle(lane.waiting.popleft(), "draining")
        await self._idle.wait()

    async def close(self) -> None:
        for task in self._comparing:
            task.cancel()
        await asyncio.gather(*self._comparing, return_exceptions=True)
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _run(self, lane: Lane) -> None:
        """Send as many of a candidate's jobs as may run now."""
        while lane.waiting and lane.running < self._limits.running:
            job = lane.waiting.popleft()
            if self._loop.time() - job.arrived_at >= self._limits.deadline_s:
                self._settle(job, "expired")
            elif (replica := self._replicas.pick(*job.candidate)) is None:
                self._settle(job, "no_replica")
            else:
                lane.running += 1
                self._send(job, lane, replica)

    def _send(self, job: Job, lane: Lane, replica: Replica) -> None:
        mirror = job.mirror
        size = _ENVELOPE_BYTES + sum(tensor.ByteSize() for tensor in mirror.inputs)
        request = replica.request(mirror.rows, size, lambda reply: self._replied(job, lane, timer, whole(reply)))
        request.model, request.version = job.candidate
        request.rows = mirror.rows
        request.deadline_us = int(self._limits.deadline_s * 1e6)
        request.inputs.MergeFrom(mirror.inputs)
        request.outputs.extend(self._wanted(mirror))
        request.shadow = True
        request.request_id = mirror.request_id
        timer = self._loop.call_later(self._limits.deadline_s, self._expire, job, lane, replica, request.id)

    def _wanted(self, mirror: shadow_pb2.Mirror) -> list[str]:
        """The outputs that the caller was answered, as far as the candidate has them; empty = all."""
        served = self._replicas.served(mirror.model, mirror.candidate_version)
        given = set() if served is None else {spec.name for spec in served.signature.outputs}
        return [output.name for output in mirror.outputs if output.name in given]

    def _expire(self, job: Job, lane: Lane, replica: Replica, request_id: int) -> None:
        replica.cancel(request_id)
        job.tally.fail(_CODE_NAMES[DEADLINE_EXCEEDED], Digests(job.mirror.served_digest), self._now_s())
        self._done(job, lane)

    def _replied(self, job: Job, lane: Lane, timer: asyncio.TimerHandle, reply: link_pb2.Reply) -> None:
        timer.cancel()
        if reply.code != OK:
            self._fail(job, reply)
            self._done(job, lane)
        elif job.size_bytes + reply.ByteSize() <= _INLINE_BYTES:
            self._count(job, reply, _compare(job.mirror, reply))
            self._done(job, lane)
        else:
            task = self._loop.create_task(self._compare_in_thread(job, lane, reply), name="compare")
            self._comparing.add(task)
            task.add_done_callback(self._comparing.discard)

    async def _compare_in_thread(self, job: Job, lane: Lane, reply: link_pb2.Reply) -> None:
        self._count(job, reply, await self._loop.run_in_executor(self._thread, _compare, job.mirror, reply))
        self._done(job, lane)

    def _done(self, job: Job, lane: Lane) -> None:
        lane.running -= 1
        self._settle(job)
        self._run(lane)

    def _count(self, job: Job, reply: link_pb2.Reply, answer: Answer | None) -> None:
        if answer is None:
            job.tally.drop("comparison_failed")
        else:
            job.tally.compare(answer, Digests(job.mirror.served_digest, reply.digest), self._now_s())

    def _fail(self, job: Job, reply: link_pb2.Reply) -> None:
        reason = _NOT_BEGUN.get(reply.code)
        if reason is not None and reply.executed == link_pb2.EXECUTED_NO:
            job.tally.drop(reason)
            return
        name = _CODE_NAMES[reply.code if reply.code < len(_CODE_NAMES) else UNKNOWN]
        job.tally.fail(name, Digests(job.mirror.served_digest, reply.digest), self._now_s())

    def _settle(self, job: Job, dropped: str = "") -> None:
        self.lanes.remove(job)
        if dropped:
            job.tally.drop(dropped)
        if self.lanes.jobs == 0:
            self._idle.set()


def _compare(mirror: shadow_pb2.Mirror, reply: link_pb2.Reply) -> Answer | None:
    """The comparison; None, with the reason in the log, when it fails: one odd answer must not end the others."""
    try:
        return compare_answer(mirror, reply)
    except Exception:
        log.exception("comparison_failed", request_id=mirror.request_id)
        return None
