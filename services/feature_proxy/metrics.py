"""Every instrument of the feature proxy. The label `view` takes names under feature_views/, never a caller's text."""

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from services.feature_proxy.feature_view import Status

_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)


class Metrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._lookups = Counter(
            "turnout_feature_lookups", "Look-ups answered, by gRPC status code.", ["code"], registry=registry
        )
        self._ok = self._lookups.labels("0")
        self._seconds = Histogram(
            "turnout_feature_lookup_seconds",
            "From look-up parsed to answer written.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._rows = Counter(
            "turnout_feature_rows",
            "Rows answered, by the worst status of their columns.",
            ["view", "status"],
            registry=registry,
        )
        self._cache_hits = Counter(
            "turnout_feature_cache_hits", "Entities that needed no read.", ["view"], registry=registry
        )
        self._reads = Counter("turnout_feature_store_keys", "Entities read in stores.", ["view"], registry=registry)
        self._store_seconds = Histogram(
            "turnout_feature_store_seconds",
            "Round trips to stores that succeeded.",
            ["view"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._store_errors = Counter(
            "turnout_feature_store_errors",
            "Round trips to stores that failed: error, timeout, or skipped (left alone after failures in a row).",
            ["view", "reason"],
            registry=registry,
        )
        self._defaulted = Counter(
            "turnout_feature_defaulted_lookups",
            "Look-ups that got defaults because a store failed or was late.",
            ["view"],
            registry=registry,
        )
        self.views = Gauge("turnout_feature_views", "Feature views that can be asked for.", registry=registry)
        self.refused = Gauge(
            "turnout_feature_view_refused",
            "1 for each view whose newest value in etcd was refused.",
            ["view"],
            registry=registry,
        )
        self.in_flight = Gauge("turnout_feature_lookups_in_flight", "Look-ups being answered.", registry=registry)

    def answered(self, code: int, seconds: float) -> None:
        (self._ok if code == 0 else self._lookups.labels(str(code))).inc()
        self._seconds.observe(seconds)

    def assembled(self, view: str, statuses: NDArray[np.uint8]) -> None:
        """Count rows; `statuses` is uint8 [rows, columns]."""
        if not statuses.size:
            return
        if not statuses.any():
            self._rows.labels(view, Status.PRESENT.name).inc(len(statuses))
            return
        counts = np.bincount(statuses.max(axis=1), minlength=len(Status))
        for status, count in zip(Status, counts.tolist(), strict=True):
            if count:
                self._rows.labels(view, status.name).inc(count)

    def cache_hits(self, view: str, entities: int) -> None:
        self._cache_hits.labels(view).inc(entities)

    def store_answered(self, view: str, entities: int, seconds: float) -> None:
        self._reads.labels(view).inc(entities)
        self._store_seconds.labels(view).observe(seconds)

    def store_failed(self, view: str, reason: str) -> None:
        """`reason` is error, timeout or skipped."""
        self._store_errors.labels(view, reason).inc()

    def defaulted(self, view: str) -> None:
        self._defaulted.labels(view).inc()
