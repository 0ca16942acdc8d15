"""The load generator, a process of its own: a Job a line on stdin, what came of it a line on stdout.

Open loop: each request is sent when its schedule says, whatever became of those before it, and its latency counts from
that instant, so that a stall is charged to everyone it would have hit. It says how late it was itself: a run whose
generator fell behind is no measurement.
"""

import contextlib
import gc
import json
import os
import sys
from collections.abc import Callable
from select import select
from time import perf_counter_ns

import numpy as np

from loadtest.batching.arrivals import schedule
from loadtest.batching.calls import NOTHING, Calls, Headers, Ledger, LostError, headers_for
from loadtest.batching.job import Job
from loadtest.batching.outcome import summary
from loadtest.batching.payloads import payloads_of
from loadtest.batching.sleeping import sleep_exactly

CONNECTIONS = 4
_FIRST = -10  # niceness
_GRACE_NS = 1_000_000_000  # a closed loop waits so long after a deadline
_TIMEOUT_STEP_US = 500  # deadlines are rounded down to it, so that few headers are new
_SETTLE_NS = 3_000_000_000
_PATIENCE_NS = 10_000_000  # after a deadline: the router's own word on it is worth waiting for


class Generator:
    """Connections to one router, kept from run to run."""

    def __init__(self) -> None:
        self._address = ""
        self._calls: list[Calls] = []
        self._headers: dict[int, Headers] = {}

    def run(self, job: Job) -> dict[str, object]:
        """Do it, and say what came of it. Raises LostError, or OSError when nobody listens."""
        self._connect(job.address)
        return self._open_loop(job) if job.rate else self._closed_loop(job)

    def _connect(self, address: str) -> None:
        if address == self._address:
            return
        for calls in self._calls:
            calls.close()
        self._address, self._headers = address, {}
        self._calls = [Calls(address) for _ in range(CONNECTIONS)]

    def _begin(self, count: int, *, keeps_words: bool) -> Ledger:
        ledger = Ledger(count, keeps_words=keeps_words)
        for calls in self._calls:
            calls.begin(ledger)
        gc.collect()
        gc.disable()
        return ledger

    def _open_loop(self, job: Job) -> dict[str, object]:
        warm_up = schedule(job.arrivals, job.rate, job.warm_s, job.seed) - 1e-9  # before the window, the last one too
        due_s = np.concatenate([warm_up, job.warm_s + schedule(job.arrivals, job.rate, job.window_s, job.seed + 1)])
        payloads, count = payloads_of(job), len(due_s)
        ledger = self._begin(count, keeps_words=True)
        deadline_ns = int(job.deadline_ms * 1e6)
        started_ns = perf_counter_ns() + 10_000_000
        due = [started_ns + round(1e9 * at) for at in due_s]
        self._pump(due, deadline_ns, ledger, payloads.message)
        self._settle()
        gc.enable()
        return summary(job, due_s, started_ns, ledger, payloads.wrong(ledger.answers()))

    def _pump(self, due: list[int], deadline_ns: int, ledger: Ledger, message_of: Callable[[int], bytes]) -> None:
        """Send every request when it is due, take the answers, and give up what is overdue."""
        everyone, count, sent, over = self._calls, len(due), 0, 0
        patience_ns = deadline_ns + _PATIENCE_NS
        while ledger.left:
            now_ns = perf_counter_ns()
            if sent < count and due[sent] <= now_ns:
                touched = set()
                while sent < count and due[sent] <= now_ns:
                    calls = everyone[sent % CONNECTIONS]
                    calls.call(sent, self._headers_within(due[sent] + deadline_ns - now_ns), message_of(sent))
                    ledger.sent_ns[sent] = now_ns
                    touched.add(calls)
                    sent += 1
                for calls in touched:
                    calls.flush()
                now_ns = perf_counter_ns()
            while over < sent and due[over] + patience_ns <= now_ns:
                ledger.expire(over, now_ns)
                over += 1
            if over == count:
                return
            next_ns = due[over] + patience_ns
            self._wait((min(due[sent], next_ns) if sent < count else next_ns) - now_ns)

    def _settle(self) -> None:
        """Wait until the router has done with everything, overdue calls too: the next run starts fresh."""
        until_ns = perf_counter_ns() + _SETTLE_NS
        while any(calls.open for calls in self._calls) and (left_ns := until_ns - perf_counter_ns()) > 0:
            self._wait(left_ns)

    def _wait(self, left_ns: int) -> None:
        """Take what comes within `left_ns`, and return as soon as something did."""
        stuck = [calls for calls in self._calls if calls.unsent]
        readable, writable, _ = select(self._calls, stuck, (), max(0, left_ns) / 1e9)
        if readable:
            now_ns = perf_counter_ns()
            for calls in readable:
                calls.receive(now_ns)
        for calls in writable:
            calls.flush()

    def _headers_within(self, left_ns: int) -> Headers:
        """Headers with the deadline that the caller has left, who counts from when the request was due."""
        step = max(1, left_ns // (1000 * _TIMEOUT_STEP_US))
        found = self._headers.get(step)
        if found is None:
            found = self._headers[step] = headers_for(self._address, step * _TIMEOUT_STEP_US)
        return found

    def _closed_loop(self, job: Job) -> dict[str, object]:
        """One request at a time, as many as the window takes. Its stages are asked for."""
        most = 1 + int(20_000 * (job.warm_s + job.window_s))
        payloads = payloads_of(job)
        ledger = self._begin(most, keeps_words=False)
        headers = headers_for(self._address, round(job.deadline_ms * 1000), timings=job.timings)
        started_ns = perf_counter_ns()
        end_ns = started_ns + round(1e9 * (job.warm_s + job.window_s))
        due_s: list[float] = []
        calls = self._calls[0]
        for number in range(most):
            now_ns = perf_counter_ns()
            if now_ns > end_ns:
                break
            due_s.append((now_ns - started_ns) / 1e9)
            calls.call(number, headers, payloads.message(number))
            ledger.sent_ns[number] = now_ns
            calls.flush()
            while ledger.codes[number] == NOTHING and perf_counter_ns() < now_ns + _GRACE_NS + job.deadline_ms * 1e6:
                self._wait(_GRACE_NS)
        gc.enable()
        return summary(job, due_s, started_ns, ledger, payloads.wrong(ledger.answers()))


def main() -> None:
    sleep_exactly()
    with contextlib.suppress(PermissionError):  # callers are elsewhere in life, and do not wait for the mesh's cores
        os.setpriority(os.PRIO_PROCESS, 0, _FIRST)
    generator = Generator()
    for line in sys.stdin:
        try:
            outcome = generator.run(Job.parse(line))
        except (LostError, OSError) as error:
            outcome = {"error": str(error)}
            generator = Generator()
        print(json.dumps(outcome), flush=True)


if __name__ == "__main__":
    main()
