"""Runs batches as they come over a worker's links: one after the other, in the loop's own thread.

A hand-off to a thread would cost more than most models take; the supervisor watches for batches that never end.
"""

import asyncio
import sys
import time
from collections import deque

import structlog
from numpy.typing import NDArray

from services.chassis.arena import BlockError, Borrower
from services.chassis.framing import MAX_OUTPUT_BYTES
from services.chassis.link import Link
from services.chassis.throttle import Throttle
from services.core.arrays import encode
from services.core.errors import (
    CANCELLED,
    FAILED_PRECONDITION,
    INTERNAL,
    INVALID_ARGUMENT,
    NOT_FOUND,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
)
from services.core.signature import Signature
from services.runtime.backends import Backend, ModelError
from services.runtime.faults import describe
from services.runtime.job import Job
from services.runtime.leases import Leases, Views, generations_of, views_of
from services.runtime.running import run_of, stream_of
from services.runtime.sequence_state import LostStateError, SequenceStates
from services.runtime.stamp import Stamp
from services.runtime.streams import Streams
from services.runtime.way import BadBatchError, Way, too_large
from turnout.v1 import link_pb2 as pb

_MAX_WAITING = 256  # batches; peers send at most `slots` each
_TRACEBACKS_EVERY_S = 1.0
_ENVELOPE_BYTES = 128  # a reply or tensor beside its data
_NO_VIEWS: Views = {}
_EXECUTED = {True: pb.EXECUTED_YES, False: pb.EXECUTED_NO, None: pb.EXECUTED_MAYBE}

log = structlog.get_logger()


class Executor:
    """The worker's LinkHandler."""

    def __init__(self, job: Job, backend: Backend, signature: Signature, stamp: Stamp) -> None:
        self._job = job
        self._stamp = stamp
        self._most_bytes = most = job.max_tensor_bytes or sys.maxsize
        self._usual = Way(signature, run_of(backend), most)
        self._others = {other.name: Way(other, run_of(backend, other.name), most) for other in signature.more}
        self._streams = Streams(stream_of(backend), self._usual, stamp, job) if signature.decoupled else None
        self._states: SequenceStates | None = None
        if job.states:
            self._states = SequenceStates(job.states, signature)
            self._usual.leave_out(self._states.inputs, self._states.outputs)
        self._waiting: deque[tuple[Link, pb.Request, float | None]] = deque()  # and when nobody waits any more
        self._due_s: float | None = None  # of the batch that runs
        self._leases = Leases()
        self._unreadable = Throttle()
        self._is_scheduled = False
        self._last_traceback_s = float("-inf")
        self._loop = asyncio.get_running_loop()
        self.links: set[Link] = set()
        self.last_work_s = self._loop.time()
        self.all_closed = asyncio.Event()

    @property
    def is_streaming(self) -> bool:
        """Whether answers to a request are still to come."""
        return bool(self._streams)

    def opened(self, link: Link) -> None:
        self.links.add(link)
        link.borrower = Borrower(link)
        self.all_closed.clear()

    def closed(self, link: Link, reason: str) -> None:
        self.links.discard(link)
        if self._states is not None:
            self._states.forget(link)
        self._waiting = deque(entry for entry in self._waiting if entry[0] is not link)
        self._leases.forget(link)
        if self._streams is not None:
            self._streams.forget(link)
        if not self.links:
            self.all_closed.set()
        log.debug("link_closed", peer=link.peer.instance, reason=reason)

    def received(self, link: Link, frame: pb.Frame) -> None:
        if frame.cancels:
            self._cancel(link, set(frame.cancels))
        if self._streams is not None and frame.credits:
            self._streams.credited(link, frame.credits)
        now_s = time.monotonic()
        for request in frame.requests:
            if len(self._waiting) >= _MAX_WAITING:
                self._refuse(link, request, UNAVAILABLE, f"over {_MAX_WAITING} batches wait for this worker")
                link.release(generations_of(request))
            else:
                left_us = request.deadline_us
                self._waiting.append((link, request, now_s + left_us / 1e6 if left_us else None))
        if self._waiting and not self._is_scheduled:
            self._next()

    def _cancel(self, link: Link, numbers: set[int]) -> None:
        """Batches that still wait are not run."""
        if self._streams is not None:
            self._streams.cancel(link, numbers)
        kept: deque[tuple[Link, pb.Request, float | None]] = deque()
        for entry in self._waiting:
            if entry[0] is link and entry[1].id in numbers:
                link.release(generations_of(entry[1]))
                if self._streams is not None:  # whoever cancels one waits for its end
                    self._refuse(link, entry[1], CANCELLED, "cancelled before it began")
            else:
                kept.append(entry)
        self._waiting = kept

    def _next(self) -> None:
        """Run one batch; the next one has its own turn, so that this one's reply leaves first."""
        self._is_scheduled = False
        if not self._waiting:
            return
        link, request, self._due_s = self._waiting.popleft()
        self._execute(link, request)
        self.last_work_s = self._loop.time()
        if self._waiting:
            self._is_scheduled = True
            self._loop.call_soon(self._next)

    def _execute(self, link: Link, request: pb.Request) -> None:
        if self._states is not None:  # also when the batch is refused: this is told once
            self._states.forget(link, request.sequences_over)
        self._borrow(link, request)
        if self._states is not None:
            self._states.close(link, request.sequence_rows[:])

    def _borrow(self, link: Link, request: pb.Request) -> None:
        """Run a batch; what of it lies in shared memory is given back after it."""
        borrower = link.borrower
        if borrower is None or not borrower.is_open:
            self._run_batch(link, request, _NO_VIEWS)
            return
        try:
            views = views_of(request, borrower)
        except BlockError as error:
            batches = self._unreadable.count(time.monotonic_ns())
            if batches:
                log.warning("block_refused", peer=link.peer.instance, reason=str(error), batches=batches)
            self._refuse(link, request, INTERNAL, f"an input of the batch could not be read: {error}")
            link.release(generations_of(request))
            return
        self._run_batch(link, request, views)
        if views:
            self._leases.end(link, views)

    def _run_batch(self, link: Link, request: pb.Request, views: Views) -> None:
        try:
            way = self._way(request)
            inputs = way.read(request, views)
            if self._states is not None:
                inputs |= self._states_before(link, request)
        except BadBatchError as error:
            self._refuse(link, request, error.code, str(error))
            return
        if self._streams is not None:
            self._streams.begin(link, request, inputs)
            return
        began = time.monotonic_ns()
        self._stamp.begin(began)
        try:
            left_s = None if self._due_s is None else self._due_s - time.monotonic()
            outputs = way.run(inputs, self._needed(request, way), left_s)
            compute_ns = time.monotonic_ns() - began
            if self._states is not None:
                self._states.keep(link, request.sequence_rows[:], outputs)
            self._answer(link, request, way, outputs, compute_ns)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a model raises is the batch's own error
            self._raised(link, request, error)
        finally:
            self._stamp.end(time.monotonic_ns())

    def _way(self, request: pb.Request) -> Way:
        """What its signature asks for; of another artifact or model it is refused."""
        job = self._job
        if request.digest and request.digest != job.digest:
            raise BadBatchError(FAILED_PRECONDITION, f"digest {request.digest} was asked for, this is {job.digest}")
        if request.model != job.model or request.version != job.version:
            asked = f"{request.model}/{request.version}"
            raise BadBatchError(NOT_FOUND, f"{asked} was asked for, this worker serves {job.model}/{job.version}")
        name = request.signature_name
        if not name:
            return self._usual
        if name not in self._others:
            raise BadBatchError(INVALID_ARGUMENT, f"no signature {name!r} besides the usual one")
        return self._others[name]

    def _needed(self, request: pb.Request, way: Way) -> list[str]:
        """The outputs that a batch is for: those that are asked for, and the states that sequences go on with."""
        wanted = request.outputs[:] or way.outputs
        return wanted if self._states is None else [*wanted, *self._states.outputs]

    def _states_before(self, link: Link, request: pb.Request) -> dict[str, NDArray]:
        """The state inputs of a batch of sequences."""
        if self._states is None:
            return {}
        try:
            return self._states.before(link, request.sequence_rows[:], request.rows)
        except LostStateError as error:
            raise BadBatchError(INVALID_ARGUMENT, str(error)) from None

    def _answer(self, link: Link, request: pb.Request, way: Way, outputs: dict[str, NDArray], compute_ns: int) -> None:
        parts = []
        size = _ENVELOPE_BYTES
        rows = request.rows if way.batches else None
        for name in request.outputs or way.outputs:
            array = outputs[name]
            if rows is not None and array.shape[:1] != (rows,):
                raise ValueError(f"output {name!r} has shape {list(array.shape)} for a batch of {rows} rows")
            datatype, data = encode(array)
            if name in way.bf16:
                datatype = "BF16"  # backends give its words
            if len(data) > self._most_bytes:
                message = too_large("output", name, len(data), self._most_bytes)
                self._reply(link, request, RESOURCE_EXHAUSTED, message, pb.EXECUTED_YES)
                return
            parts.append((name, datatype, array.shape, data))
            size += len(data) + _ENVELOPE_BYTES
        if size > MAX_OUTPUT_BYTES:
            message = (
                f"outputs of {request.rows} rows take {size} bytes, over the {MAX_OUTPUT_BYTES} of one answer: "
                "ask for fewer rows or fewer outputs"
            )
            self._reply(link, request, RESOURCE_EXHAUSTED, message, pb.EXECUTED_YES)
            return
        reply = link.frame_for(size).replies.add()
        reply.id = request.id
        reply.executed = pb.EXECUTED_YES
        for name, datatype, shape, data in parts:
            tensor = reply.outputs.add()
            tensor.name = name
            tensor.datatype = datatype
            tensor.shape.extend(shape)
            tensor.data = data
        reply.stages_ns.extend((0, compute_ns, 0))
        reply.total_ns = compute_ns
        reply.batch_rows = request.rows
        reply.digest = self._job.digest
        reply.final = True

    def _raised(self, link: Link, request: pb.Request, error: BaseException) -> None:
        if isinstance(error, ModelError):
            self._reply(link, request, error.code, str(error), _EXECUTED[error.executed])
            return
        now = self._loop.time()
        if now - self._last_traceback_s >= _TRACEBACKS_EVERY_S:
            self._last_traceback_s = now
            log.error("model_raised", request_id=request.request_id, rows=request.rows, exc_info=error)
        self._reply(link, request, INTERNAL, describe(error), pb.EXECUTED_YES)

    def _refuse(self, link: Link, request: pb.Request, code: int, message: str) -> None:
        self._reply(link, request, code, message, pb.EXECUTED_NO)

    def _reply(self, link: Link, request: pb.Request, code: int, message: str, executed: pb.Executed) -> None:
        reply = link.frame_for(_ENVELOPE_BYTES + len(message)).replies.add()
        reply.id = request.id
        reply.code = code
        reply.message = message
        reply.executed = executed
        reply.digest = self._job.digest
        reply.final = True
