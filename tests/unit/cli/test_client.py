import numpy as np
import pytest

from inference import grpc_service_pb2 as pb
from services.cli.client import Ask, outputs_of, parse_timing, to_json, to_request
from services.cli.errors import CliError


def test_timings_are_milliseconds_by_stage() -> None:
    assert parse_timing("parse;dur=0.012, auth;dur=1;desc=x, odd, bad;dur=x") == {"parse": 0.012, "auth": 1.0}
    assert parse_timing("") == {}


def test_a_request_carries_raw_tensors_and_typed_parameters() -> None:
    ask = Ask("m", {"x": np.array([[1.0, 2.0]], np.float32)}, {"i": 1, "b": True, "s": "t", "f": 0.5}, version="2")

    request = to_request(ask)

    assert (request.model_name, request.model_version) == ("m", "2")
    assert list(request.raw_input_contents) == [np.array([1, 2], "<f4").tobytes()]
    assert (request.inputs[0].datatype, list(request.inputs[0].shape)) == ("FP32", [1, 2])
    assert request.parameters["i"].int64_param == 1
    assert request.parameters["b"].WhichOneof("parameter_choice") == "bool_param"
    assert request.parameters["s"].string_param == "t"
    assert request.parameters["f"].double_param == 0.5


def test_an_array_that_no_tensor_holds_is_refused_by_name() -> None:
    with pytest.raises(CliError, match="input x: dtype complex128"):
        to_request(Ask("m", {"x": np.array([1j])}, {}))


def test_the_json_body_has_the_same() -> None:
    ask = Ask("m", {"x": np.array([["a"]], object)}, {"k": 1})

    assert to_json(ask) == {
        "inputs": [{"name": "x", "datatype": "BYTES", "shape": [1, 1], "data": ["a"]}],
        "parameters": {"k": 1},
    }


def test_outputs_are_arrays_by_name() -> None:
    response = pb.ModelInferResponse()
    response.outputs.add(name="y", datatype="INT64", shape=[2])
    response.raw_output_contents.append(np.array([3, 4], "<i8").tobytes())

    assert outputs_of(response)["y"].tolist() == [3, 4]
