import struct
from typing import Any

import pytest

from inference import grpc_service_pb2 as pb
from services.core.errors import InvalidRequestError
from services.router.codec import parse_request, timing_text, write_response
from turnout.v1 import link_pb2

# Computed by hand from the protocol
GOLDEN_REQUEST = bytes.fromhex("0a016d1a01312a0d0a0178120446503332 1a0201023a080000803f00000040")
GOLDEN_RESPONSE = bytes.fromhex("0a016d1201311a01312a0d0a01791205494e5436341a01013208ffffffffffffffff")


def typed(datatype: str, field: str, values: list[Any], **more: list[Any]) -> bytes:
    request = pb.ModelInferRequest()
    tensor = request.inputs.add(name="x", datatype=datatype, shape=[len(values)])
    for name, each in {field: values, **more}.items():
        getattr(tensor.contents, name).extend(each)
    return request.SerializeToString()


def test_the_golden_request_is_read() -> None:
    inference = parse_request(GOLDEN_REQUEST)

    assert (inference.model, inference.version, inference.id, inference.size_bytes) == ("m", "", "1", 31)
    (given,) = inference.inputs
    assert (given.name, given.datatype, list(given.shape), given.data) == (
        "x",
        "FP32",
        [1, 2],
        struct.pack("<ff", 1, 2),
    )


def test_the_golden_answer_is_written() -> None:
    output = {"name": "y", "datatype": "INT64", "shape": [1], "data": b"\xff" * 8}

    assert write_response("m", "1", "1", link_pb2.Reply(outputs=[output])) == GOLDEN_RESPONSE


@pytest.mark.parametrize(
    ("datatype", "field", "values", "code"),
    [
        ("BOOL", "bool_contents", [True, False], "?"),
        ("INT8", "int_contents", [-128, 127], "b"),
        ("INT16", "int_contents", [-32768, 32767], "h"),
        ("INT32", "int_contents", [-(1 << 31), (1 << 31) - 1], "i"),
        ("INT64", "int64_contents", [-(1 << 63), (1 << 53) + 1], "q"),
        ("UINT8", "uint_contents", [0, 255], "B"),
        ("UINT16", "uint_contents", [0, 65535], "H"),
        ("UINT32", "uint_contents", [0, (1 << 32) - 1], "I"),
        ("UINT64", "uint64_contents", [0, (1 << 64) - 1], "Q"),
        ("FP32", "fp32_contents", [1.5, float("-inf")], "f"),
        ("FP64", "fp64_contents", [1e300, -0.0], "d"),
        ("INT8", "int_contents", [], "b"),
    ],
)
def test_typed_contents_become_raw_bytes(datatype: str, field: str, values: list[Any], code: str) -> None:
    (given,) = parse_request(typed(datatype, field, values)).inputs

    assert given.data == struct.pack(f"<{len(values)}{code}", *values)


def test_typed_bytes_keep_every_byte() -> None:
    (given,) = parse_request(typed("BYTES", "bytes_contents", [b"ab", b"", b"\xc3\xa9", b"a\0"])).inputs

    assert given.data == bytes.fromhex("0200000061620000000002000000c3a9020000006100")


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (typed("INT8", "int_contents", [128]), "a value is outside INT8, -128 to 127"),
        (typed("INT8", "int_contents", [-129]), "a value is outside INT8, -128 to 127"),
        (typed("INT16", "int_contents", [0, 40000]), "a value is outside INT16, -32768 to 32767"),
        (typed("UINT8", "uint_contents", [256]), "a value is outside UINT8, 0 to 255"),
        (typed("UINT16", "uint_contents", [1 << 16]), "a value is outside UINT16, 0 to 65535"),
        (typed("FP32", "fp64_contents", [1.0]), "'x' is FP32: fill fp32_contents, not fp64_contents"),
        (typed("FP32", "fp32_contents", [1.0], int_contents=[1]), "fill fp32_contents, not int_contents"),
        (typed("FP16", "fp32_contents", [1.0]), "FP16 travels in raw_input_contents only"),
        (typed("BF16", "fp32_contents", [1.0]), "BF16 travels in raw_input_contents only"),
        (typed("", "fp32_contents", [1.0]), "no datatype travels in raw_input_contents only"),
        (GOLDEN_REQUEST[:-1], "30 bytes that are not an inference.ModelInferRequest: was the message cut off?"),
        (b"\xff", "1 bytes that are not"),
        (b"\x0a\x01\xff", "3 bytes that are not"),
        (GOLDEN_REQUEST + typed("FP32", "fp32_contents", [1.0]), "1 raw_input_contents for 2 inputs"),
        (GOLDEN_REQUEST + GOLDEN_REQUEST[-10:], "2 raw_input_contents for 1 inputs"),
        (typed("FP32", "fp32_contents", [1.0]) + GOLDEN_REQUEST[-10:], "both contents and raw_input_contents"),
    ],
)
def test_what_is_no_request_is_refused_with_what_would_be_right(payload: bytes, says: str) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        parse_request(payload)

    assert says in str(refusal.value)


def test_parameters_of_every_kind_are_taken() -> None:
    request = pb.ModelInferRequest()
    request.parameters["a"].bool_param = True
    request.parameters["b"].int64_param = -1
    request.parameters["c"].string_param = "s"
    request.parameters["d"].double_param = 0.5
    request.parameters["e"].uint64_param = (1 << 64) - 1
    request.parameters["f"].SetInParent()

    parsed = parse_request(request.SerializeToString()).parameters

    assert parsed == {"a": True, "b": -1, "c": "s", "d": 0.5, "e": (1 << 64) - 1, "f": ""}


def test_an_empty_output_still_has_its_entry() -> None:
    outputs = [{"name": "y", "datatype": "FP32", "shape": [0, 4]}, {"name": "z", "datatype": "INT8", "data": b"\1"}]

    response = pb.ModelInferResponse.FromString(write_response("m", "1", "", link_pb2.Reply(outputs=outputs)))

    assert list(response.raw_output_contents) == [b"", b"\1"]
    assert [list(output.shape) for output in response.outputs] == [[0, 4], []]


def test_timings_are_milliseconds() -> None:
    assert timing_text([("parse", 12_345), ("total", 2_000_000)]) == "parse;dur=0.012, total;dur=2.000"
