"""Metrics of the comparator, read from the same tallies as its report, so that the two never disagree."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from services.shadow.runner import Runner
from services.shadow.sketch import Sketch
from services.shadow.tally import OutputTally, Tallies, Tally

_PAIR = ("model", "served", "candidate")
_BOUNDS_S = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class ShadowCollector(Collector):
    """Families made at each scrape; labels are the pairs that tallies exist for, so bounded as these are."""

    def __init__(self, tallies: Tallies, runner: Runner) -> None:
        self._tallies = tallies
        self._runner = runner

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        tallies = list(self._tallies)
        yield from _counters(tallies)
        yield from _outputs(tallies)
        yield _computes(tallies)
        lanes = self._runner.lanes
        yield GaugeMetricFamily("turnout_shadow_pending", "Mirrors held: waiting or running", lanes.jobs)
        yield GaugeMetricFamily("turnout_shadow_pending_bytes", "Bytes held for them", lanes.size_bytes)
        uncounted = CounterMetricFamily(
            "turnout_shadow_uncounted_mirrors", "Mirrors that belong to no comparison", labels=["reason"]
        )
        for reason, count in self._runner.uncounted.copy().items():
            uncounted.add_metric([reason], count)
        yield uncounted


def _counters(tallies: list[Tally]) -> Iterator[Metric]:
    mirrored = CounterMetricFamily("turnout_shadow_mirrors", "Mirrors that came in", labels=_PAIR)
    compared = CounterMetricFamily("turnout_shadow_compared", "Mirrors whose candidate answered", labels=_PAIR)
    rows = CounterMetricFamily("turnout_shadow_compared_rows", "Rows of these", labels=_PAIR)
    errors = CounterMetricFamily("turnout_shadow_errors", "Candidate failures", labels=(*_PAIR, "code"))
    dropped = CounterMetricFamily("turnout_shadow_dropped", "Mirrors not run", labels=(*_PAIR, "reason"))
    since = GaugeMetricFamily("turnout_shadow_since_seconds", "Unix time when counts began", labels=_PAIR)
    for tally in tallies:
        pair, counts = list(tally.pair), tally.counts
        mirrored.add_metric(pair, counts.mirrored)
        compared.add_metric(pair, counts.compared)
        rows.add_metric(pair, counts.rows)
        since.add_metric(pair, counts.since_s)
        for code, count in counts.errors.copy().items():
            errors.add_metric([*pair, code], count)
        for reason, count in counts.dropped.copy().items():
            dropped.add_metric([*pair, reason], count)
    yield from (mirrored, compared, rows, errors, dropped, since)


def _outputs(tallies: list[Tally]) -> Iterator[Metric]:
    labels = (*_PAIR, "output")
    rows = CounterMetricFamily("turnout_shadow_output_rows", "Rows compared", labels=labels)
    agreeing = CounterMetricFamily("turnout_shadow_agreeing_rows", "Rows that agree", labels=labels)
    incomparable = CounterMetricFamily(
        "turnout_shadow_incomparable_rows", "Rows whose type, shape or finiteness differs", labels=labels
    )
    agreement = GaugeMetricFamily("turnout_shadow_agreement_ratio", "Share of rows that agree", labels=labels)
    mean = GaugeMetricFamily("turnout_shadow_mean_abs_difference", "Mean difference of a score", labels=labels)
    largest = GaugeMetricFamily("turnout_shadow_max_abs_difference", "Largest difference of a score", labels=labels)
    for values, output in _each_output(tallies):
        rows.add_metric(values, output.rows)
        agreeing.add_metric(values, output.agreeing_rows)
        incomparable.add_metric(values, output.incomparable_rows)
        agreement.add_metric(values, output.agreement())
        if output.kind == "score":
            mean.add_metric(values, output.mean_abs())
            largest.add_metric(values, output.max_abs)
    yield from (rows, agreeing, incomparable, agreement, mean, largest)


def _each_output(tallies: list[Tally]) -> Iterator[tuple[list[str], OutputTally]]:
    for tally in tallies:
        for name, output in tally.counts.outputs.copy().items():
            yield [*tally.pair, name], output


def _computes(tallies: list[Tally]) -> Metric:
    family = HistogramMetricFamily(
        "turnout_shadow_compute_seconds", "The model's own time for compared requests", labels=(*_PAIR, "side")
    )
    for tally in tallies:
        for side, sketch in (("served", tally.counts.served), ("candidate", tally.counts.candidate)):
            family.add_metric([*tally.pair, side], *_histogram(sketch))
    return family


def _histogram(sketch: Sketch) -> tuple[list[tuple[str, float]], float]:
    below = sketch.at_most(_BOUNDS_S)
    buckets = [(str(bound), float(count)) for bound, count in zip(_BOUNDS_S, below, strict=True)]
    return [*buckets, ("+Inf", float(max(sketch.count, below[-1])))], sketch.sum_s
