import math

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from services.core.compare import Difference, Example
from services.shadow.lanes import Room
from services.shadow.metrics import ShadowCollector
from services.shadow.report import report
from services.shadow.runner import Limits, Runner
from services.shadow.tally import Answer, Digests, Pair, Tallies


@pytest.fixture
def tallies() -> Tallies:
    tallies = Tallies(10, 10)
    differences = [
        Difference("label", "class", 4, 3, worst=Example(1.0, "row 2: 'a'", "row 2: 'b'")),
        Difference("score", "score", 4, 2, 1, 3, 0.3, 0.2, 0.6, 0.4, worst=Example(math.inf, "nan", "1")),
    ]
    for model in ("ranker", "digits"):
        tally = tallies.of(Pair(model, "1", "2"), 50.0)
        for _ in range(3):
            tally.arrived(51.0)
        tally.compare(Answer("r-1", 4, differences, 0.001, 0.002), Digests("sha-1", "sha-2"), 51.0)
        tally.fail("INTERNAL", Digests("sha-1"), 52.0)
        tally.drop("no_replica")
    return tallies


def test_a_report_holds_what_was_counted(tallies: Tallies) -> None:
    candidate = report(tallies, "digits").candidates[0]

    assert (candidate.model, candidate.served_version, candidate.candidate_version) == ("digits", "1", "2")
    assert (candidate.served_digest, candidate.candidate_digest, candidate.since_s) == ("sha-1", "sha-2", 50.0)
    assert (candidate.mirrored, candidate.compared, candidate.rows) == (3, 1, 4)
    assert (dict(candidate.errors), dict(candidate.dropped)) == ({"INTERNAL": 1}, {"no_replica": 1})
    assert candidate.served_latency.p50_ms == pytest.approx(1.0, rel=0.03)
    assert candidate.candidate_latency.mean_ms == pytest.approx(2.0)


def test_a_report_tells_how_each_output_differs(tallies: Tallies) -> None:
    label, score = report(tallies, "digits").candidates[0].outputs

    assert (label.name, label.kind, label.rows, label.agreeing_rows, label.max_abs_difference) == (
        "label",
        "class",
        4,
        3,
        0,
    )
    assert (score.kind, score.rows, score.agreeing_rows, score.incomparable_rows) == ("score", 4, 2, 1)
    assert score.mean_abs_difference == pytest.approx(0.1)
    assert (score.max_abs_difference, score.max_rel_difference) == (0.2, 0.4)
    assert score.mean_rel_difference == pytest.approx(0.2)


def test_a_report_shows_the_worst_examples(tallies: Tallies) -> None:
    label, score = report(tallies, "digits").candidates[0].worst

    assert (label.output, label.difference, label.served, label.candidate) == ("label", 1.0, "row 2: 'a'", "row 2: 'b'")
    assert (score.request_id, score.difference, score.at_s) == ("r-1", math.inf, 51.0)


def test_all_models_are_reported_in_order_and_an_unknown_one_not_at_all(tallies: Tallies) -> None:
    assert [candidate.model for candidate in report(tallies).candidates] == ["digits", "ranker"]
    assert list(report(tallies, "unknown").candidates) == []


async def test_metrics_tell_the_same_as_the_report(tallies: Tallies) -> None:
    runner = Runner(None, tallies, Limits(Room(1, 1), 1, 1.0))
    runner.uncounted["bad_mirror"] += 2
    registry = CollectorRegistry()
    registry.register(ShadowCollector(tallies, runner))

    lines = set(generate_latest(registry).decode().splitlines())

    pair = 'candidate="2",model="digits"'
    assert {
        f'turnout_shadow_mirrors_total{{{pair},served="1"}} 3.0',
        f'turnout_shadow_compared_total{{{pair},served="1"}} 1.0',
        'turnout_shadow_errors_total{candidate="2",code="INTERNAL",model="digits",served="1"} 1.0',
        f'turnout_shadow_dropped_total{{{pair},reason="no_replica",served="1"}} 1.0',
        f'turnout_shadow_agreement_ratio{{{pair},output="label",served="1"}} 0.75',
        f'turnout_shadow_max_abs_difference{{{pair},output="score",served="1"}} 0.2',
        'turnout_shadow_uncounted_mirrors_total{reason="bad_mirror"} 2.0',
        f'turnout_shadow_compute_seconds_count{{{pair},served="1",side="candidate"}} 1.0',
        "turnout_shadow_pending 0.0",
    } <= lines
