"""Metrics of the sequences of models that keep state: plain counters, read when scraped."""

from collections.abc import Iterable, Iterator

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from services.batcher.batcher import Batcher
from services.batcher.sequence_batcher import SequenceBatcher
from services.batcher.sequences import REASONS

_LABELS = ["model", "version"]


def sequence_families(batchers: Iterable[Batcher]) -> Iterator[Metric]:
    """Those that have a place, those that wait for one, and how others were over."""
    seated = GaugeMetricFamily(
        "turnout_batcher_sequences", "Sequences that have a place with a worker.", labels=_LABELS
    )
    waiting = GaugeMetricFamily("turnout_batcher_sequences_waiting", "Sequences that wait for a place.", labels=_LABELS)
    over = CounterMetricFamily(
        "turnout_batcher_sequences_over", "Sequences that are over, by reason.", labels=[*_LABELS, "reason"]
    )
    for batcher in batchers:
        if isinstance(batcher, SequenceBatcher):
            table = batcher.lobby.queue.table
            seated.add_metric(batcher.name, len(table) - len(table.backlog))
            waiting.add_metric(batcher.name, len(table.backlog))
            for reason, count in zip(REASONS, table.ended, strict=True):
                over.add_metric((*batcher.name, reason), count)
    yield from (seated, waiting, over)
