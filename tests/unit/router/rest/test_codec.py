import json
import math
import struct
import time
from typing import Any

import numpy as np
import pytest

from services.core.errors import InvalidRequestError
from services.core.signature import TensorSpec
from services.core.tensor import encode_bytes
from services.router.rest.answers import write_response
from services.router.rest.codec import error_body, parse_request, tensors
from services.router.rest.json_data import loads, numbers
from turnout.v1 import link_pb2


def body_of(datatype: str, shape: list[int], data: Any, **fields: Any) -> bytes:
    return json.dumps(
        {"inputs": [{"name": "x", "datatype": datatype, "shape": shape, "data": data, **fields}]}
    ).encode()


def data_of(body: bytes) -> bytes:
    return bytes(parse_request("m", "", body).inputs[0].data)


def refusal(body: bytes) -> str:
    with pytest.raises(InvalidRequestError) as error:
        parse_request("m", "", body)
    return str(error.value)


def answer(datatype: str, shape: list[int], data: bytes) -> Any:
    output = {"name": "y", "datatype": datatype, "shape": shape, "data": data}
    return json.loads(write_response("m", "1", "", link_pb2.Reply(outputs=[output])))["outputs"][0]


NUMBERS = [
    ("BOOL", [True, False, 0, 1], b"\1\0\0\1"),
    ("INT8", [-128, 127], struct.pack("<2b", -128, 127)),
    ("INT16", [-32768, 32767], struct.pack("<2h", -32768, 32767)),
    ("INT32", [-(1 << 31), (1 << 31) - 1], struct.pack("<2i", -(1 << 31), (1 << 31) - 1)),
    ("INT64", [(1 << 53) + 1, -(1 << 63)], struct.pack("<2q", (1 << 53) + 1, -(1 << 63))),
    ("UINT8", [0, 255], b"\0\xff"),
    ("UINT16", [0, 65535], b"\0\0\xff\xff"),
    ("UINT32", [0, (1 << 32) - 1], struct.pack("<2I", 0, (1 << 32) - 1)),
    ("UINT64", [(1 << 53) + 1, (1 << 64) - 1], struct.pack("<2Q", (1 << 53) + 1, (1 << 64) - 1)),
    ("FP32", [1, 0.5, -0.0], struct.pack("<3f", 1, 0.5, -0.0)),
    ("FP64", [1, 0.1, 1e300], struct.pack("<3d", 1, 0.1, 1e300)),
]


@pytest.mark.parametrize(("datatype", "values", "raw"), NUMBERS)
def test_numbers_are_exact_in_both_directions(datatype: str, values: list[Any], raw: bytes) -> None:
    assert data_of(body_of(datatype, [len(values)], values)) == raw
    assert answer(datatype, [len(values)], raw)["data"] == values


@pytest.mark.parametrize(
    ("shape", "data"),
    [
        ([2, 2], [[1, 2], [3, 4]]),
        ([2, 2], [1, 2, 3, 4]),
        ([1, 2, 2], [[[1, 2], [3, 4]]]),
        ([1, 2, 2], [[1, 2], [3, 4]]),
    ],
)
def test_data_may_be_nested_or_flat(shape: list[int], data: Any) -> None:
    assert data_of(body_of("INT8", shape, data)) == b"\1\2\3\4"


@pytest.mark.parametrize(
    ("shape", "data", "raw"), [([], 7, b"\7"), ([], [7], b"\7"), ([0, 4], [], b""), ([1, 0], [[]], b"")]
)
def test_scalars_and_nothing_are_tensors_too(shape: list[int], data: Any, raw: bytes) -> None:
    assert data_of(body_of("INT8", shape, data)) == raw


@pytest.mark.parametrize(
    "values", [b"[NaN, Infinity, -Infinity]", b'["NaN", "Infinity", "-Infinity"]', b'[NaN, "Infinity", -Infinity]']
)
def test_what_is_not_finite_may_be_a_token_or_a_word(values: bytes) -> None:
    body = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [3], "data": ' + values + b"}]}"
    nan, *rest = struct.unpack("<3f", data_of(body))

    assert (math.isnan(nan), rest) == (True, [math.inf, -math.inf])


def test_tokens_are_told_from_texts_however_those_are_quoted() -> None:
    body = rb'{"a\\":"NaN","b\"NaN":[NaN,"x\\\"NaN, Infinity",-Infinity], "c": Infinity}'

    said = loads(body)

    assert said == {"a\\": "NaN", 'b"NaN': ["NaN", 'x\\"NaN, Infinity', "-Infinity"], "c": "Infinity"}


@pytest.mark.parametrize(
    "body", [b"[NaN", b"[1NaN]", b"[-NaN]", b'"NaN', b'[NaN, "\\', b"[NaN\0]", b'["\\ud800", NaN]']
)
def test_tokens_make_no_json_of_what_is_none(body: bytes) -> None:
    with pytest.raises(InvalidRequestError, match="the body is not JSON"):
        loads(body)


def test_a_token_costs_its_request_nothing_much() -> None:
    body = b'[{"x": "", "y": [NaN, ' + b"1.5, " * 1_000_000 + b"-Infinity]}]"
    values = np.full(1_000_000, 1.5, np.float32)
    values[7] = -np.inf
    began = time.process_time()
    assert loads(body)[0]["y"][-1] == "-Infinity"
    assert numbers("y", "FP32", values.tobytes()).count(b"-Infinity") == 1
    with pytest.raises(InvalidRequestError, match="texts stand between bare NaN"):
        loads(b"[" + b'NaN, "", ' * 1_000_000 + b"1]")

    assert time.process_time() - began < 3  # 0.2 s on a machine at rest; a reader that knows tokens takes 8


def test_what_is_not_finite_comes_back_as_tokens() -> None:
    nan, *rest = answer("FP32", [4], struct.pack("<4f", math.nan, math.inf, -math.inf, -0.0))["data"]

    assert (math.isnan(nan), rest, math.copysign(1, rest[2])) == (True, [math.inf, -math.inf, 0], -1)
    assert numbers("y", "FP64", struct.pack("<3d", 1.1, math.nan, math.nan)) == b"[1.1,NaN,NaN]"


@pytest.mark.parametrize(
    ("datatype", "values", "says"),
    [
        ("INT8", [300], "input 'x': a value is outside the range of INT8"),
        ("INT8", [-129], "outside the range of INT8"),
        ("UINT8", [-1], "outside the range of UINT8"),
        ("INT64", [1 << 63], "outside the range of INT64"),
        ("UINT64", [1 << 64], "UINT64 takes whole numbers"),
        ("INT32", [1.0], "INT32 takes whole numbers, not '1.0'"),
        ("INT32", ["1"], "INT32 takes whole numbers, not '1'"),
        ("INT32", [None], "INT32 takes whole numbers, not 'None'"),
        ("BOOL", [2], "BOOL takes true, false, 0 or 1"),
        ("BOOL", [1.0], "BOOL takes true, false, 0 or 1"),
        ("BOOL", [[1]], "1 elements"),
        ("FP32", ["1.5"], "must be real number"),
        ("FP32", [None], "must be real number"),
        ("FP64", [{}], "must be real number"),
        ("FP16", [1.0], "FP16 has no JSON form: send it as binary data"),
        ("BF16", [1.0], "BF16 has no JSON form"),
        ("FP8", [1.0], "datatype is 'FP8'; known are BOOL"),
        ("BYTES", [1], "BYTES takes text, not '1'"),
        ("BYTES", [["a"]], "BYTES takes text"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_what_would(datatype: str, values: list[Any], says: str) -> None:
    text = refusal(body_of(datatype, [len(values)] if says != "1 elements" else [2], values))

    assert says in text


@pytest.mark.parametrize(
    ("shape", "data", "says"),
    [
        ([3], [1, 2], "2 elements, but shape [3] takes 3"),
        ([2, 2], [[1, 2], [3]], "3 elements, but shape [2, 2] takes 4"),
        ([2, 2], [[1, 2], 3], "nested to different depths"),
        ([1, 2], [["a"], "b"], "nested to different depths"),
        ([1, 2], [["a"], {"b": 1}], "nested to different depths"),
        ([-1], [1], "negative dimension"),
        ([1 << 40, 1 << 40], [1], "over the limit of"),
        ([True], [1], "it takes a list of whole numbers"),
        ([1.0], [1], "it takes a list of whole numbers"),
        ("1", [1], "it takes a list of whole numbers"),
        ([1] * 65, [1], "65 dimensions, over the limit of 64"),
        ([1], None, "whole numbers"),
        ([1], "abc", "whole numbers"),
    ],
)
def test_a_shape_that_does_not_fit_its_data_is_refused(shape: Any, data: Any, says: str) -> None:
    assert says in refusal(body_of("INT8", shape, data))


def test_text_is_utf8_and_base64_where_it_says_so() -> None:
    text = body_of("BYTES", [3], ["a\0b", "", "é"])
    encoded = body_of("BYTES", [1], ["/w=="], parameters={"content_type": "base64"})

    assert data_of(text) == encode_bytes([b"a\0b", b"", "é".encode()])
    assert data_of(encoded) == encode_bytes([b"\xff"])
    assert "input 'x'" in refusal(body_of("BYTES", [1], ["/w="], parameters={"content_type": "base64"}))


def test_bytes_that_are_no_text_come_back_as_base64_and_say_so() -> None:
    text = answer("BYTES", [2], encode_bytes([b"a\0", "é".encode()]))
    other = answer("BYTES", [2], encode_bytes([b"\xff", b"a"]))

    assert (text["data"], "parameters" in text) == (["a\0", "é"], False)
    assert (other["data"], other["parameters"]) == (["/w==", "YQ=="], {"content_type": "base64"})


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "the body is not JSON"),
        (b"[" * 100_000, "the body is not JSON"),
        (b'{"a":' * 100_000, "the body is not JSON"),
        (b'{"id": ' + b"9" * 5000 + b"}", "the body is not JSON"),
        (b'{"id": "\\ud800"}', "the body is not JSON"),
        (b'{"id": "\\ud800", "parameters": {"a": NaN}}', "the body is not JSON"),
        (b"\xff\xfe\x00", "the body is not JSON"),
        (b"7", 'the body is not an object; send {"inputs": [...]}'),
        (b'{"inputs": [], "input": 1}', "unknown field 'input'; a request has id, inputs, outputs, parameters"),
        (b'{"inputs": {}}', "inputs is not a list"),
        (b'{"inputs": [7]}', "inputs[0] is not an object"),
        (b'{"inputs": [{"name": ""}]}', "inputs[0] has no name"),
        (b'{"outputs": ["y"]}', 'outputs[0] has no name; send {"name": "..."}'),
        (b'{"id": 7}', "id is not text"),
        (b'{"parameters": []}', "parameters is not an object"),
        (b'{"parameters": {"a": [1]}}', "parameter 'a' is neither text, number nor boolean"),
        (b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1]}]}', "input 'x' has no data"),
    ],
)
def test_a_body_that_is_no_request_is_refused(body: bytes, says: str) -> None:
    assert says in refusal(body)


@pytest.mark.parametrize("body", [b"{}", b'{"id": null, "parameters": null, "inputs": null, "outputs": null}'])
def test_what_is_optional_may_be_null_or_absent(body: bytes) -> None:
    inference = parse_request("m", "2", body)

    assert inference == ("m", "2", "", {}, [], [], len(body), None)


def test_what_kserve_says_besides_is_no_fault() -> None:
    body = (
        b'{"id": "a", "model_name": "another", "inputs":'
        b' [{"name": "x", "shape": [0, 3], "datatype": "FP32", "parameters": {"binary_data_size": 0}, "data": null}]}'
    )
    inference = parse_request("m", "", body)

    assert (inference.model, inference.inputs) == ("m", [("x", "FP32", [0, 3], b"")])


def test_everything_that_a_request_has_is_taken() -> None:
    body = b'{"id": "a", "parameters": {"n": 1, "b": true}, "inputs": [], "outputs": [{"name": "y", "parameters": {}}]}'
    inference = parse_request("m", "", body)

    assert (inference.id, inference.parameters, inference.outputs) == ("a", {"n": 1, "b": True}, ["y"])


def test_an_answer_names_model_version_and_id() -> None:
    reply = link_pb2.Reply(outputs=[{"name": "y", "datatype": "INT8", "shape": [], "data": b"\7"}])

    with_id, without = json.loads(write_response("m", "3", "a", reply)), json.loads(write_response("m", "3", "", reply))

    output = {"name": "y", "datatype": "INT8", "shape": [], "data": [7]}
    assert with_id == {"model_name": "m", "model_version": "3", "id": "a", "outputs": [output]}
    assert "id" not in without


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_an_output_that_json_cannot_hold_says_where_to_ask(datatype: str) -> None:
    with pytest.raises(InvalidRequestError, match="which has no JSON form: ask for it as binary data"):
        answer(datatype, [1], b"\0\0")


def test_a_hundred_thousand_words_take_no_time() -> None:
    body = body_of("BYTES", [100_000], [f"word-{number}" for number in range(100_000)])
    began = time.perf_counter()
    raw = data_of(body)
    answer("BYTES", [100_000], raw)

    assert time.perf_counter() - began < 2


def test_errors_and_specs_are_json() -> None:
    assert json.loads(error_body('no "model"\n')) == {"error": 'no "model"\n'}
    assert tensors([TensorSpec("x", "FP32", (-1, 2))]) == [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]
