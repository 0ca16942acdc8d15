"""What the comparator adds up equals a plain recomputation over everything it saw, in any order."""

import math
from itertools import starmap

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.core import compare
from services.core.signature import Given
from services.shadow.report import report
from services.shadow.sketch import Sketch
from services.shadow.tally import Answer, Digests, Pair, Tallies, Tally
from turnout.v1 import shadow_pb2 as pb

WIDTH = 3
numbers = st.one_of(st.floats(width=32), st.sampled_from([0.0, 1.0, 1 + 2**-11, 1 + 2**-9, math.nan, math.inf]))
rows_of_pairs = st.lists(st.lists(st.tuples(numbers, numbers), min_size=WIDTH, max_size=WIDTH), min_size=1, max_size=5)
labels = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=5)


def scores(values: list[list[float]]) -> Given:
    return Given("score", "FP32", (len(values), WIDTH), np.asarray(values, "<f4").tobytes())


def classes(values: list[int]) -> Given:
    return Given("label", "INT64", (len(values),), np.asarray(values, "<i8").tobytes())


def compare_request(score_rows: list[list[tuple[float, float]]], label_rows: list[tuple[int, int]]) -> list:
    served, candidate = ([[pair[side] for pair in row] for row in score_rows] for side in (0, 1))
    return [
        compare.compare(len(score_rows), scores(served), scores(candidate)),
        compare.compare(len(label_rows), *(classes([pair[side] for pair in label_rows]) for side in (0, 1))),
    ]


def tally_of(requests: list, order: list[int]) -> Tally:
    tally = Tallies(1, 3).of(Pair("digits", "1", "2"), 0.0)
    for number in order:
        tally.arrived(0.0)
        answer = Answer(f"r{number}", 1, compare_request(*requests[number]), 0.001, 0.002)
        tally.compare(answer, Digests("a", "b"), float(number))
    return tally


def is_odd(served: float, candidate: float) -> bool:
    """Not finite on one side only, or not in the same way."""
    if math.isfinite(served) and math.isfinite(candidate):
        return False
    return not (served == candidate or (math.isnan(served) and math.isnan(candidate)))


def agree(served: float, candidate: float) -> bool:
    if not (math.isfinite(served) and math.isfinite(candidate)):
        return not is_odd(served, candidate)
    return abs(served - candidate) <= 1e-6 + 1e-3 * max(abs(served), abs(candidate))


@settings(deadline=None)
@given(requests=st.lists(st.tuples(rows_of_pairs, labels), min_size=1, max_size=6))
def test_counts_equal_a_plain_recomputation(requests: list) -> None:
    outputs = tally_of(requests, list(range(len(requests)))).counts.outputs

    score_rows = [row for rows, _ in requests for row in rows]
    label_rows = [pair for _, rows in requests for pair in rows]
    finite = [pair for row in score_rows for pair in row if math.isfinite(pair[0]) and math.isfinite(pair[1])]
    distances = [abs(served - candidate) for served, candidate in finite]
    score, label = outputs["score"], outputs["label"]
    assert (score.rows, label.rows) == (len(score_rows), len(label_rows))
    assert label.agreeing_rows == sum(served == candidate for served, candidate in label_rows)
    assert score.agreeing_rows == sum(all(starmap(agree, row)) for row in score_rows)
    assert score.incomparable_rows == sum(any(starmap(is_odd, row)) for row in score_rows)
    assert score.elements == len(finite)
    assert score.max_abs == max(distances, default=0.0)
    assert score.sum_abs == pytest.approx(math.fsum(distances))
    assert 0 <= score.sum_rel <= 2 * len(finite)


@settings(deadline=None)
@given(data=st.data(), requests=st.lists(st.tuples(rows_of_pairs, labels), min_size=1, max_size=6))
def test_the_order_of_answers_does_not_matter(data: st.DataObject, requests: list) -> None:
    order = data.draw(st.permutations(range(len(requests))))

    one, other = (report([tally_of(requests, o)]).candidates[0] for o in (list(range(len(requests))), order))

    for left, right in zip(one.outputs, other.outputs, strict=True):
        assert left.mean_abs_difference == pytest.approx(right.mean_abs_difference)
        assert left.mean_rel_difference == pytest.approx(right.mean_rel_difference)
    assert exact(one) == exact(other)


def exact(candidate: pb.CandidateReport) -> str:
    """All of a report but the means, which sums of another order move by a rounding."""
    for output in candidate.outputs:
        output.mean_abs_difference = output.mean_rel_difference = 0.0
    candidate.served_latency.mean_ms = candidate.candidate_latency.mean_ms = 0.0
    return str(candidate)  # as text, so that NaN equals NaN


@settings(deadline=None)
@given(served=rows_of_pairs)
def test_a_row_agrees_differs_or_is_incomparable_and_swapping_sides_changes_nothing(served: list) -> None:
    left, right = ([[pair[side] for pair in row] for row in served] for side in (0, 1))

    one = compare.compare(len(served), scores(left), scores(right))
    other = compare.compare(len(served), scores(right), scores(left))

    assert one.agreeing_rows + one.incomparable_rows <= one.rows
    assert (one.worst is None) == (one.agreeing_rows == one.rows)
    assert (one.agreeing_rows, one.incomparable_rows, one.elements, one.sum_abs, one.sum_rel) == (
        other.agreeing_rows,
        other.incomparable_rows,
        other.elements,
        other.sum_abs,
        other.sum_rel,
    )


@settings(deadline=None)
@given(durations=st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=200), q=st.floats(0.01, 1.0))
def test_a_quantile_is_within_two_percent_of_the_true_one(durations: list[float], q: float) -> None:
    sketch = Sketch()
    for duration in durations:
        sketch.observe(duration)

    true = sorted(durations)[max(1, math.ceil(q * len(durations))) - 1]
    assert sketch.quantile_s(q) == pytest.approx(true, rel=0.0201)


@settings(deadline=None)
@given(
    served=st.binary(max_size=64),
    candidate=st.binary(max_size=64),
    datatype=st.sampled_from(["FP32", "FP64", "FP16", "BF16", "INT8", "BOOL", "BYTES", "WHAT"]),
    shape=st.lists(st.integers(-1, 5), max_size=3),
    rows=st.integers(0, 5),
)
def test_no_bytes_make_a_comparison_fail(
    served: bytes, candidate: bytes, datatype: str, shape: list[int], rows: int
) -> None:
    found = compare.compare(rows, Given("o", datatype, shape, served), Given("o", datatype, shape, candidate))

    assert 0 <= found.agreeing_rows + found.incomparable_rows <= found.rows
    assert math.isfinite(found.sum_abs)
    assert math.isfinite(found.sum_rel)
