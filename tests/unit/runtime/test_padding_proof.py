"""A model that heeds its mask may be filled up; another is found out."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from services.core.batching_spec import Padding
from services.core.padding import BadPaddingError
from services.core.signature import Signature, TensorSpec
from services.runtime.padding_proof import PaddingProof

SIGNATURE = Signature(
    (
        TensorSpec("x", "FP32", (-1, -1, 2)),
        TensorSpec("mask", "BOOL", (-1, -1)),
        TensorSpec("length", "INT64", (-1, 1)),
        TensorSpec("bias", "FP32", (-1,)),
    ),
    (TensorSpec("mean", "FP32", (-1, 2)), TensorSpec("each", "FP32", (-1, -1))),
    batches=True,
)
Arrays = Mapping[str, np.ndarray]


def pad(**fields: Any) -> Padding:
    return Padding(**({"inputs": {"x": -7}, "mask": "mask", "length": "length", "outputs": ("each",)} | fields))


def masked(inputs: Arrays) -> dict[str, np.ndarray]:
    real = inputs["x"] * inputs["mask"][:, :, None]
    return {"mean": real.sum(axis=1) / inputs["length"], "each": real.sum(axis=2)}


def heedless(inputs: Arrays) -> dict[str, np.ndarray]:
    return masked(inputs) | {"mean": inputs["x"].mean(axis=1)}


def inverted(inputs: Arrays) -> dict[str, np.ndarray]:
    return masked(dict(inputs) | {"mask": ~inputs["mask"]})


def fault(run: Callable[[Arrays], dict[str, np.ndarray]], **fields: Any) -> str:
    return PaddingProof(pad(**fields), SIGNATURE, 3).fault(run)


@pytest.mark.parametrize("sizes", [(), (1,), (1, 16), (10, 20), (3,)])
def test_a_model_that_heeds_its_mask_and_length_is_proven(sizes: tuple[int, ...]) -> None:
    assert fault(masked, sizes=sizes) == ""


@pytest.mark.parametrize("run", [heedless, inverted])
def test_a_model_that_sees_what_was_filled_up_is_found_out(run: Callable[[Arrays], dict[str, np.ndarray]]) -> None:
    assert fault(run) == ("output 'mean' differs between a row of length 2 filled up to 4 and the same row as it is")


def test_an_output_that_nobody_cuts_back_is_found_out() -> None:
    assert fault(masked, outputs=()) == (
        "output 'each' has shape [1, 4] for a row of length 2 filled up to 4, and [1, 2] without:"
        " pad_to.outputs names what is to be cut back"
    )


def test_an_output_of_another_length_is_found_out() -> None:
    def pooled(inputs: Arrays) -> dict[str, np.ndarray]:
        return masked(inputs) | {"each": inputs["x"][:, ::2, 0]}

    assert fault(pooled) == (
        "output 'each' has shape [1, 2] for a row of length 2 filled up to 4: it cannot be cut back"
    )


def test_what_does_not_fit_is_not_tried() -> None:
    with pytest.raises(BadPaddingError, match="pad_to names input 'attention'"):
        PaddingProof(pad(mask="attention"), SIGNATURE, 3)
