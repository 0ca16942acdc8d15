"""Which `pad_to` fits which model."""

from typing import Any

import pytest

from services.core.batching_spec import Padding
from services.core.padding import BadPaddingError, check_padding, rounded
from services.core.signature import Signature, TensorSpec

ANY = -1
MODEL = Signature(
    (
        TensorSpec("ids", "INT64", (ANY, ANY)),
        TensorSpec("vectors", "FP16", (ANY, ANY, 4)),
        TensorSpec("words", "BYTES", (ANY, ANY)),
        TensorSpec("mask", "BOOL", (ANY, ANY)),
        TensorSpec("flat", "INT64", (ANY,)),
        TensorSpec("fixed", "FP32", (ANY, 8)),
    ),
    (TensorSpec("tags", "INT64", (ANY, ANY)), TensorSpec("score", "FP32", (ANY,))),
    batches=True,
)


def padding(**fields: Any) -> Padding:
    return Padding(**({"inputs": {"ids": 0}, "mask": "mask"} | fields))


@pytest.mark.parametrize(
    "fits",
    [
        {},
        {"inputs": {"ids": 1, "vectors": 0.5}, "outputs": ("tags",)},
        {"mask": None, "length": "flat"},
        {"length": "flat"},
        {"sizes": (8, 16)},
    ],
)
def test_what_fits_is_accepted(fits: dict[str, Any]) -> None:
    check_padding(padding(**fits), MODEL)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"inputs": {"tokens": 0}}, "pad_to names input 'tokens'; the model's inputs are ids INT64[-1, -1], "),
        ({"mask": "attention"}, "pad_to names input 'attention'; the model's inputs are ids INT64[-1, -1], "),
        ({"length": "sizes"}, "pad_to names input 'sizes'; the model's inputs are ids INT64[-1, -1], "),
        ({"outputs": ("logits",)}, "pad_to names output 'logits'; the model's outputs are tags INT64[-1, -1], score"),
        ({"inputs": {"ids": 0.5}}, "pad_to.inputs: 'ids' cannot be filled up with 0.5: INT64 does not hold 0.5"),
        ({"inputs": {"vectors": 1e6}}, "'vectors' cannot be filled up with 1e+06: FP16 does not hold 1e+06"),
        ({"inputs": {"words": 0}}, "pad_to.inputs: 'words' holds BYTES, only numbers can be filled up"),
        ({"inputs": {"fixed": 0}}, "pad_to.inputs: dimension 1 of 'fixed' must be of any size, the model has fixed FP"),
        ({"inputs": {"flat": 0}}, "pad_to.inputs: dimension 1 of 'flat' must be of any size, the model has flat INT64"),
        ({"outputs": ("score",)}, "pad_to.outputs: dimension 1 of 'score' must be of any size, the model has score FP"),
        ({"mask": "flat"}, "pad_to.mask must be numbers of shape [rows, length], the model has flat INT64[-1]"),
        ({"mask": "words"}, "pad_to.mask must be numbers of shape [rows, length], the model has words BYTES[-1, -1]"),
        ({"length": "fixed"}, "pad_to.length must be numbers of shape [rows] or [rows, 1], the model has fixed FP32"),
        ({"length": "vectors"}, "pad_to.length must be numbers of shape [rows] or [rows, 1], the model has vectors F"),
        ({"mask": None, "length": "mask"}, "pad_to.length must be numbers of shape [rows] or [rows, 1], the model ha"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_the_model_has(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BadPaddingError) as caught:
        check_padding(padding(**fields), MODEL)

    assert message in str(caught.value)


def test_a_model_that_does_not_batch_is_not_padded() -> None:
    with pytest.raises(BadPaddingError, match="does not batch"):
        check_padding(padding(), Signature(MODEL.inputs, MODEL.outputs, batches=False))


@pytest.mark.parametrize(
    ("sizes", "pairs"),
    [
        ((), {0: 1, 1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 128: 128, 129: 256}),
        ((4, 6, 100), {0: 4, 1: 4, 4: 4, 5: 6, 6: 6, 7: 100, 100: 100, 101: 101, 5000: 5000}),
    ],
)
def test_a_length_is_rounded_up_to_the_least_size_that_holds_it(sizes: tuple[int, ...], pairs: dict[int, int]) -> None:
    assert {length: rounded(length, sizes) for length in pairs} == pairs
