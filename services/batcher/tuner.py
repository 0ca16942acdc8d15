"""Rows of a batch and its delay, adapted to a target for the p99 of the time in the batcher. Pure; driven by batches.

Additive increase, multiplicative decrease, as in Crankshaw et al., "Clipper: a low-latency online prediction serving
system" (2017), but in two loops, since the two causes of lateness want opposite cures. A batch that *runs* too long
must get smaller; requests that *wait* too long, while batches leave before they are full, must not be delayed. What
waits because all batches are full is overload: smaller batches would only make it worse.
"""

from services.batcher.policy import BatchForm, BatchPolicy
from services.batcher.service_time import ServiceTime

_RUN_SHARE = 0.5  # of the target: a request waits for the batch before its own, at worst
_DOWN = 0.9
_STEPS = 32  # from nothing to the most that the policy allows
_WINDOW = 200  # requests; of fewer, one in a hundred is no number
_LATE_SHARE = 0.01
_FEWEST = 32  # batches before anything is said of that
_LEAST_GAIN = 1.05  # of throughput, full batches against single rows: with less, no batch is worth a wait


class Tuner:
    """What batches should be like now: `form`. Without a target it is what the policy says."""

    __slots__ = ("_answered", "_delay_share", "_late", "_policy", "_rows", "form")

    def __init__(self, policy: BatchPolicy) -> None:
        self._rows = 0.0
        self._delay_share = 1.0
        self._late = self._answered = 0
        self.apply(policy)

    def apply(self, policy: BatchPolicy) -> None:
        """Go by `policy` from now on; what was learnt is kept as far as it still fits."""
        self._policy = policy
        most = policy.max_batch_rows
        self._rows = min(self._rows or most, most) if policy.target_ns else most
        self._delay_share = self._delay_share if policy.target_ns else 1.0
        self._shape()

    def ran(self, rows: int, took_ns: int, latest_ns: int, requests: int, service: ServiceTime) -> None:
        """Learn from a batch of `rows` rows and `requests` requests that had a worker for `took_ns`.

        `latest_ns`: what the slowest of them took from its arrival to its answer; looked at only with a target.
        """
        policy = self._policy
        if not policy.target_ns:
            if policy.delay_ns and bool(self.form.delay_ns) != self._is_worth_waiting(service):
                self._shape(service)
            return
        if took_ns > policy.target_ns * _RUN_SHARE:
            self._rows = max(1.0, min(self._rows, rows) * _DOWN)
        elif rows >= self.form.rows:
            self._rows = min(policy.max_batch_rows, self._rows + max(0.25, policy.max_batch_rows / _STEPS / 8))
        self._answered += requests
        if latest_ns > policy.target_ns and rows < self.form.rows:
            self._late += 1
        if self._answered >= _WINDOW:
            if self._late > self._answered * _LATE_SHARE:
                self._delay_share *= 0.5
            else:
                self._delay_share = min(1.0, self._delay_share + 1 / _STEPS)
            self._late = self._answered = 0
        self._shape(service)

    def _is_worth_waiting(self, service: ServiceTime) -> bool:
        """Whether larger batches give more rows a second at all."""
        return service.samples < _FEWEST or service.gain(self._policy.max_batch_rows) >= _LEAST_GAIN

    def _shape(self, service: ServiceTime | None = None) -> None:
        policy, rows = self._policy, int(self._rows)
        delay_ns = int(policy.delay_ns * self._delay_share)
        if service is not None and not self._is_worth_waiting(service):
            delay_ns = 0
        preferred = policy.preferred_rows
        if rows < policy.max_batch_rows:
            preferred = tuple(size for size in preferred if size <= rows)
        self.form = BatchForm(rows, delay_ns, preferred)
