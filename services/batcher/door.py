"""The door of one model version's queue: who gets in, and what the others are told at once."""

from typing import NamedTuple

from services.batcher import tally as counted
from services.batcher.policy import ANSWER_NS, BatchPolicy
from services.batcher.queue import Queue
from services.batcher.request import MAX_TRIES, Pending
from services.batcher.service_time import ServiceTime
from services.batcher.worker import Worker
from services.core.errors import FAILED_PRECONDITION, INTERNAL, INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNAVAILABLE
from services.core.names import ModelVersion

_UNKNOWN_WAIT_US = 100_000  # retry hint before anything was measured
_LEAST_WAIT_US = 1000
_ROOM = 1.05  # of what a request is expected to need, in what it must have left to be let in
_ERRORS = 2.0  # and so many times what expectations usually are off
_RATE_SHARE = 0.5  # of the newest rate of arrival in what is expected


class Refusal(NamedTuple):
    """Why a request does not get in."""

    code: int
    message: str
    reason: int  # position in tally.REFUSALS
    retry_after_us: int = 0


class Door:
    """Looks at queue, limits and expected wait; changes nothing."""

    __slots__ = (
        "_looked_ns",
        "_name",
        "_queue",
        "_rows_per_ns",
        "_service",
        "_workers",
        "closed",
        "full_rows",
        "horizon_ns",
        "offered_rows",
        "plain_bytes",
        "plain_rows",
        "policy",
    )

    def __init__(
        self, name: ModelVersion, policy: BatchPolicy, queue: Queue, service: ServiceTime, workers: list[Worker]
    ) -> None:
        self.closed = ""  # why nobody gets in
        self._name = name
        self._queue = queue
        self._service = service
        self._workers = workers
        self.horizon_ns = 0.0  # nobody waits longer: a deadline beyond it needs no closer look
        self.offered_rows = 0  # since the last look ahead
        self._rows_per_ns = 0.0
        self._looked_ns = 0
        self.apply(policy)

    def apply(self, policy: BatchPolicy) -> None:
        """Judge by `policy` from now on."""
        self.policy = policy
        self.full_rows = 0 if any(level.max_rows for level in policy.levels) else policy.max_queue_rows
        self.plain_rows = min(policy.max_batch_rows, policy.max_request_rows)  # up to which neither refused nor cut
        self.plain_bytes = min(policy.max_request_bytes, policy.max_queue_bytes)  # in all; up to which none is refused

    def look_ahead(self, now_ns: int) -> None:
        """Reckon how much comes and how long the longest wait would be, after something was measured."""
        if self._looked_ns:
            rate = self.offered_rows / max(1, now_ns - self._looked_ns)
            self._rows_per_ns += (rate - self._rows_per_ns) * _RATE_SHARE
        self._looked_ns, self.offered_rows = now_ns, 0
        policy, service = self.policy, self._service
        whole_queue = policy.max_queue_rows + policy.max_request_rows
        batches = whole_queue / max(1, policy.max_batch_rows) + sum([worker.facts.slots for worker in self._workers])
        self.horizon_ns = 2 * (batches * service.base_ns + whole_queue * service.row_ns)

    def wait_ns(self, now_ns: int) -> float:
        """How long a request that comes now is expected to wait until its batch starts; 0 when not known."""
        workers = self._workers
        if not workers or not self._service.known(now_ns):
            return 0.0
        return self._busy_ns(now_ns) + self._queue.work_ns(max(1, self.policy.max_batch_rows)) / len(workers)

    def _busy_ns(self, now_ns: int) -> int:
        """Until the first worker is free."""
        soonest_ns = min([worker.busy_until_ns for worker in self._workers])
        return soonest_ns - now_ns if soonest_ns > now_ns else 0

    def retry_after_us(self, now_ns: int) -> int:
        """When what waits now should be gone."""
        wait_us = int(self.wait_ns(now_ns) / 1000)
        return max(_LEAST_WAIT_US, wait_us) if wait_us else _UNKNOWN_WAIT_US

    def before_reading(self, rows: int, level: int, now_ns: int) -> Refusal | None:
        """The refusals that need no look at the inputs; what waits at lower levels than `level` makes room."""
        policy, queue = self.policy, self._queue
        if self.closed:
            return Refusal(UNAVAILABLE, f"{self._name} {self.closed}", counted.NOT_READY, self.retry_after_us(now_ns))
        if rows > policy.max_request_rows:
            return Refusal(
                INVALID_ARGUMENT,
                f"request has {rows} rows, {self._name} takes at most {policy.max_request_rows} in one request",
                counted.INVALID,
            )
        waiting = queue.rows - queue.below(level)[0]
        if waiting + (rows or 1) > policy.max_queue_rows:
            return self._full("queue", waiting, policy.max_queue_rows, "rows", rows, now_ns)
        own = queue.levels.get(level)
        most = policy.wait_at(level).max_rows
        if most and own is not None and own.rows + (rows or 1) > most:
            return self._full(f"priority level {level}", own.rows, most, "rows", rows, now_ns)
        return None

    def _full(self, what: str, waiting: int, most: int, unit: str, more: int, now_ns: int) -> Refusal:
        retry_us = self.retry_after_us(now_ns)
        return Refusal(
            UNAVAILABLE,
            f"{what} of {self._name} is full: {waiting} of {most} {unit} wait, {more} more do not fit;"
            f" try again in {retry_us / 1000:.0f} ms",
            counted.QUEUE_BYTES if unit == "bytes" else counted.QUEUE_FULL,
            retry_us,
        )

    def by_size(self, size: int, level: int, now_ns: int) -> Refusal | None:
        """The refusals for `size` bytes of inputs; what waits at lower levels than `level` makes room."""
        policy, waiting = self.policy, self._queue.size - self._queue.below(level)[1]
        most = min(policy.max_request_bytes, policy.max_queue_bytes)  # what the whole queue cannot hold never fits
        if size > most:
            return Refusal(
                RESOURCE_EXHAUSTED,
                f"inputs have {size} bytes, {self._name} takes at most {most} in one request",
                counted.INVALID,
            )
        if waiting + size > policy.max_queue_bytes:
            return self._full("queue", waiting, policy.max_queue_bytes, "bytes", size, now_ns)
        return None

    def by_deadline(self, pending: Pending, now_ns: int) -> Refusal | None:
        """The refusal of what would be late: behind all rows ahead, in batches as large as they may be."""
        if not self._workers or not self._service.known(now_ns):
            return None
        ahead, service = int(self._queue.rows_before(pending.rank)), self._service
        left_ns, most = pending.deadline_ns - now_ns, max(1, self.policy.max_batch_rows)
        full, rest = divmod(ahead + pending.cost, most)
        wait_ns = self._busy_ns(now_ns) + (full if rest else full - 1) * service.predict_ns(most) / len(self._workers)
        lead_ns = min([worker.lead_ns for worker in self._workers])
        joining = (rest or most) + int(self._rows_per_ns * max(0, wait_ns - lead_ns))  # who come until it is sent
        own_ns = service.predict_ns(min(most, joining))
        need_ns = wait_ns + own_ns + ANSWER_NS
        if wait_ns:  # with room for error: who gets in and is late all the same is told late, and took others' place
            need_ns = need_ns * _ROOM + _ERRORS * service.error_ns
        if need_ns <= left_ns:
            return None
        return Refusal(
            UNAVAILABLE,
            f"{self._name} cannot answer in the {left_ns / 1e6:.1f} ms that are left: {wait_ns / 1e6:.1f} ms to wait"
            f" and {own_ns / 1e6:.1f} ms to run, with {ahead} rows ahead",
            counted.LATE,
            self.retry_after_us(now_ns),
        )

    def by_rest(self, tries: int, wanted_digest: str, digest: str) -> Refusal | None:
        """The refusals for what is rarely set."""
        if tries >= MAX_TRIES:
            return Refusal(INTERNAL, f"tried {tries} times already, the most is {MAX_TRIES}", counted.INVALID)
        if wanted_digest and wanted_digest != digest:
            message = f"{self._name} here has digest {digest}, the request wants {wanted_digest}"
            return Refusal(FAILED_PRECONDITION, message, counted.INVALID)
        return None
