"""Every metric of the batcher, read from plain counters when scraped: nothing is paid per request."""

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from services.batcher.batcher import Batcher
from services.batcher.padding_metrics import padding_metrics
from services.batcher.policy import SHADOW_LEVEL
from services.batcher.sequence_metrics import sequence_families
from services.batcher.servicer import CallerLinks
from services.batcher.serving import Serving
from services.batcher.tally import PLACES, REFUSALS, SHED, Histogram, Tally
from services.batcher.triton_metrics import triton_metrics
from services.core.stages import REMOTE

_LABELS = ["model", "version"]
Parts = Iterable[tuple[str, float]]


class BatcherCollector(Collector):
    """Give it to the registry; it reads what is there at that moment."""

    def __init__(self, serving: Serving, links: CallerLinks) -> None:
        self._serving = serving
        self._links = links

    def collect(self) -> Iterator[Metric]:
        """All of it."""
        batchers = list(self._serving.batchers.values())
        yield GaugeMetricFamily("turnout_batcher_links", "Open links of callers.", len(self._links))
        yield CounterMetricFamily(
            "turnout_batcher_unserved", "Requests for versions that are not served here.", self._links.refused
        )
        for name, (text, read) in _GAUGES.items():
            yield _gauge(name, text, batchers, read)
        for name, (text, count) in _COUNTERS.items():
            yield _counter(name, text, batchers, count)
        for name, (text, label, split) in _SPLIT_COUNTERS.items():
            yield _split_counter(name, text, label, batchers, split)
        for name, (text, histogram) in _HISTOGRAMS.items():
            yield _histogram(name, text, batchers, histogram)
        yield _level_rows(batchers)
        yield from padding_metrics(batchers)
        yield from sequence_families(batchers)
        yield from triton_metrics(batchers)


_GAUGES: dict[str, tuple[str, Callable[[Batcher], float]]] = {
    "queue_rows": ("Rows waiting.", lambda batcher: batcher.lobby.queue.rows),
    "queue_bytes": ("Bytes of inputs waiting.", lambda batcher: batcher.lobby.queue.size),
    "in_flight_batches": ("Batches with the workers.", lambda batcher: batcher.in_flight),
    "workers": ("Instances whose link is open.", lambda batcher: len(batcher.workers)),
    "quarantined": (
        "Inputs refused because they ended workers.",
        lambda batcher: len(batcher.lobby.quarantine.until_ns),
    ),
    "service_base_seconds": (
        "Learnt: time of a batch without its rows.",
        lambda batcher: batcher.service.base_ns / 1e9,
    ),
    "service_row_seconds": ("Learnt: time of one more row.", lambda batcher: batcher.service.row_ns / 1e9),
    "batching_gain": (
        "Learnt: how many times more rows a second batches of max_batch_size give than single rows.",
        lambda batcher: batcher.service.gain(max(1, batcher.policy.max_batch_rows)),
    ),
    "chosen_rows": ("Rows of the largest batch now; target_p99_ms adapts it.", lambda batcher: batcher.tuner.form.rows),
    "chosen_delay_seconds": (
        "Longest wait for a fuller batch now; target_p99_ms adapts it.",
        lambda batcher: batcher.tuner.form.delay_ns / 1e9,
    ),
    "device_seconds": (
        "Compute time used, by weight: of queues that wait, the one with the least is served next.",
        lambda batcher: batcher.launcher.used / 1e9,
    ),
}

_COUNTERS: dict[str, tuple[str, Callable[[Tally], float]]] = {
    "raised_batches": ("Batches whose model raised.", lambda tally: tally.raised),
    "search_launches": ("Launches to find what made a batch raise.", lambda tally: tally.search_launches),
    "suspect_launches": ("Requests run again alone after their worker died.", lambda tally: tally.suspect_launches),
    "streamed_answers": ("Answers of a decoupled model.", lambda tally: tally.streamed),
    "worker_deaths": ("Workers lost with batches on them.", lambda tally: tally.deaths),
}

_SPLIT_COUNTERS: dict[str, tuple[str, str, Callable[[Tally], Parts]]] = {
    "requests": (
        "Requests answered, by gRPC status.",
        "code",
        lambda tally: ((str(code), count) for code, count in enumerate(tally.by_code) if count or code == 0),
    ),
    "refused": (
        "Requests refused at the door, by reason.",
        "reason",
        lambda tally: zip(REFUSALS, tally.refused, strict=True),
    ),
    "shed": (
        "Requests let go after they were let in, by reason.",
        "reason",
        lambda tally: zip(SHED, tally.shed, strict=True),
    ),
    "cancelled": (
        "Requests whose caller left, by where they were.",
        "stage",
        lambda tally: zip(PLACES, tally.cancelled, strict=True),
    ),
    "expired": (
        "Requests whose time was over, by where they were.",
        "stage",
        lambda tally: zip(PLACES, tally.expired, strict=True),
    ),
    "stage_seconds": (
        "Time of requests that were answered well, by stage.",
        "stage",
        lambda tally: ((stage, ns / 1e9) for stage, ns in zip(REMOTE, tally.stages_ns, strict=True)),
    ),
}

_HISTOGRAMS: dict[str, tuple[str, Callable[[Tally], Histogram]]] = {
    "batch_rows": ("Rows of each launched batch.", lambda tally: tally.batch_rows),
    "service_seconds": ("Time each batch had a worker to itself.", lambda tally: tally.service_s),
}


def _gauge(name: str, text: str, batchers: list[Batcher], read: Callable[[Batcher], float]) -> Metric:
    family = GaugeMetricFamily(f"turnout_batcher_{name}", text, labels=_LABELS)
    for batcher in batchers:
        family.add_metric(batcher.name, read(batcher))
    return family


def _level_rows(batchers: list[Batcher]) -> Metric:
    family = GaugeMetricFamily(
        "turnout_batcher_level_rows", "Rows waiting at each priority level.", labels=[*_LABELS, "level"]
    )
    for batcher in batchers:
        for number, level in sorted(batcher.lobby.queue.levels.items()):
            family.add_metric((*batcher.name, "shadow" if number == SHADOW_LEVEL else str(number)), level.rows)
    return family


def _counter(name: str, text: str, batchers: list[Batcher], count: Callable[[Tally], float]) -> Metric:
    family = CounterMetricFamily(f"turnout_batcher_{name}", text, labels=_LABELS)
    for batcher in batchers:
        family.add_metric(batcher.name, count(batcher.lobby.tally))
    return family


def _split_counter(
    name: str, text: str, label: str, batchers: list[Batcher], split: Callable[[Tally], Parts]
) -> Metric:
    family = CounterMetricFamily(f"turnout_batcher_{name}", text, labels=[*_LABELS, label])
    for batcher in batchers:
        for part, count in split(batcher.lobby.tally):
            family.add_metric((*batcher.name, part), count)
    return family


def _histogram(name: str, text: str, batchers: list[Batcher], read: Callable[[Tally], Histogram]) -> Metric:
    family = HistogramMetricFamily(f"turnout_batcher_{name}", text, labels=_LABELS)
    for batcher in batchers:
        histogram = read(batcher.lobby.tally)
        sums = list(accumulate(histogram.counts))
        bounds = [*(floatToGoString(bound) for bound in histogram.bounds), "+Inf"]
        family.add_metric(batcher.name, list(zip(bounds, sums, strict=True)), histogram.sum)
    return family
