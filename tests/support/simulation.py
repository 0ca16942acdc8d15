"""A batcher under open load in simulated time: a device that takes base + per row, and links that take their time."""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from statistics import quantiles

from services.batcher.policy import BatchPolicy
from services.core.errors import OK, UNAVAILABLE
from tests.support.batching import MS, Bench, ints
from turnout.v1 import link_pb2 as pb

LEARNT_S = 1.0  # who came before does not count


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a request, as its caller saw it."""

    code: int
    latency_ms: float


class Simulation:
    """Poisson arrivals of one row at `rate` a second; `run` gives their outcomes."""

    def __init__(
        self, *, base_ms: float, row_ms: float, deadline_ms: float, way_ms: float = 0.15, link_ms: float = 0.3
    ) -> None:
        """`way_ms` to the worker, and back; `link_ms` from the caller, and back."""
        self._bench = Bench(BatchPolicy(max_batch_rows=64), slots=2)
        self._base_ms, self._row_ms, self._deadline_ms = base_ms, row_ms, deadline_ms
        self._way_ns, self._link_ns = round(way_ms * MS), round(link_ms * MS)
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self._at_worker: list[pb.Request] = []
        self._due: dict[int, int] = {}
        self.outcomes: dict[int, Outcome] = {}
        self.sizes: list[int] = []

    def run(self, rate: float, seconds: float, seed: int = 1) -> list[Outcome]:
        """Outcomes of who came after the first second."""
        rng, time = random.Random(seed), self._bench.time
        start = at = time.now
        for number in range(1, int(rate * seconds)):
            at += int(rng.expovariate(rate) * 1000 * MS)
            self._due[number] = at
            self._later(at + self._link_ns, partial(self._offer, number))
        while self._events:
            when, _, act = heapq.heappop(self._events)
            self._advance(when)
            act()
            self._collect()
        return [self.outcomes[number] for number, due in self._due.items() if due > start + LEARNT_S * 1000 * MS]

    def _later(self, at_ns: int, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at_ns, next(self._order), act))

    def _advance(self, when: int) -> None:
        """Move time on, and look after what alarms did: they ring a tenth of a millisecond off at most."""
        time = self._bench.time
        while time.now < when:
            time.advance(min(MS // 10, when - time.now))
            self._collect()

    def _offer(self, number: int) -> None:
        left_us = (self._due[number] + round(self._deadline_ms * MS) - self._bench.time.now) // 1000
        self._bench.offer(ints(number, (number,), deadline_us=max(1, left_us)))
        self._bench.batcher.pump(self._bench.time.now)

    def _collect(self) -> None:
        """Take what the batcher has put on its links."""
        now = self._bench.time.now
        for request in self._bench.puppet.link.take().requests:
            self._later(now + self._way_ns, partial(self._arrive, request))
        for reply in self._bench.link.take().replies:
            latency_ms = (now + self._link_ns - self._due[reply.id]) / MS
            self.outcomes[reply.id] = Outcome(reply.code, latency_ms)

    def _arrive(self, request: pb.Request) -> None:
        self._at_worker.append(request)
        if len(self._at_worker) == 1:
            self._begin()

    def _begin(self) -> None:
        request = self._at_worker[0]
        self.sizes.append(request.rows)
        takes = round((self._base_ms + self._row_ms * request.rows) * MS)
        self._later(self._bench.time.now + takes, partial(self._end, request, takes))

    def _end(self, request: pb.Request, took_ns: int) -> None:
        del self._at_worker[0]
        echo = partial(self._bench.puppet.echo, request, total_ns=took_ns)
        self._later(self._bench.time.now + self._way_ns, echo)
        if self._at_worker:
            self._begin()


def latencies(outcomes: list[Outcome], code: int) -> list[float]:
    return [outcome.latency_ms for outcome in outcomes if outcome.code == code]


def percentile(values: list[float], percent: int) -> float:
    return quantiles(values, n=100)[percent - 1]


def in_time(outcomes: list[Outcome], deadline_ms: float) -> int:
    return sum(latency_ms <= deadline_ms for latency_ms in latencies(outcomes, OK))


def refusals(outcomes: list[Outcome]) -> list[float]:
    return latencies(outcomes, UNAVAILABLE)
