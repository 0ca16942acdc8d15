"""Every instrument of the runtime."""

from collections import Counter as Tally

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_VERSION = ("model", "version")


class RuntimeMetrics:
    """Loads, failures and states of instances."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counted: set[tuple[str, str, str]] = set()
        self.loads = Counter(
            "turnout_runtime_loads", "Instances that became ready, restarts included.", _VERSION, registry=registry
        )
        self.failures = Counter(
            "turnout_runtime_failures",
            "Lives of instances that ended by themselves, by kind: artifact, place, load, exit, memory and so on.",
            (*_VERSION, "kind"),
            registry=registry,
        )
        self.load_seconds = Histogram(
            "turnout_runtime_load_seconds",
            "From the start of a worker process until it is ready.",
            ("framework",),
            buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300),
            registry=registry,
        )
        self.instances = Gauge(
            "turnout_runtime_instances", "Instances by state.", (*_VERSION, "state"), registry=registry
        )
        self.memory_bytes = Gauge(
            "turnout_runtime_worker_memory_bytes", "Resident memory of a worker.", ("instance",), registry=registry
        )
        self.refused = Gauge(
            "turnout_runtime_config_refused",
            "Keys in etcd whose value is refused; the last good one holds.",
            registry=registry,
        )

    def count(self, instances: Tally[tuple[str, str, str]]) -> None:
        """Set how many instances there are by (model, version, state)."""
        for gone in self._counted - instances.keys():
            self.instances.remove(*gone)
        for labels, number in instances.items():
            self.instances.labels(*labels).set(number)
        self._counted = set(instances)
