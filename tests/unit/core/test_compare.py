import math
import struct
from collections.abc import Sequence

import numpy as np
import pytest

from services.core import arrays, compare
from services.core.compare import Difference, Example
from services.core.signature import Given
from services.core.tensor import encode_bytes


def given(values: object, dtype: str = "<f4", name: str = "score") -> Given:
    array = np.asarray(values, dtype=dtype)
    datatype, data = arrays.encode(array)
    return Given(name, datatype, list(array.shape), data)


def texts(*rows: Sequence[str]) -> Given:
    data = encode_bytes([text.encode() for row in rows for text in row])
    return Given("label", "BYTES", [len(rows), len(rows[0])], data)


def bf16(*values: float) -> Given:
    words = [struct.unpack("<I", struct.pack("<f", value))[0] >> 16 for value in values]
    return Given("score", "BF16", [len(values), 1], np.asarray(words, "<u2").tobytes())


def test_equal_scores_agree_in_every_row_and_differ_by_nothing() -> None:
    served = given([[0.25, 0.75], [0.5, 0.5]])

    assert compare.compare(2, served, served) == Difference("score", "score", 2, agreeing_rows=2, elements=4)


def test_a_score_counts_its_differences_over_all_elements_and_shows_its_worst_row() -> None:
    found = compare.compare(2, given([[1.0, 2.0], [4.0, 0.0]]), given([[1.0, 2.5], [3.0, 0.0]]))

    expected = Difference(
        "score",
        "score",
        2,
        elements=4,
        sum_abs=1.5,
        max_abs=1.0,
        sum_rel=0.5 / 2.5 + 1.0 / 4.0,
        max_rel=0.25,
        worst=Example(1.0, "row 1: 4, 0", "row 1: 3, 0"),
    )
    assert found == expected


@pytest.mark.parametrize(
    ("served", "candidate", "agrees"),
    [
        (1.0, 1.0009, True),
        (1.0, 1.0021, False),
        (0.0, 9e-7, True),
        (0.0, 1.1e-6, False),
        (-0.0, 0.0, True),
        (1000.0, 1000.9, True),
        (1.0, -1.0, False),
    ],
)
def test_scores_agree_within_one_thousandth_or_one_millionth(served: float, candidate: float, *, agrees: bool) -> None:
    found = compare.compare(1, given([served], "<f8"), given([candidate], "<f8"))

    assert found.agreeing_rows == int(agrees)
    assert (found.worst is None) == agrees


def test_numbers_of_few_digits_may_differ_by_one_of_their_steps() -> None:
    assert compare.compare(1, bf16(1.0), bf16(1.0078125)).agreeing_rows == 1
    assert compare.compare(1, bf16(1.0), bf16(1.03125)).agreeing_rows == 0
    assert compare.compare(1, given([1.0], "<f2"), given([1.001], "<f2")).agreeing_rows == 1


def test_nan_and_infinity_on_both_sides_agree_and_stay_out_of_the_differences() -> None:
    served = given([[math.nan, math.inf, -math.inf, 1.0, 0.0]])
    other = given([[-math.nan, math.inf, -math.inf, 1.0, -0.0]])

    for candidate in (served, other):  # equal bytes, and equal numbers of other bytes
        found = compare.compare(1, served, candidate)

        assert found == Difference("score", "score", 1, agreeing_rows=1, elements=2)


@pytest.mark.parametrize(
    ("one", "other"), [(math.nan, 1.0), (math.inf, 1.0), (math.inf, -math.inf), (math.nan, math.inf)]
)
def test_a_row_whose_finiteness_differs_is_incomparable_and_the_worst(one: float, other: float) -> None:
    for served, candidate in ((one, other), (other, one)):
        found = compare.compare(2, given([[served], [5.0]]), given([[candidate], [9.0]]))

        assert (found.rows, found.agreeing_rows, found.incomparable_rows) == (2, 0, 1)
        assert (found.elements, found.max_abs) == (1, 4.0)
        assert found.worst == Example(math.inf, f"row 0: {served:.6g}", f"row 0: {candidate:.6g}")


def test_the_largest_numbers_differ_by_a_finite_amount() -> None:
    biggest = np.finfo("<f8").max

    found = compare.compare(1, given([biggest, biggest], "<f8"), given([-biggest, -biggest], "<f8"))

    assert found.max_abs == found.sum_abs == biggest
    assert 0 < found.max_rel <= 2
    assert found.agreeing_rows == 0


@pytest.mark.parametrize("dtype", ["i1", "<i8", "u1", "<u8", "?"])
def test_integers_and_booleans_are_classes(dtype: str) -> None:
    found = compare.compare(3, given([1, 0, 1], dtype), given([1, 1, 1], dtype))

    assert (found.kind, found.rows, found.agreeing_rows, found.incomparable_rows) == ("class", 3, 2, 0)
    assert found.worst.difference == 1.0
    assert found.worst.served in ("row 1: 0", "row 1: False")


def test_large_integers_are_told_apart_exactly() -> None:
    found = compare.compare(1, given([2**63 - 1], "<i8"), given([2**63 - 2], "<i8"))

    assert found.agreeing_rows == 0


def test_strings_are_classes_and_a_row_agrees_when_all_its_elements_do() -> None:
    found = compare.compare(3, texts("ab", "cd", "ef"), texts("ab", "cx", "ef"))

    assert (found.kind, found.rows, found.agreeing_rows) == ("class", 3, 2)
    assert found.worst == Example(1.0, "row 1: 'c', 'd'", "row 1: 'c', 'x'")


def test_equal_bytes_that_are_cut_differently_differ() -> None:
    found = compare.compare(1, texts(["ab", "c"]), texts(["a", "bc"]))

    assert found.agreeing_rows == 0


@pytest.mark.parametrize(
    ("candidate", "shown"),
    [
        (None, "missing"),
        (given([[1.0], [2.0]], "<f8"), "FP64[2, 1]"),
        (given([1.0, 2.0]), "FP32[2]"),
        (Given("score", "FP32", [2, 1], b"\0\0\0"), "has 3 bytes, but FP32 of shape [2, 1] takes 8 (2 x 4)"),
    ],
)
def test_another_type_shape_or_size_makes_all_rows_incomparable(candidate: Given | None, shown: str) -> None:
    found = compare.compare(2, given([[1.0], [2.0]]), candidate)

    expected = Difference("score", "score", 2, incomparable_rows=2, worst=Example(math.inf, "FP32[2, 1]", shown))
    assert found == expected


def test_an_unknown_datatype_is_incomparable() -> None:
    odd = Given("score", "FP4", [1], b"\0")

    assert compare.compare(1, odd, odd).incomparable_rows == 1


@pytest.mark.parametrize("shape", [[2, 0], [0, 2], [0]])
def test_an_output_without_elements_agrees(shape: list[int]) -> None:
    empty = Given("score", "FP32", shape, b"")

    found = compare.compare(2, empty, empty)

    assert found.agreeing_rows == found.rows
    assert found.elements == 0


def test_an_output_that_is_not_one_row_per_row_counts_once() -> None:
    scalar = given(3.0)
    matrix = given(np.zeros((4, 4)))

    assert compare.compare(7, scalar, scalar).rows == 1
    assert compare.compare(7, matrix, matrix).rows == 1


def test_rows_longer_than_a_block_are_compared_whole() -> None:
    served = np.zeros((2, 600_000), "<f4")
    candidate = served.copy()
    candidate[1, 599_999] = 2.0
    candidate[1, 3] = 1.0

    found = compare.compare(2, given(served), given(candidate))

    assert (found.agreeing_rows, found.elements, found.sum_abs) == (1, 1_200_000, 3.0)
    assert found.worst == Example(2.0, "row 1: [599999] = 0", "row 1: [599999] = 2")


def test_renderings_are_short_whatever_the_output_holds() -> None:
    found = compare.compare(1, texts(["a" * 5000]), texts(["\x00" * 5000]))

    assert len(found.worst.served) <= 120
    assert len(found.worst.candidate) <= 120
