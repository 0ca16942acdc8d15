"""Which inputs are examples of a model."""

from collections.abc import Iterator

import numpy as np
import pytest

from services.core.batching_spec import Padding
from services.core.signature import Signature, TensorSpec
from services.runtime.backends import Arrays
from services.runtime.examples import Examples, gathered, repeated, two_rows

SIGNATURE = Signature(
    (TensorSpec("x", "FP32", (-1, -1)), TensorSpec("name", "BYTES", (-1,))),
    (TensorSpec("y", "FP32", (-1,)),),
    batches=True,
)


def inputs(rows: int, fill: float = 1, name: bytes = b"a", width: int = 2) -> dict[str, np.ndarray]:
    names = np.empty(rows, dtype=object)
    names[:] = name
    return {"x": np.full((rows, width), fill, np.float32), "name": names}


def same(left: tuple[Arrays, ...], right: list[Arrays]) -> bool:
    return len(left) == len(right) and all(
        one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
        for one, other in zip(left, right, strict=True)
    )


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"x": inputs(1)["x"]}, "found inputs x; expected x, name"),
        ({}, "found inputs none; expected x, name"),
        (inputs(1) | {"x": np.ones((1, 2))}, "input 'x' is float64[1, 2]; expected x FP32[-1, -1]"),
        (inputs(1) | {"x": np.ones(2, np.float32)}, "input 'x' is float32[2]; expected x FP32[-1, -1]"),
        (inputs(1) | {"name": np.ones(1)}, "input 'name' is float64[1]; expected name BYTES[-1]"),
        (inputs(1) | {"x": inputs(2)["x"]}, "its inputs have 1, 2 rows"),
        (inputs(0), "its inputs have 0 rows"),
    ],
)
def test_what_does_not_fit_is_left_out_and_why_is_said(given: Arrays, fault: str) -> None:
    found = gathered(SIGNATURE, [given, inputs(3), given], 10)

    assert (found.left_out, found.reason) == (2, fault)
    assert same(found.fitting, [inputs(3)])


def test_a_source_that_breaks_leaves_what_it_gave() -> None:
    def source() -> Iterator[Arrays]:
        yield inputs(1)
        raise OSError("gone")

    found = gathered(SIGNATURE, source(), 10)

    assert same(found.fitting, [inputs(1)])
    assert (found.left_out, found.reason) == (1, "OSError: gone")


def test_no_more_is_read_than_asked_for() -> None:
    def source() -> Iterator[Arrays]:
        yield inputs(1)
        raise AssertionError

    assert gathered(SIGNATURE, source(), 1).left_out == 0


def test_inputs_that_the_mesh_fills_in_are_filled_in() -> None:
    padded = Signature(
        (
            TensorSpec("mask", "INT64", (-1, -1)),
            TensorSpec("x", "FP32", (-1, -1)),
            TensorSpec("state", "FP32", (-1, 3)),
        ),
        (),
        batches=True,
    )
    padding = Padding(inputs={"x": 0}, mask="mask")
    found = gathered(padded, [{"x": inputs(2, width=5)["x"]}], 10, frozenset({"mask", "state"}), padding)

    assert (found.left_out, found.reason) == (0, "")
    assert found.fitting[0]["mask"].tolist() == [[1] * 5] * 2
    assert found.fitting[0]["state"].tolist() == [[0] * 3] * 2


def test_two_rows_have_one_shape_and_differ() -> None:
    pair = two_rows(SIGNATURE, [inputs(2, 1), inputs(1, 9, width=3), inputs(2, 1, b"b")])

    assert pair is not None
    assert same(pair, [inputs(1, 1), inputs(1, 1, b"b")])


def test_rows_that_are_all_alike_are_not_two() -> None:
    nan = float("nan")

    assert two_rows(SIGNATURE, [inputs(3, nan), inputs(1, nan)]) is None
    assert two_rows(SIGNATURE, []) is None


def test_rows_are_repeated_in_turn() -> None:
    assert repeated({"x": np.arange(3)}, 7)["x"].tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert repeated({"x": np.arange(3)}, 2)["x"].tolist() == [0, 1]


def test_examples_follow_each_other() -> None:
    first, second = Examples(({},), 1, "why"), Examples((), 2, "also")

    assert first.and_then(second) == Examples(({},), 3, "why")
