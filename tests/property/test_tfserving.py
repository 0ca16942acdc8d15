"""The same values, in whichever of TensorFlow Serving's forms, are one tensor; and an answer says what it was."""

import json
from functools import lru_cache
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from services.core.arrays import NUMPY_DTYPE, decode, encode
from services.core.errors import InvalidRequestError
from services.core.signature import Given
from services.router.table import Target
from services.router.tfserving import predict_codec, predict_json
from services.router.tfserving.tensors import tensor_proto
from tests.support.targets import target
from turnout.tfserving import prediction_service_pb2 as pb
from turnout.v1 import tensor_pb2

SHAPES = npst.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4)
ARRAYS = st.sampled_from(sorted(NUMPY_DTYPE)).flatmap(lambda name: npst.arrays(NUMPY_DTYPE[name], SHAPES))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["x", "b64", "instances", "inputs"]), inner, max_size=2)
    ),
    max_leaves=8,
)


@lru_cache
def target_of(datatype: str, rank: int) -> Target:
    return target([("x", datatype, (-1,) * rank)])


def by_json(body: Any, array: np.ndarray) -> Given:
    of = target_of(encode(array)[0], len(array.shape))
    inference, draft = predict_json.parse("m", "", json.dumps(body).encode())
    return draft.bind(of, inference).inputs[0]


def by_grpc(array: np.ndarray, *, content: bool) -> Given:
    datatype, data = encode(array)
    request = pb.PredictRequest(model_spec=pb.ModelSpec(name="m"))
    tensor = tensor_proto("x", datatype, array.shape, data)
    if content:
        for _, values in tensor.ListFields()[2:]:
            del values[:]
        tensor.tensor_content = data
    request.inputs["x"].CopyFrom(tensor)
    return predict_codec.parse(request.SerializeToString()).inputs[0]


@settings(max_examples=40)
@given(ARRAYS)
def test_rows_columns_and_protobuf_are_one_tensor(array: np.ndarray) -> None:
    values = array.tolist()
    forms = [
        by_json({"instances": values}, array),
        by_json({"instances": [{"x": row} for row in values]}, array),
        by_json({"inputs": values}, array),
        by_json({"inputs": {"x": values}}, array),
        by_grpc(array, content=True),
        by_grpc(array, content=False),
    ]

    for form in forms:
        assert (form.name, form.datatype, tuple(form.shape)) == ("x", encode(array)[0], array.shape)
        np.testing.assert_array_equal(decode(form.datatype, form.shape, form.data), array)


@settings(max_examples=40)
@given(ARRAYS)
def test_rows_and_columns_of_an_answer_are_the_same_numbers(array: np.ndarray) -> None:
    datatype, data = encode(array)
    output = tensor_pb2.Tensor(name="y", datatype=datatype, shape=array.shape, data=data)

    rows = json.loads(predict_json.write([output], is_rows=True))["predictions"]
    columns = json.loads(predict_json.write([output], is_rows=False))["outputs"]

    np.testing.assert_array_equal(np.array(rows, dtype=array.dtype), array)
    assert json.dumps(rows) == json.dumps(columns)


@given(JSON | st.fixed_dictionaries({"instances": JSON}) | st.fixed_dictionaries({"inputs": JSON}))
def test_any_json_is_a_tensor_of_the_signature_or_refused(body: Any) -> None:
    of = target_of("FP32", 2)
    try:
        inference, draft = predict_json.parse("m", "", json.dumps(body).encode())
        draft.guessed()
        bound = draft.bind(of, inference)
        of.check(bound.inputs, ())
    except InvalidRequestError:
        return

    assert bound.inputs[0].datatype == "FP32"


@given(st.binary(max_size=60))
def test_any_bytes_are_a_predict_request_or_refused(payload: bytes) -> None:
    try:
        inference = predict_codec.parse(payload)
    except InvalidRequestError:
        return

    assert inference.model
