from dataclasses import replace
from typing import Any

import pytest

from services.chassis.wire import signature_from_proto, signature_to_proto
from services.core.errors import InvalidRequestError
from services.core.signature import (
    Given,
    Signature,
    TensorSpec,
    check_inputs,
    check_outputs,
    check_tensor,
    row_bytes,
)

X = TensorSpec("x", "FP32", (-1, 2))
TAG = TensorSpec("tag", "BYTES", (-1,))
SCORE = TensorSpec("score", "FP32", (-1, 1))
BATCHED = Signature((X, TAG), (SCORE, TensorSpec("label", "INT64", (-1,))), batches=True, platform="onnx")
WHOLE = Signature((TensorSpec("x", "FP32", (2, -1)),), (SCORE,), batches=False)
INPUTS = "x FP32[-1, 2], tag BYTES[-1]"


def x(rows: int, **changes: Any) -> Given:
    return Given("x", "FP32", [rows, 2], bytes(8 * rows))._replace(**changes)


def tag(rows: int) -> Given:
    return Given("tag", "BYTES", [rows], bytes(4 * rows))


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_a_request_that_fits_has_the_rows_of_its_first_dimension(rows: int) -> None:
    assert check_inputs("ranker", BATCHED, [tag(rows), x(rows)]) == rows


def test_a_model_that_does_not_batch_takes_one_row() -> None:
    assert check_inputs("ranker", WHOLE, [Given("x", "FP32", [2, 5], bytes(40))]) == 1


def test_a_request_to_a_model_whose_inputs_features_fill_has_one_row() -> None:
    assert check_inputs("ranker", BATCHED.without(frozenset({"x", "tag"})), []) == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], f"model ranker needs input 'x' too; its inputs are {INPUTS}"),
        ([x(1)], f"model ranker needs input 'tag' too; its inputs are {INPUTS}"),
        ([x(1), x(1)], "input 'x' is given twice"),
        ([x(1, name="y")], f"model ranker has no input 'y'; its inputs are {INPUTS}"),
        ([x(1, datatype="FP64")], "input 'x' of model ranker is FP32, not FP64"),
        ([x(1, datatype="")], "input 'x' of model ranker is FP32, not "),
        ([x(1, shape=[1, 3])], "input 'x' of model ranker has shape [-1, 2] (-1 = any), not [1, 3]"),
        ([x(1, shape=[2])], "input 'x' of model ranker has shape [-1, 2] (-1 = any), not [2]"),
        ([x(1, shape=[])], "input 'x' of model ranker has shape [-1, 2] (-1 = any), not []"),
        ([x(1, shape=[-1, 2])], "input 'x': shape [-1, 2] has a negative dimension"),
        ([x(2, shape=[1, 2])], "input 'x': has 16 bytes, but FP32 of shape [1, 2] takes 8 (2 x 4)"),
        ([x(1), tag(2)], "input 'tag' has 2 rows, the inputs before it 1"),
        ([x(0), tag(1)], "input 'tag' has 1 rows, the inputs before it 0"),
    ],
)
def test_a_request_that_does_not_fit_is_refused_with_what_would(given: list[Given], message: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        check_inputs("ranker", BATCHED, given)

    assert str(caught.value) == message


def test_an_input_that_features_fill_may_not_be_sent() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        check_inputs("ranker", BATCHED.without(frozenset({"x", "tag"})), [x(1)])

    assert str(caught.value) == "model ranker has no input 'x'; its inputs are none (features fill them)"


def test_a_tensor_is_checked_by_itself() -> None:
    check_tensor(x(2))
    with pytest.raises(InvalidRequestError, match=r"^input 'x': has 8 bytes, but FP32 of shape \[2, 2\] takes 16"):
        check_tensor(x(1, shape=[2, 2]))


def test_known_outputs_may_be_asked_for() -> None:
    check_outputs("ranker", BATCHED, ["label", "score"])
    check_outputs("ranker", BATCHED, [])
    with pytest.raises(InvalidRequestError) as caught:
        check_outputs("ranker", BATCHED, ["score", "scores"])

    assert str(caught.value) == "model ranker has no output 'scores'; its outputs are score, label"


def test_the_hash_differs_when_a_caller_could_notice() -> None:
    others = [
        Signature((TAG, X), BATCHED.outputs, batches=True),
        Signature(BATCHED.inputs, (SCORE,), batches=True),
        Signature(BATCHED.inputs, BATCHED.outputs, batches=False),
        Signature((X._replace(shape=(-1, 3)), TAG), BATCHED.outputs, batches=True),
        Signature((X._replace(datatype="FP64"), TAG), BATCHED.outputs, batches=True),
    ]

    hashes = {signature.hash() for signature in (BATCHED, *others)}
    assert len(hashes) == 1 + len(others)
    assert all(len(digits) == 16 for digits in hashes)
    assert Signature(BATCHED.inputs, BATCHED.outputs, batches=True, platform="xgboost").hash() == BATCHED.hash()


def test_what_features_fill_is_not_the_callers() -> None:
    seen = BATCHED.without(frozenset({"x"}))

    assert seen == Signature((TAG,), BATCHED.outputs, batches=True, platform="onnx")


@pytest.mark.parametrize(
    ("spec", "size"),
    [
        (X, 8),
        (TensorSpec("x", "INT8", (-1,)), 1),
        (TensorSpec("x", "BF16", (-1, 3, 4)), 24),
        (TensorSpec("x", "FP32", (-1, 0)), 0),
        (TensorSpec("x", "FP32", (-1, -1)), None),
        (TAG, None),
    ],
)
def test_a_row_has_a_size_when_nothing_in_it_varies(spec: TensorSpec, size: int | None) -> None:
    assert row_bytes(spec) == size


def test_of_several_signatures_each_is_found_by_its_name() -> None:
    other = replace(WHOLE, name="other")
    several = replace(BATCHED, name="usual", more=(other,))

    assert several.named("") is several
    assert several.named("usual") is several
    assert several.named("other") is other
    with pytest.raises(InvalidRequestError, match=r"^signature 'x' is asked for; there is: usual, other$"):
        several.named("x")
    assert several.without(frozenset({"tag"})).more == (other,)
    assert len({each.hash() for each in (BATCHED, several, replace(several, more=()), other)}) == 4
    assert signature_from_proto(signature_to_proto(several)) == several
