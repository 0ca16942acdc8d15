"""What was filled up, for the versions whose rows differ in length."""

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from services.batcher.batcher import Batcher


def padding_metrics(batchers: list[Batcher]) -> Iterator[Metric]:
    """Positions (places of rows along dimension 1) that callers sent and that were filled up; their share by batch."""
    positions = CounterMetricFamily(
        "turnout_batcher_positions",
        "Places of rows along dimension 1 in launched batches: sent by callers, or filled up beside them.",
        labels=["model", "version", "kind"],
    )
    shares = HistogramMetricFamily(
        "turnout_batcher_padding_share",
        "Share of each launched batch that was filled up.",
        labels=["model", "version"],
    )
    for batcher in batchers:
        if batcher.lobby.intake.padder is None:
            continue
        padding = batcher.padding
        positions.add_metric((*batcher.name, "real"), padding.real)
        positions.add_metric((*batcher.name, "filled"), padding.filled)
        bounds = [*map(floatToGoString, padding.shares.bounds), "+Inf"]
        buckets = list(zip(bounds, accumulate(padding.shares.counts), strict=True))
        shares.add_metric(batcher.name, buckets, padding.shares.sum)
    yield positions
    yield shares
