"""Requests of decoupled models: generators that run side by side, an answer at a time, as far as readers let them.

A generator that is not async computes in the loop's own thread, as batches do; between two of its answers the others
have their turn, and what was cancelled is closed. Every request ends with exactly one final reply.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

import structlog
from numpy.typing import NDArray

from services.chassis.framing import MAX_OUTPUT_BYTES
from services.chassis.link import Link
from services.chassis.streamed import cost_of
from services.chassis.throttle import Throttle
from services.core.arrays import encode
from services.core.errors import CANCELLED, INTERNAL, INVALID_ARGUMENT, OK, RESOURCE_EXHAUSTED
from services.runtime.backends import Arrays, ModelError
from services.runtime.faults import describe
from services.runtime.job import Job
from services.runtime.running import Answers
from services.runtime.stamp import Stamp
from services.runtime.way import BadBatchError, Way, too_large
from turnout.v1 import link_pb2 as pb

_ENVELOPE_BYTES = 128  # a reply or tensor beside its data
_EXECUTED = {True: pb.EXECUTED_YES, False: pb.EXECUTED_NO, None: pb.EXECUTED_MAYBE}

log = structlog.get_logger()


class Stream:
    """One request that is being answered."""

    __slots__ = (
        "answers",
        "compute_ns",
        "count",
        "credit",
        "has_credit",
        "is_cancelled",
        "link",
        "number",
        "task",
        "wanted",
    )

    def __init__(self, link: Link, request: pb.Request, answers: Iterator[Any] | None) -> None:
        self.link = link
        self.number: int = request.id
        self.wanted = frozenset(request.outputs)
        self.credit: int = request.credit
        self.answers = answers  # None = they are awaited in `task`
        self.task: asyncio.Task[None] | None = None
        self.has_credit = asyncio.Event()
        self.has_credit.set()
        self.is_cancelled = False
        self.count = 0  # of answers sent
        self.compute_ns = 0


class Streams:
    """All that are under way in one worker: as many as its batcher gives it slots."""

    def __init__(self, begin: Callable[[Arrays], Answers], way: Way, stamp: Stamp, job: Job) -> None:
        self._begin = begin
        self._way = way
        self._stamp = stamp
        self._job = job
        self._known = frozenset(way.outputs)
        self._open: dict[tuple[Link, int], Stream] = {}
        self._ready: deque[Stream] = deque()  # those whose next answer may be computed
        self._is_scheduled = False
        self._raises = Throttle()
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._open)

    # -- what the executor calls

    def begin(self, link: Link, request: pb.Request, inputs: dict[str, NDArray]) -> None:
        """Begin to answer a request; its inputs may lie in memory that is someone else's when this returns."""
        stream = Stream(link, request, None)
        if not stream.credit:
            self._finish(stream, INVALID_ARGUMENT, "no credit for answers", pb.EXECUTED_NO)
            return
        self._open[link, stream.number] = stream
        lent = {tensor.name for tensor in request.inputs if tensor.HasField("block")}
        own = {name: array.copy() if name in lent else array for name, array in inputs.items()}
        self._stamp.begin(time.monotonic_ns())
        try:
            answers = self._begin(own)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a model raises is the request's own error
            self._raised(stream, error)
            return
        finally:
            self._stamp.end(time.monotonic_ns())
        if isinstance(answers, AsyncIterator):
            stream.task = self._loop.create_task(self._follow(stream, answers), name=f"stream-{stream.number}")
        else:
            stream.answers = answers
            self._make_ready(stream)

    def credited(self, link: Link, given: Iterable[pb.Credit]) -> None:
        """Readers have room for more."""
        for credit in given:
            stream = self._open.get((link, credit.id))
            if stream is None:
                continue
            was_out = stream.credit <= 0
            stream.credit += credit.bytes
            if was_out and stream.credit > 0:
                stream.has_credit.set()
                if stream.answers is not None:
                    self._make_ready(stream)

    def cancel(self, link: Link, numbers: Iterable[int]) -> None:
        """Nobody waits for these any more: each ends, and says so."""
        for number in numbers:
            stream = self._open.get((link, number))
            if stream is None:
                continue
            stream.is_cancelled = True
            self._close(stream)
            if stream.task is None:
                self._finish(stream, CANCELLED, "cancelled", pb.EXECUTED_YES)

    def forget(self, link: Link) -> None:
        """The link is gone, and its requests with it."""
        for key in [key for key in self._open if key[0] is link]:
            self._close(self._open.pop(key))

    # -- generators

    def _make_ready(self, stream: Stream) -> None:
        self._ready.append(stream)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Compute the next answer of whose turn it is; what came meanwhile is heard before the one after it."""
        self._is_scheduled = False
        stream = self._ready.popleft()
        if (stream.link, stream.number) in self._open:
            self._step(stream)
        if self._ready and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _step(self, stream: Stream) -> None:
        answers = stream.answers
        if answers is None:
            return
        began = time.monotonic_ns()
        self._stamp.begin(began)
        try:
            answer = next(answers)
            took_ns = time.monotonic_ns() - began
            self._send(stream, answer, took_ns)
        except StopIteration:
            self._finish(stream, OK, "", pb.EXECUTED_YES)
            return
        except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
            self._close(stream)
            self._raised(stream, error)
            return
        finally:
            self._stamp.end(time.monotonic_ns())
        if stream.credit > 0:
            self._make_ready(stream)
        else:
            stream.has_credit.clear()

    async def _follow(self, stream: Stream, answers: AsyncIterator[dict[str, NDArray]]) -> None:
        """The same for an async generator, which is cancelled where it waits; its end is told once it has ended."""
        end: BaseException | None = None
        try:
            await self._await_each(stream, answers)
        except (Exception, SystemExit, asyncio.CancelledError) as error:  # noqa: BLE001 - as above
            end = error
        await _aclose(answers)
        if (stream.link, stream.number) not in self._open:
            return
        if stream.is_cancelled:
            self._finish(stream, CANCELLED, "cancelled", pb.EXECUTED_YES)
        elif end is None:
            self._finish(stream, OK, "", pb.EXECUTED_YES)
        else:
            self._raised(stream, end)

    async def _await_each(self, stream: Stream, answers: AsyncIterator[dict[str, NDArray]]) -> None:
        most_s = self._job.max_execution_ms / 1000
        while not stream.is_cancelled:
            await stream.has_credit.wait()
            began = time.monotonic_ns()
            try:
                async with asyncio.timeout(most_s) as limit:
                    answer = await anext(answers)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if limit.expired():
                    text = f"no answer within limits.max_execution_ms {self._job.max_execution_ms}"
                    raise ModelError(INTERNAL, text) from None
                raise
            if not stream.is_cancelled:
                self._send(stream, answer, time.monotonic_ns() - began)
            if stream.credit <= 0:
                stream.has_credit.clear()
            await asyncio.sleep(0)  # one that never waits lets others have their turn

    def _close(self, stream: Stream) -> None:
        """Have the model stop: at the yield where it stands, or where it waits."""
        if stream.task is not None:
            stream.task.cancel()
            return
        answers: Any = stream.answers
        stream.answers = None
        if not hasattr(answers, "close"):
            return
        self._stamp.begin(time.monotonic_ns())
        try:
            answers.close()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - nobody waits for it
            self._log(stream, error)
        finally:
            self._stamp.end(time.monotonic_ns())

    # -- replies

    def _send(self, stream: Stream, answer: dict[str, NDArray], took_ns: int) -> None:
        """One answer, with those of its outputs that are wanted. Raises BadBatchError for one that is too large."""
        reply = pb.Reply(
            id=stream.number, executed=pb.EXECUTED_YES, seq=stream.count, batch_rows=1, digest=self._job.digest,
            stages_ns=(0, took_ns, 0), total_ns=took_ns,
        )  # fmt: skip
        for name, array in answer.items():
            if name not in (stream.wanted or self._known):
                continue
            datatype, data = encode(array)
            if len(data) > self._way.most_bytes:
                raise BadBatchError(
                    RESOURCE_EXHAUSTED, too_large("output", name, len(data), self._way.most_bytes, "an answer")
                )
            datatype = "BF16" if name in self._way.bf16 else datatype  # backends give its words
            reply.outputs.add(name=name, datatype=datatype, shape=array.shape, data=data)
        size = reply.ByteSize()
        if size > MAX_OUTPUT_BYTES:
            raise BadBatchError(RESOURCE_EXHAUSTED, f"an answer takes {size} bytes, over {MAX_OUTPUT_BYTES}")
        stream.link.frame_for(size).replies.append(reply)
        stream.count += 1
        stream.credit -= cost_of(reply)
        stream.compute_ns += took_ns

    def _raised(self, stream: Stream, error: BaseException) -> None:
        if isinstance(error, ModelError):
            self._finish(stream, error.code, str(error), _EXECUTED[error.executed])
        elif isinstance(error, BadBatchError):
            self._finish(stream, error.code, str(error), pb.EXECUTED_YES)
        else:
            self._log(stream, error)
            self._finish(stream, INTERNAL, describe(error), pb.EXECUTED_YES)

    def _log(self, stream: Stream, error: BaseException) -> None:
        requests = self._raises.count(time.monotonic_ns())
        if requests:
            log.error("model_raised", answers=stream.count, requests=requests, exc_info=error)

    def _finish(self, stream: Stream, code: int, message: str, executed: pb.Executed) -> None:
        self._open.pop((stream.link, stream.number), None)
        stream.link.frame_for(_ENVELOPE_BYTES + len(message)).replies.add(
            id=stream.number, code=code, message=message, executed=executed, seq=stream.count, final=True,
            stages_ns=(0, stream.compute_ns, 0), batch_rows=1, digest=self._job.digest,
        )  # fmt: skip


async def _aclose(answers: Any) -> None:
    """Run what an async generator does at its end, however it came to it."""
    if hasattr(answers, "aclose"):
        try:
            await answers.aclose()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - its request has ended
            log.warning("model_raised_at_its_end", reason=describe(error))
