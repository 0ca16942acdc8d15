"""Every instrument of the router. Requests leave plain tuples and integers; they become series when scraped."""

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from threading import Lock
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from services.core import stages
from services.router.flight import Flight
from services.router.table import Target

_NAMES = (*stages.STAGES, stages.TOTAL)
# 10 µs to 20 s, about 1-2-5.
_BOUNDS_S = (
    *(1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2),
    *(2e-2, 5e-2, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0),
)
_BOUNDS_NS = np.array([bound * 1e9 for bound in _BOUNDS_S])
_BLOCK = 512  # samples of one target that are folded into its histograms at once

VersionKey = tuple[str, str]


class StageHistogram(Collector):
    """turnout_stage_seconds{model,version,stage}: folded in blocks, so that a request pays one list append."""

    def __init__(self) -> None:
        self._counts: dict[VersionKey, np.ndarray] = {}
        self._sums: dict[VersionKey, np.ndarray] = {}
        self._targets: dict[VersionKey, Target] = {}
        self._lock = Lock()  # scrapes run on a thread

    def follow(self, target: Target) -> None:
        """Take a target's samples from now on; what its predecessor left is folded."""
        key = (target.model, target.version)
        with self._lock:
            before = self._targets.get(key)
            if before is not None:
                self._fold(key, before)
            self._targets[key] = target
            self._counts.setdefault(key, np.zeros((len(_NAMES), len(_BOUNDS_S) + 1), dtype=np.int64))
            self._sums.setdefault(key, np.zeros(len(_NAMES)))

    def fold(self, target: Target) -> None:
        with self._lock:
            self._fold((target.model, target.version), target)

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(
            "turnout_stage_seconds",
            "Time of answered requests in each stage, and in total, as the router measured it.",
            labels=("model", "version", "stage"),
        )
        with self._lock:
            for key, target in self._targets.items():
                self._fold(key, target)
                for row, stage in enumerate(_NAMES):
                    cumulative = np.cumsum(self._counts[key][row]).tolist()
                    bounds = [*(f"{bound:g}" for bound in _BOUNDS_S), "+Inf"]
                    buckets = list(zip(bounds, cumulative, strict=True))
                    family.add_metric([*key, stage], buckets, float(self._sums[key][row]) / 1e9)
        yield family

    def describe(self) -> Iterable[Metric]:
        return ()

    def _fold(self, key: VersionKey, target: Target) -> None:
        samples = target.samples  # the loop may append meanwhile: what was not taken here stays
        taken = samples[:]
        if not taken:
            return
        del samples[: len(taken)]
        block = np.array(taken, dtype=np.float64).T
        self._sums[key] += block.sum(axis=1)
        counts = self._counts[key]
        for row, values in enumerate(block):
            counts[row] += np.bincount(np.searchsorted(_BOUNDS_NS, values), minlength=counts.shape[1])


class RequestCounts(Collector):
    """turnout_requests_total{model,version,arm,code}: a dictionary of integers until scraped."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str, str, int], int] = {}

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "turnout_requests",
            "Requests answered, by the version and arm that served them and the gRPC status code.",
            labels=("model", "version", "arm", "code"),
        )
        for (model, version, arm, code), count in list(self.counts.items()):
            family.add_metric([model, version, arm, str(code)], count)
        yield family

    def describe(self) -> Iterable[Metric]:
        return ()


class FrontTimes(Collector):
    """turnout_front_seconds{method,code}: calls as native fronts saw them, their queue before Python included."""

    def __init__(self) -> None:
        self.fronts: list[tuple[Callable[[], dict[str, Any]], str]] = []  # how to read one, and its hot method

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(
            "turnout_front_seconds",
            "Time of hot calls at the front door, from their first byte to their last, by gRPC status code.",
            labels=("method", "code"),
        )
        for read, method in self.fronts:
            counted = read()
            bounds = [*(f"{bound:g}" for bound in counted.get("bounds", ())), "+Inf"]
            for code, seen in counted.get("methods", {}).get(method, {}).get("status", {}).items():
                buckets = list(zip(bounds, accumulate(seen["buckets"]), strict=True))
                family.add_metric([method.rpartition("/")[2], str(code)], buckets, seen["sum"])
        if self.fronts:
            yield family

    def describe(self) -> Iterable[Metric]:
        return ()


class RouterMetrics:
    """What the router counts. Labels come from configuration only: an unknown model counts as model ""."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._stages = StageHistogram()
        self._requests = RequestCounts()
        self._fronts = FrontTimes()
        registry.register(self._fronts)
        registry.register(self._stages)
        registry.register(self._requests)
        self.mirrored = Counter("turnout_mirrored", "Requests copied to a comparator.", registry=registry)
        self._mirror_drops = Counter(
            "turnout_mirror_dropped", "Copies not sent, by reason.", ["reason"], registry=registry
        )
        self.recorders = Gauge("turnout_recorders", "Recorders that want requests of a model.", registry=registry)
        self.recorded = Counter("turnout_recorded", "Requests sent to a recorder.", registry=registry)
        self._record_drops = Counter(
            "turnout_record_dropped", "Records not sent, by reason.", ["reason"], registry=registry
        )
        self.cancelled = Counter("turnout_cancelled", "Requests whose caller went away.", registry=registry)
        self.retried = Counter("turnout_retried", "Requests sent to a second replica.", registry=registry)
        self.refused_early = Counter(
            "turnout_refused_early", "Calls refused before they were parsed.", ["reason"], registry=registry
        )
        self.refused_calls = Counter(
            "turnout_refused_calls",
            "Calls refused for who made them, by the caller (if known) and why.",
            ["caller", "reason"],
            registry=registry,
        )
        self.config_refused = Gauge(
            "turnout_config_refused",
            "Keys in etcd whose value is refused; the last good one serves.",
            registry=registry,
        )
        self.config_revision = Gauge("turnout_config_revision", "etcd revision in effect.", registry=registry)
        self.config_age = Gauge("turnout_config_age_seconds", "Seconds since etcd was last heard.", registry=registry)
        self.route_unready = Gauge(
            "turnout_route_unready_versions",
            "Canaries without a ready replica: their share goes to stable.",
            ["model"],
            registry=registry,
        )

    def follow(self, target: Target) -> None:
        self._stages.follow(target)

    def follow_front(self, read: Callable[[], dict[str, Any]], method: str) -> None:
        """Show what the native front counted of `method`, whenever scraped."""
        self._fronts.fronts.append((read, method))

    def answered(self, target: Target, arm: str, sample: tuple[int, ...]) -> None:
        """One answered request; `sample` has its durations in the order of STAGES and TOTAL (nanoseconds)."""
        samples = target.samples
        samples.append(sample)
        if len(samples) >= _BLOCK:
            self._stages.fold(target)
        key = (target.model, target.version, arm, 0)
        counts = self._requests.counts
        counts[key] = counts.get(key, 0) + 1

    def failed(self, flight: Flight, code: int) -> None:
        entry = getattr(flight, "entry", None)
        target = getattr(flight, "target", None)
        key = (entry.name if entry else "", target.version if target else "", flight.arm, code)
        counts = self._requests.counts
        counts[key] = counts.get(key, 0) + 1

    def mirror_dropped(self, reason: str) -> None:
        self._mirror_drops.labels(reason).inc()

    def record_dropped(self, reason: str) -> None:
        self._record_drops.labels(reason).inc()

    def refused(self, caller: str, reason: str) -> None:
        self.refused_calls.labels(caller, reason).inc()
