"""Synthetic rows and the probe."""

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from services.core.signature import Signature, TensorSpec
from services.runtime.warm_up import checked, synthetic, warm_up

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
    signature, note = checked(run, SIGNATURE)

    assert note.startswith(reason)
    assert bool(note) == bool(reason)
    assert signature.batches is not bool(reason)


def test_a_model_that_does_not_batch_is_not_asked() -> None:
    fixed = Signature((TensorSpec("x", "FP32", (2,)),), (TensorSpec("y", "FP32", (2,)),), batches=False)

    assert checked(flaky, fixed) == (fixed, "")


@pytest.mark.parametrize("datatype", ["BOOL", "UINT8", "INT64", "FP16", "BF16", "FP32", "FP64", "BYTES"])
def test_synthetic_rows_fit_their_spec(datatype: str) -> None:
    array = synthetic(TensorSpec("x", datatype, (-1, 3, -1)), 4, 1)

    assert array.shape == (4, 3, 1)


def test_warm_up_runs_one_row_and_the_largest_batch() -> None:
    sizes = []
    warm_up(lambda inputs: sizes.append(len(inputs["x"])) or {}, SIGNATURE, 64)

    assert sizes == [1, 64]


def test_warm_up_of_wide_rows_is_bounded() -> None:
    wide = Signature((TensorSpec("x", "FP32", (-1, 4 << 20)),), (), batches=True)
    sizes = []
    warm_up(lambda inputs: sizes.append(len(inputs["x"])) or {}, wide, 1024)

    assert sizes == [1, 16]
