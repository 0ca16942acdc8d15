"""nv_inference_* of the whole fleet on the router's own port, where Triton's clients and dashboards look for them."""

from collections.abc import Callable, Iterator

from prometheus_client.metrics_core import Metric, UnknownMetricFamily
from prometheus_client.registry import Collector

from services.router.ledger import Ledger, executions, rows
from turnout.v1 import link_pb2 as pb

_LABELS = ["model", "version"]
_COUNTERS: dict[str, tuple[str, Callable[[pb.VersionStats], float]]] = {
    "request_success": ("Requests answered well.", lambda counted: counted.success),
    "count": ("Rows that models ran.", rows),
    "exec_count": ("Batches that models ran.", executions),
    "request_duration_us": (
        "Time in batcher and worker.",
        lambda counted: (counted.queue_ns + counted.input_ns + counted.compute_ns + counted.output_ns) / 1000,
    ),
    "queue_duration_us": ("Time in the queue.", lambda counted: counted.queue_ns / 1000),
    "compute_input_duration_us": ("Time to bring inputs to the model.", lambda counted: counted.input_ns / 1000),
    "compute_infer_duration_us": ("Time in the model.", lambda counted: counted.compute_ns / 1000),
    "compute_output_duration_us": ("Time to bring outputs back.", lambda counted: counted.output_ns / 1000),
}


class FleetCollector(Collector):
    """What replicas said last, about a second ago at most; read on the thread that scrapes are answered on."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def collect(self) -> Iterator[Metric]:
        """All of it."""
        totals = [self._ledger.total(*key) for key in sorted(self._ledger.keys())]
        for name, (text, read) in _COUNTERS.items():
            family = UnknownMetricFamily(f"nv_inference_{name}", text, labels=_LABELS)
            for total in totals:
                family.add_metric((total.model, total.version), read(total))
            yield family
        failures = UnknownMetricFamily(
            "nv_inference_request_failure", "Requests answered with an error.", labels=[*_LABELS, "reason"]
        )
        for total in totals:
            failures.add_metric((total.model, total.version, "OTHER"), total.fail)
        yield failures
