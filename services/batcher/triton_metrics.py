"""The batcher's counters under the names that Triton's dashboards and autoscalers ask for.

They are counters by nature, but Prometheus's own client would put `_total` behind the names of any that say so.
"""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.metrics_core import GaugeMetricFamily, Metric, UnknownMetricFamily

from services.batcher.batcher import Batcher
from services.batcher.tally import Tally
from services.core.errors import DEADLINE_EXCEEDED, INTERNAL, OK, RESOURCE_EXHAUSTED, UNAVAILABLE
from services.core.stages import REMOTE

_LABELS = ["model", "version"]
_REJECTED = (UNAVAILABLE, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED)


def _us(*stages: str) -> Callable[[Tally], float]:
    """Reads microseconds spent in `stages`, summed over the requests that were answered well."""
    positions = [REMOTE.index(stage) for stage in stages]
    return lambda tally: sum(tally.stages_ns[position] for position in positions) / 1000


_COUNTERS: dict[str, tuple[str, Callable[[Tally], float]]] = {
    "request_success": ("Requests answered well.", lambda tally: tally.by_code[OK]),
    "count": ("Rows that the model ran.", lambda tally: tally.rows),
    "exec_count": ("Batches that the model ran.", lambda tally: tally.executions),
    "request_duration_us": ("Time in batcher and worker.", _us(*REMOTE)),
    "queue_duration_us": ("Time in the queue.", _us("queue")),
    "compute_input_duration_us": ("Time to bring inputs to the model.", _us("assemble", "worker_wait", "h2d")),
    "compute_infer_duration_us": ("Time in the model.", _us("compute")),
    "compute_output_duration_us": ("Time to bring outputs back.", _us("d2h", "scatter")),
}


def triton_metrics(batchers: Iterable[Batcher]) -> Iterator[Metric]:
    """nv_inference_*: as Triton means them; times are of requests that were answered well."""
    batchers = list(batchers)
    for name, (text, read) in _COUNTERS.items():
        family = UnknownMetricFamily(f"nv_inference_{name}", text, labels=_LABELS)
        for batcher in batchers:
            family.add_metric(batcher.name, read(batcher.lobby.tally))
        yield family
    failures = UnknownMetricFamily(
        "nv_inference_request_failure", "Requests answered with an error, by reason.", labels=[*_LABELS, "reason"]
    )
    pending = GaugeMetricFamily("nv_inference_pending_request_count", "Requests in the queue.", labels=_LABELS)
    for batcher in batchers:
        for reason, count in _failures(batcher.lobby.tally):
            failures.add_metric((*batcher.name, reason), count)
        pending.add_metric(batcher.name, batcher.lobby.queue.count)
    yield failures
    yield pending


def _failures(tally: Tally) -> Iterator[tuple[str, int]]:
    rejected = sum(tally.by_code[code] for code in _REJECTED)
    backend = tally.by_code[INTERNAL]
    yield "REJECTED", rejected
    yield "CANCELED", sum(tally.cancelled)
    yield "BACKEND", backend
    yield "OTHER", sum(tally.by_code[1:]) - rejected - backend
