"""Tallies as turnout.v1.ReportResponse."""

from collections.abc import Iterable

from services.shadow.sketch import Sketch
from services.shadow.tally import OutputTally, Tally
from turnout.v1 import shadow_pb2 as pb


def report(tallies: Iterable[Tally], model: str = "") -> pb.ReportResponse:
    """Every pair of `model`, or of all models when it is empty. Latencies are the model's own compute time."""
    return pb.ReportResponse(candidates=[_candidate(tally) for tally in tallies if model in ("", tally.pair.model)])


def _candidate(tally: Tally) -> pb.CandidateReport:
    counts = tally.counts
    return pb.CandidateReport(
        model=tally.pair.model,
        served_version=tally.pair.served,
        candidate_version=tally.pair.candidate,
        served_digest=tally.digests.served,
        candidate_digest=tally.digests.candidate,
        since_s=counts.since_s,
        mirrored=counts.mirrored,
        compared=counts.compared,
        rows=counts.rows,
        errors=counts.errors,
        dropped=counts.dropped,
        outputs=[_output(name, output) for name, output in counts.outputs.items()],
        served_latency=_latency(counts.served),
        candidate_latency=_latency(counts.candidate),
        worst=[example for name, output in counts.outputs.items() for example in _worst(name, output)],
    )


def _output(name: str, output: OutputTally) -> pb.OutputReport:
    return pb.OutputReport(
        name=name,
        kind=output.kind,
        rows=output.rows,
        agreeing_rows=output.agreeing_rows,
        mean_abs_difference=output.mean_abs(),
        max_abs_difference=output.max_abs,
        mean_rel_difference=output.mean_rel(),
        max_rel_difference=output.max_rel,
        incomparable_rows=output.incomparable_rows,
    )


def _worst(name: str, output: OutputTally) -> list[pb.WorstExample]:
    """The kept examples of one output, worst first."""
    return [
        pb.WorstExample(
            request_id=worst.request_id,
            output=name,
            difference=worst.difference,
            served=worst.example.served,
            candidate=worst.example.candidate,
            at_s=worst.at_s,
        )
        for worst in sorted(output.worst, reverse=True)
    ]


def _latency(sketch: Sketch) -> pb.Latency:
    return pb.Latency(
        count=sketch.count,
        mean_ms=sketch.mean_s() * 1e3,
        p50_ms=sketch.quantile_s(0.5) * 1e3,
        p99_ms=sketch.quantile_s(0.99) * 1e3,
    )
