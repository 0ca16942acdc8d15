"""Synthetic rows and the probe."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from services.core.batching_spec import Padding
from services.core.signature import Signature, TensorSpec
from services.runtime.synthetic import synthetic
from services.runtime.warm_up import Checked, Warmed, checked, warm_up

SIGNATURE = Signature((TensorSpec("x", "FP32", (-1, 2)),), (TensorSpec("y", "FP32", (-1,)),), batches=True)
Answers = Mapping[str, np.ndarray]


def flaky(inputs: Answers) -> dict[str, np.ndarray]:
    if len(inputs["x"]) > 1:
        raise MemoryError("too many")
    return {"y": inputs["x"].sum(axis=1)}


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (lambda inputs: {"y": inputs["x"].sum(axis=1)}, ""),
        (lambda inputs: {"y": inputs["x"].sum(axis=1) + 1e-6 * len(inputs["x"])}, ""),
        (lambda inputs: {"y": np.full(len(inputs["x"]), np.nan)}, ""),
        (lambda inputs: {"y": np.array(["a"] * len(inputs["x"]), dtype=object)}, ""),
        (lambda inputs: {"y": inputs["x"].sum(axis=1) / len(inputs["x"])}, "output 'y' of two rows differs"),
        (lambda inputs: {"y": inputs["x"].sum(axis=1)[:1]}, "output 'y' has shape [1] for 2 rows"),
        (lambda inputs: {"y": np.eye(len(inputs["x"]))}, "output 'y' of one row has shape [1, 1], of two [2, 2]"),
        (flaky, "it raised on synthetic rows: MemoryError: too many"),
    ],
)
def test_a_model_batches_only_if_rows_do_not_depend_on_each_other(
    run: Callable[[Answers], dict[str, np.ndarray]], reason: str
) -> None:
    signature, note, _ = checked(run, SIGNATURE)

    assert note.startswith(reason)
    assert bool(note) == bool(reason)
    assert signature.batches is not bool(reason)


def test_a_model_that_does_not_batch_is_not_asked() -> None:
    fixed = Signature((TensorSpec("x", "FP32", (2,)),), (TensorSpec("y", "FP32", (2,)),), batches=False)

    assert checked(flaky, fixed) == (fixed, "", 1)


@pytest.mark.parametrize("datatype", ["BOOL", "UINT8", "INT64", "FP16", "BF16", "FP32", "FP64", "BYTES"])
def test_synthetic_rows_fit_their_spec(datatype: str) -> None:
    array = synthetic(TensorSpec("x", datatype, (-1, 3, -1)), 4, 1)

    assert array.shape == (4, 3, 1)


class Model:
    """Notes the inputs of each run; raises on rows that hold 666."""

    def __init__(self) -> None:
        self.runs: list[Answers] = []

    def run(self, inputs: Answers) -> dict[str, np.ndarray]:
        if (inputs["x"] == 666).any():
            raise ValueError("not this one")
        self.runs.append(inputs)
        return {"y": inputs["x"].sum(axis=1)}

    @property
    def sizes(self) -> list[int]:
        return [len(inputs["x"]) for inputs in self.runs]


def rows(*values: float) -> Answers:
    return {"x": np.repeat(np.array(values, np.float32)[:, None], 2, axis=1)}


def test_warm_up_runs_every_size_once() -> None:
    model = Model()
    warmed = warm_up(model.run, Checked(SIGNATURE, "", 1), (1, 8, 64))

    assert model.sizes == [1, 8, 64]
    assert warmed == Warmed([1, 8, 64])


def test_warm_up_of_wide_rows_is_bounded() -> None:
    wide = Signature((TensorSpec("x", "FP32", (-1, 4 << 20)),), (), batches=True)
    sizes = []
    warm_up(lambda inputs: sizes.append(len(inputs["x"])) or {}, Checked(wide, "", 1), (1, 1024))

    assert sizes == [1, 16]


def test_examples_make_up_the_sizes_and_run_as_they_are_cut_to_the_largest() -> None:
    model = Model()
    warmed = warm_up(model.run, Checked(SIGNATURE, "", 1), (1, 4), None, [rows(7, 8, 9), rows(1, 2, 3, 4, 5)])

    assert model.runs[1]["x"][:, 0].tolist() == [7, 8, 9, 7]
    assert model.sizes == [1, 4, 3, 4]
    assert warmed == Warmed([1, 4], requests=2)


def test_an_example_that_raises_is_counted_and_the_others_run() -> None:
    model = Model()
    warmed = warm_up(model.run, Checked(SIGNATURE, "", 1), (1,), None, [rows(1), rows(666), rows(2)])

    assert model.sizes == [1, 1, 1]
    assert warmed == Warmed([1], requests=2, raised=1, reason="ValueError: not this one")


def test_nothing_more_is_begun_when_the_time_is_over() -> None:
    model = Model()

    assert warm_up(model.run, Checked(SIGNATURE, "", 1), (1, 8), None, [rows(1)], 0) == Warmed([])
    assert model.runs == []


def test_a_model_that_does_not_batch_runs_its_examples_only() -> None:
    model = Model()
    alone = replace(SIGNATURE, batches=False)
    warmed = warm_up(model.run, Checked(alone, "", 1), (1, 8), None, [rows(1, 2, 3)])

    assert (model.sizes, warmed) == ([3], Warmed([], requests=1))


def picky(inputs: Answers) -> dict[str, np.ndarray]:
    """Knows 5 and 6 only."""
    if not np.isin(inputs["x"], (5, 6)).all():
        raise ValueError("unknown category")
    return {"y": inputs["x"].sum(axis=1)}


def test_two_examples_that_differ_prove_that_a_model_may_batch() -> None:
    signature, note, _ = checked(picky, SIGNATURE, None, [rows(5), rows(5, 6)])

    assert (signature.batches, note) == (True, "")
    assert checked(picky, SIGNATURE).note == "it raised on synthetic rows: ValueError: unknown category"


def test_examples_that_are_all_alike_prove_nothing() -> None:
    def centred(inputs: Answers) -> dict[str, np.ndarray]:
        return {"y": (inputs["x"] - inputs["x"].mean(axis=0)).sum(axis=1)}

    signature, note, _ = checked(centred, SIGNATURE, None, [rows(5), rows(5)])

    assert (signature.batches, note) == (False, "output 'y' of two rows differs from the answers to each alone")


RAGGED = Signature(
    (TensorSpec("x", "FP32", (-1, -1)), TensorSpec("mask", "INT64", (-1, -1)), TensorSpec("length", "INT32", (-1,))),
    (TensorSpec("y", "FP32", (-1,)),),
    batches=True,
)
PAD = Padding(inputs={"x": 0}, mask="mask", length="length")


def test_free_dimensions_are_not_taken_for_rows() -> None:
    _, note, _ = checked(lambda inputs: {"y": inputs["x"].ravel()}, RAGGED)

    assert note == "output 'y' has shape [6] for 2 rows"


@pytest.mark.parametrize("least", [1, 2, 10, 200])
def test_a_model_that_needs_large_free_dimensions_batches_too(least: int) -> None:
    def run(inputs: Answers) -> dict[str, np.ndarray]:
        return {
            "y": np.stack([np.convolve(row, np.ones(least), "valid")[0] for row in inputs["x"] if row[least - 1] + 1])
        }

    signature, note, free = checked(run, RAGGED)

    assert (signature.batches, note) == (True, "")
    assert free >= least


def test_a_model_that_is_told_of_its_length_is_told_the_truth() -> None:
    seen: list[tuple[int, ...]] = []

    def run(inputs: Answers) -> dict[str, np.ndarray]:
        assert (inputs["mask"] == 1).all()
        assert (inputs["length"] == inputs["x"].shape[1]).all()
        seen.append(inputs["x"].shape)
        return {"y": inputs["x"].sum(axis=1) / inputs["length"]}

    found = checked(run, RAGGED, PAD)
    warm_up(run, found, (1, 64), PAD.model_copy(update={"sizes": (8, 100)}))

    assert found.signature.batches
    assert seen[-2:] == [(1, 3), (64, 100)]
