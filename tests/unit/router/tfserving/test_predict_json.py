import json
import struct
from typing import Any

import pytest

from services.core.errors import InvalidRequestError
from services.core.tensor import encode_bytes
from services.router.inference import Inference
from services.router.table import Target
from services.router.tfserving import predict_json
from tests.support.puppets import signature
from tests.support.targets import target
from turnout.v1 import tensor_pb2

ONE = target([("x", "FP32", (-1, 2))])
TWO = target([("a", "INT64", (-1,)), ("b", "BYTES", (-1, 1))])


def bound(body: Any, to: Target = ONE) -> Inference:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    inference, draft = predict_json.parse("m", "", data)
    return draft.bind(to, inference)


def tensors(body: Any, to: Target = ONE) -> dict[str, tuple[str, list[int], bytes]]:
    inference = bound(body, to)
    to.check(inference.inputs, (), str(inference.parameters.get("signature_name", "")))
    return {given.name: (given.datatype, list(given.shape), bytes(given.data)) for given in inference.inputs}


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


@pytest.mark.parametrize(
    "body",
    [
        {"instances": [[1, 2], [3, 4]]},
        {"instances": [{"x": [1, 2]}, {"x": [3.0, 4]}]},
        {"inputs": [[1, 2], [3, 4]]},
        {"inputs": {"x": [[1, 2], [3, 4]]}},
    ],
)
def test_rows_and_columns_named_or_not_are_one_tensor(body: Any) -> None:
    assert tensors(body) == {"x": ("FP32", [2, 2], floats(1, 2, 3, 4))}


@pytest.mark.parametrize(
    "body",
    [
        {"instances": [{"a": 1, "b": ["u"]}, {"b": [{"b64": "dg=="}], "a": 2}]},
        {"inputs": {"a": [1, 2], "b": [["u"], [{"b64": "dg=="}]]}},
    ],
)
def test_several_inputs_are_named(body: Any) -> None:
    assert tensors(body, TWO) == {
        "a": ("INT64", [2], struct.pack("<2q", 1, 2)),
        "b": ("BYTES", [2, 1], encode_bytes([b"u", b"v"])),
    }


def test_rows_of_bytes_are_values_not_objects_of_inputs() -> None:
    text = target([("image", "BYTES", (-1,))])

    assert tensors({"instances": [{"b64": "YQ=="}, {"b64": "Yg=="}]}, text)["image"][2] == encode_bytes([b"a", b"b"])
    one = bound({"inputs": {"b64": "YQ=="}}, text).inputs[0]
    assert (one.name, list(one.shape), one.data) == ("image", [], encode_bytes([b"a"]))


def test_no_rows_in_columns_take_the_shape_of_the_signature() -> None:
    assert tensors({"inputs": []}) == {"x": ("FP32", [0, 2], b"")}


def test_a_signature_of_another_name_has_inputs_of_its_own() -> None:
    other = signature([("text", "BYTES", (-1,))])
    other.name = "embed"
    both = target([("x", "FP32", (-1, 2))], name="serving_default", more=[other])

    found = tensors({"signature_name": "embed", "instances": ["a"]}, both)

    assert found == {"text": ("BYTES", [1], encode_bytes([b"a"]))}
    assert tensors({"signature_name": "serving_default", "instances": [[1, 2]]}, both) == tensors(
        {"signature_name": "", "instances": [[1, 2]]}, both
    )
    assert tensors({"signature_name": "serving_default", "instances": [[1, 2]]}) == {
        "x": ("FP32", [1, 2], floats(1, 2))
    }


def test_parameters_are_passed_on_and_fields_that_we_do_not_know_are_left_alone() -> None:
    inference = bound({"instances": [[1, 2]], "parameters": {"user_id": "u", "priority": 1}, "extra": {}})

    assert inference.parameters == {"user_id": "u", "priority": 1}


def test_keys_of_features_are_inputs_though_the_model_has_none_of_their_name() -> None:
    use = {"view": "v", "columns": ["c"], "input": "x", "entity": "input:patient"}
    fed = target([("x", "FP32", (-1, 2))], features=[use])

    inference = bound({"instances": [{"patient": 7}, {"patient": 8}]}, fed)

    assert [tuple(given) for given in inference.inputs] == [("patient", "INT64", [2], struct.pack("<2q", 7, 8))]


@pytest.mark.parametrize(
    ("body", "key"),
    [
        ({"instances": [{"user": 7}, {"user": 8}]}, ("user", "INT64", struct.pack("<2q", 7, 8))),
        ({"inputs": {"user": ["ana"]}}, ("user", "BYTES", encode_bytes([b"ana"]))),
    ],
)
def test_before_a_version_is_chosen_its_inputs_are_what_they_look_like(body: Any, key: Any) -> None:
    _, draft = predict_json.parse("m", "", json.dumps(body).encode())

    assert [(given.name, given.datatype, given.data) for given in draft.guessed()] == [key]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "the body is empty"),
        (b"{", "the body is not JSON"),
        ([1], "the body is not an object"),
        ({}, "either 'instances' (rows) or 'inputs' (columns); it has nothing"),
        ({"instance": []}, "it has 'instance'"),
        ({"instances": [1], "inputs": [1]}, "both are there"),
        ({"instances": []}, "'instances' takes a list of at least one row"),
        ({"instances": {}}, "'instances' takes a list of at least one row"),
        ({"inputs": None}, "'inputs' is null"),
        ({"instances": [[1, 2]], "signature_name": 1}, "'signature_name' is no text"),
        ({"instances": [[1, 2]], "signature_name": "nope"}, "signature 'nope' is asked for"),
        ({"instances": [[1, 2]], "parameters": {"a": []}}, "parameter 'a' is neither"),
        ({"instances": [[1, 2]], "parameters": 1}, "'parameters' is not an object"),
        (
            {"instances": [{"x": [1, 2]}, {"y": [1, 2]}]},
            "instances[1] has not the names of instances[0], which are 'x'",
        ),
        ({"instances": [{"x": [1, 2]}, 3]}, "instances[1] has not the names"),
        ({"instances": [{"x": [1, 2]}, {"x": [1]}]}, "input 'x': lists at depth 2 differ"),
        ({"instances": [[1, 2, 3]]}, "has shape [-1, 2] (-1 = any), not [1, 3]"),
        ({"instances": [{"z": [1, 2]}]}, "model m has no input 'z'; its inputs are x FP32[-1, 2]"),
        ({"inputs": {"x": [[1, 2]], "z": 1}}, "model m has no input 'z'"),
    ],
)
def test_a_wrong_body_is_refused_with_what_would_be_right(body: Any, says: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        tensors(body)

    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"instances": [1]}, "model m has inputs 'a', 'b': name them, as in {\"instances\": [{"),
        ({"inputs": [1]}, "model m has inputs 'a', 'b': name them, as in {\"inputs\": {"),
        ({"instances": [{"a": 1}]}, "model m needs input 'b' too"),
    ],
)
def test_what_several_inputs_need_is_said(body: Any, says: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        tensors(body, TWO)

    assert says in str(refused.value)


def output(name: str, datatype: str, shape: list[int], data: bytes) -> tensor_pb2.Tensor:
    return tensor_pb2.Tensor(name=name, datatype=datatype, shape=shape, data=data)


Y = output("y", "FP32", [2, 2], floats(1, 0.5, 2, 0.1))
LABEL = output("label", "BYTES", [2], encode_bytes([b"a", b"b"]))


def test_one_output_is_bare_and_several_are_objects() -> None:
    rows, columns = (predict_json.write([Y], is_rows=is_rows) for is_rows in (True, False))
    assert (rows, columns) == (
        b'{"predictions":[[1.0,0.5],[2.0,0.1]]}',
        b'{"outputs":[[1.0,0.5],[2.0,0.1]]}',
    )
    rows, columns = (predict_json.write([Y, LABEL], is_rows=is_rows) for is_rows in (True, False))
    assert rows == b'{"predictions":[{"y":[1.0,0.5],"label":"a"},{"y":[2.0,0.1],"label":"b"}]}'
    assert columns == b'{"outputs":{"y":[[1.0,0.5],[2.0,0.1]],"label":["a","b"]}}'


def test_what_is_not_finite_is_written_in_rows_of_several_outputs_too() -> None:
    nan = output("y", "FP32", [1], floats(float("nan")))
    count = output("n", "INT64", [1], struct.pack("<q", 2**53 + 1))

    assert predict_json.write([nan, count], is_rows=True) == b'{"predictions":[{"y":NaN,"n":9007199254740993}]}'


@pytest.mark.parametrize("other", [output("n", "INT64", [], struct.pack("<q", 1)), output("n", "FP32", [1], floats(1))])
def test_outputs_without_rows_in_common_are_to_be_asked_for_in_columns(other: tensor_pb2.Tensor) -> None:
    with pytest.raises(InvalidRequestError, match=r"outputs have no rows in common \(y: \[2, 2\], n: .* 'inputs'"):
        predict_json.write([Y, other], is_rows=True)

    assert json.loads(predict_json.write([Y, other], is_rows=False))["outputs"].keys() == {"y", "n"}
