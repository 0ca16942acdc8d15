import math

import pytest

from services.core.compare import Difference, Example
from services.shadow.tally import HOLD_S, IDLE_S, OUTPUTS_PER_PAIR, Answer, Digests, Pair, Tallies, Tally

PAIR = Pair("digits", "1", "2")
OLD = Digests("sha-1", "sha-2")
NEW = Digests("sha-1", "sha-3")


def answer(*differences: Difference, request_id: str = "r", rows: int = 1) -> Answer:
    return Answer(request_id, rows, differences, served_s=0.002, candidate_s=0.004)


def score(difference: float, name: str = "score") -> Difference:
    worst = Example(difference, "1", "2") if difference else None
    return Difference(name, "score", 1, int(difference == 0), 0, 1, difference, difference, 0.1, 0.1, worst)


def tally_at(now_s: float, worst_examples: int = 10) -> Tally:
    return Tally(PAIR, now_s, worst_examples)


def compare(tally: Tally, answered: Answer, digests: Digests, now_s: float) -> None:
    tally.arrived(now_s)
    tally.compare(answered, digests, now_s)


def test_an_answer_adds_to_counts_outputs_and_times() -> None:
    tally = tally_at(100.0)

    compare(tally, answer(score(0.0), rows=3), OLD, 101.0)
    compare(tally, answer(score(2.0), rows=5), OLD, 102.0)

    counts = tally.counts
    assert (counts.since_s, counts.mirrored, counts.compared, counts.rows, counts.pending()) == (100.0, 2, 2, 8, 0)
    output = counts.outputs["score"]
    assert (output.rows, output.agreeing_rows, output.agreement()) == (2, 1, 0.5)
    assert (output.max_abs, output.mean_abs(), output.mean_rel()) == (2.0, 1.0, pytest.approx(0.1))
    assert (counts.served.count, counts.candidate.mean_s()) == (2, pytest.approx(0.004))


def test_times_count_only_when_both_sides_are_known() -> None:
    tally = tally_at(0.0)

    compare(tally, Answer("r", 1, [], served_s=0.0, candidate_s=0.004), OLD, 1.0)
    compare(tally, Answer("r", 1, [], served_s=0.002, candidate_s=0.0), OLD, 1.0)

    assert (tally.counts.served.count, tally.counts.candidate.count) == (0, 0)


def test_the_worst_examples_are_kept_and_the_newer_of_equals() -> None:
    tally = tally_at(0.0, worst_examples=2)
    for at, difference in enumerate([1.0, 5.0, 3.0, 3.0, 0.5]):
        compare(tally, answer(score(difference), request_id=f"r{at}"), OLD, float(at))

    kept = sorted(tally.counts.outputs["score"].worst, reverse=True)
    assert [(worst.request_id, worst.difference) for worst in kept] == [("r1", 5.0), ("r3", 3.0)]


def test_no_examples_are_kept_when_none_are_wanted() -> None:
    tally = tally_at(0.0, worst_examples=0)

    compare(tally, answer(score(1.0)), OLD, 1.0)

    assert tally.counts.outputs["score"].worst == []


def test_output_names_are_bounded() -> None:
    tally = tally_at(0.0)

    compare(tally, answer(*(score(0.0, f"output-{number}") for number in range(500))), OLD, 1.0)

    assert len(tally.counts.outputs) == OUTPUTS_PER_PAIR


def test_counts_begin_anew_when_a_digest_changes_and_what_is_pending_stays_known() -> None:
    tally = tally_at(0.0)
    compare(tally, answer(score(1.0)), OLD, 1.0)
    tally.arrived(2.0)

    compare(tally, answer(score(0.0)), NEW, 3.0)

    counts = tally.counts
    assert (counts.since_s, counts.mirrored, counts.compared, counts.pending()) == (3.0, 2, 1, 1)
    assert counts.outputs["score"].max_abs == 0.0
    assert tally.digests == NEW


@pytest.mark.parametrize("changed", [Digests("sha-9", "sha-2"), Digests("sha-1", "sha-9")])
def test_either_digest_begins_the_counts_anew(changed: Digests) -> None:
    tally = tally_at(0.0)
    compare(tally, answer(), OLD, 1.0)

    compare(tally, answer(), changed, 2.0)

    assert (tally.counts.compared, tally.counts.since_s) == (1, 2.0)


def test_a_digest_that_is_not_known_changes_nothing() -> None:
    tally = tally_at(0.0)
    compare(tally, answer(), Digests(), 1.0)
    compare(tally, answer(), OLD, 2.0)
    compare(tally, answer(), Digests("sha-1"), 3.0)

    assert (tally.counts.compared, tally.counts.since_s, tally.digests) == (3, 0.0, OLD)


def test_late_answers_of_the_replaced_artifact_do_not_begin_the_counts_again() -> None:
    tally = tally_at(0.0)
    compare(tally, answer(), OLD, 1.0)
    compare(tally, answer(), NEW, 2.0)

    compare(tally, answer(), OLD, 3.0)
    tally.arrived(4.0)
    tally.fail("INTERNAL", OLD, 4.0)

    assert (tally.counts.compared, tally.counts.since_s, tally.digests) == (1, 2.0, NEW)
    assert tally.counts.dropped == {"old_digest": 2}


def test_an_artifact_that_comes_back_later_begins_the_counts_anew() -> None:
    tally = tally_at(0.0)
    compare(tally, answer(), OLD, 1.0)
    compare(tally, answer(), NEW, 2.0)

    compare(tally, answer(), OLD, 2.0 + HOLD_S)

    assert (tally.counts.compared, tally.counts.since_s, tally.digests) == (1, 2.0 + HOLD_S, OLD)


def test_errors_and_drops_are_counted_by_name() -> None:
    tally = tally_at(0.0)
    for _ in range(4):
        tally.arrived(1.0)
    tally.fail("INTERNAL", OLD, 1.0)
    tally.fail("INTERNAL", Digests(), 1.0)
    tally.drop("queue_full")

    counts = tally.counts
    assert (dict(counts.errors), dict(counts.dropped), counts.pending()) == ({"INTERNAL": 2}, {"queue_full": 1}, 1)


def test_sums_of_the_largest_differences_stay_finite() -> None:
    tally = tally_at(0.0)
    for _ in range(3):
        compare(tally, answer(score(1.7e308)), OLD, 1.0)

    assert math.isfinite(tally.counts.outputs["score"].mean_abs())


def test_pairs_are_bounded_and_only_idle_ones_make_room() -> None:
    tallies = Tallies(2, 10)
    first, second, third = (Pair("digits", "1", str(candidate)) for candidate in (2, 3, 4))
    tallies.of(first, 0.0).arrived(10.0)
    tallies.of(second, 0.0)

    assert tallies.of(third, 100.0) is None
    assert tallies.of(third, IDLE_S).pair == third
    assert [tally.pair for tally in tallies] == [first, third]


def test_the_same_pair_has_one_tally() -> None:
    tallies = Tallies(2, 10)

    assert tallies.of(PAIR, 0.0) is tallies.of(PAIR, 5.0)
