"""Tensors in shared memory and classified outputs, from one protocol's message to the other's answer."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from inference import grpc_service_pb2 as pb
from services.core.errors import InvalidRequestError, NotFoundError, TooLargeError
from services.core.model_spec import ModelSpec
from services.router import codec
from services.router.inference import Inference
from services.router.regions import Regions
from services.router.rest import answers as rest_answers
from services.router.rest import codec as rest_codec
from services.router.table import Target
from services.router.tensor_extensions import TensorExtensions
from turnout.v1 import link_pb2

INPUT = {"shared_memory_region": "in", "shared_memory_byte_size": 8, "shared_memory_offset": 8}
OUTPUT = {"shared_memory_region": "out", "shared_memory_byte_size": 16}
LIMIT_BYTES = 1000


@pytest.fixture
def extensions(tmp_path: Path) -> TensorExtensions:
    (tmp_path / "a").write_bytes(struct.pack("<4f", 1, 2, 3, 4))
    (tmp_path / "b").write_bytes(bytes(2000))
    regions = Regions(offered=True, folder=tmp_path)
    regions.register("in", "a", 0, 16)
    regions.register("out", "b", 100, 32)
    regions.register("large", "b", 0, 2000)
    return TensorExtensions(regions, LIMIT_BYTES)


def target() -> Target:
    served = link_pb2.Served(model="m", version="1")
    served.signature.batches = True
    return Target(served, ModelSpec.parse(b'{"labels": {"y": ["cat", "dog"]}}'))


def by_grpc(given: dict[str, Any] | None, wanted: dict[str, Any] | None, raw: int = 0) -> Inference:
    request = pb.ModelInferRequest(model_name="m", raw_input_contents=[b"\0" * 8] * raw)
    tensor = request.inputs.add(name="x", datatype="FP32", shape=[1, 2])
    output = request.outputs.add(name="y")
    for parameters, said in ((tensor.parameters, given), (output.parameters, wanted)):
        for name, value in (said or {}).items():
            if isinstance(value, str):
                parameters[name].string_param = value
            else:
                parameters[name].int64_param = value
    return codec.parse_request(request.SerializeToString())


def by_rest(given: dict[str, Any] | None, wanted: dict[str, Any] | None, raw: int = 0) -> Inference:
    tensor: dict[str, Any] = {"name": "x", "datatype": "FP32", "shape": [1, 2]}
    body = {
        "inputs": [tensor | ({"data": [0, 0]} if raw else {}) | ({"parameters": given} if given else {})],
        "outputs": [{"name": "y"} | ({"parameters": wanted} if wanted else {})],
    }
    return rest_codec.parse_request("m", "", json.dumps(body).encode())


PROTOCOLS = pytest.mark.parametrize("parse", [by_grpc, by_rest])


def reply() -> link_pb2.Reply:
    output = {"name": "y", "datatype": "FP32", "shape": [1, 3], "data": struct.pack("<3f", 1, 3, 2)}
    return link_pb2.Reply(outputs=[output])


@PROTOCOLS
def test_an_input_is_read_where_it_lies(extensions: TensorExtensions, parse: Any) -> None:
    inference = extensions.take(parse(INPUT, None))

    assert inference.inputs[0].data == struct.pack("<2f", 3, 4)


@PROTOCOLS
def test_an_ordinary_request_has_no_extras(parse: Any) -> None:
    assert parse(None, None, raw=1).extras is None
    assert parse({"content_type": "x"}, {"classification": 0, "binary_data": 1}, raw=1).extras is None


@PROTOCOLS
def test_an_output_goes_to_its_region_and_the_answer_says_so(
    extensions: TensorExtensions, parse: Any, tmp_path: Path
) -> None:
    inference = extensions.take(parse(None, OUTPUT, raw=1))
    original = reply()
    answer = extensions.answered(inference, target(), original)

    assert (tmp_path / "b").read_bytes()[100:112] == struct.pack("<3f", 1, 3, 2)
    assert (answer.outputs[0].data, len(original.outputs[0].data)) == (b"", 12)  # mirrors still have it
    assert inference.extras is not None
    placed = inference.extras.placed
    message = pb.ModelInferResponse.FromString(codec.write_response("m", "1", "", answer, placed))
    assert list(message.raw_output_contents) == [b""]
    assert message.outputs[0].parameters["shared_memory_region"].string_param == "out"
    assert message.outputs[0].parameters["shared_memory_byte_size"].int64_param == 12
    said = json.loads(rest_answers.write_response("m", "1", "", answer, placed))["outputs"]
    assert said == [
        {
            "name": "y",
            "datatype": "FP32",
            "shape": [1, 3],
            "parameters": {"shared_memory_region": "out", "shared_memory_byte_size": 12},
        }
    ]


@PROTOCOLS
def test_an_output_may_be_classified(extensions: TensorExtensions, parse: Any) -> None:
    inference = extensions.take(parse(None, {"classification": 2}, raw=1))
    answer = extensions.answered(inference, target(), reply())

    assert json.loads(rest_answers.write_response("m", "1", "", answer))["outputs"] == [
        {"name": "y", "datatype": "BYTES", "shape": [1, 2], "data": ["3.000000:1:dog", "2.000000:2"]}
    ]


@PROTOCOLS
def test_an_output_larger_than_its_place_is_refused_and_nothing_is_written(
    extensions: TensorExtensions, parse: Any, tmp_path: Path
) -> None:
    inference = extensions.take(parse(None, {**OUTPUT, "shared_memory_byte_size": 11}, raw=1))

    with pytest.raises(
        InvalidRequestError, match="output 'y' has 12 bytes, and shared_memory_byte_size lets it have 11"
    ):
        extensions.answered(inference, target(), reply())
    assert not any((tmp_path / "b").read_bytes())


@PROTOCOLS
def test_a_region_that_is_unregistered_meanwhile_still_takes_the_answer(
    extensions: TensorExtensions, parse: Any, tmp_path: Path
) -> None:
    inference = extensions.take(parse(None, OUTPUT, raw=1))
    extensions.regions.unregister()
    extensions.answered(inference, target(), reply())

    assert any((tmp_path / "b").read_bytes())


@pytest.mark.parametrize(
    ("given", "wanted", "raw", "fault", "says"),
    [
        ({**INPUT, "shared_memory_region": "no"}, None, 0, NotFoundError, "no shared memory region 'no'"),
        ({**INPUT, "shared_memory_offset": 9}, None, 0, InvalidRequestError, "has 16 bytes; shared_memory_offset 9"),
        ({**INPUT, "shared_memory_offset": -1}, None, 0, InvalidRequestError, "shared_memory_offset is -1"),
        ({"shared_memory_region": "in"}, None, 0, InvalidRequestError, "shared_memory_byte_size is None"),
        ({**INPUT, "shared_memory_region": 3}, None, 0, InvalidRequestError, "shared_memory_region is 3"),
        (
            {"shared_memory_region": "large", "shared_memory_byte_size": 1000},
            None,
            0,
            TooLargeError,
            "with those in shared memory; this router takes 1000",
        ),
        (None, {**OUTPUT, "shared_memory_region": "no"}, 1, NotFoundError, "no shared memory region 'no'"),
        (None, {**OUTPUT, "shared_memory_byte_size": 33}, 1, InvalidRequestError, "reach past its end"),
        (None, {**OUTPUT, "classification": 1}, 1, InvalidRequestError, "both classification and"),
        (None, {"classification": -1}, 1, InvalidRequestError, "classification is -1"),
        (None, {"classification": "two"}, 1, InvalidRequestError, "classification is 'two'"),
    ],
)
@PROTOCOLS
def test_what_cannot_be_is_refused_before_it_is_sent(
    extensions: TensorExtensions, parse: Any, given: Any, wanted: Any, raw: int, fault: type[Exception], says: str
) -> None:
    with pytest.raises(fault, match=says):
        extensions.take(parse(given, wanted, raw))


@PROTOCOLS
def test_data_and_a_region_exclude_each_other(extensions: TensorExtensions, parse: Any) -> None:
    with pytest.raises(InvalidRequestError):
        extensions.take(parse(INPUT, None, raw=1))


def test_raw_entries_are_of_the_inputs_that_are_not_elsewhere(extensions: TensorExtensions) -> None:
    request = pb.ModelInferRequest(model_name="m", raw_input_contents=[b"\x01", b"\x03"])
    for name in ("a", "b", "c"):
        request.inputs.add(name=name, datatype="UINT8", shape=[1])
    for key, value in INPUT.items():
        if isinstance(value, str):
            request.inputs[1].parameters[key].string_param = value
        else:
            request.inputs[1].parameters[key].int64_param = value
    inference = extensions.take(codec.parse_request(request.SerializeToString()))

    assert [given.data for given in inference.inputs] == [b"\x01", struct.pack("<2f", 3, 4), b"\x03"]
