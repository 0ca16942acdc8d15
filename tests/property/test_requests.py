"""What callers send: every short cut agrees with the long way, and codecs lose nothing."""

import json
import math
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference import grpc_service_pb2 as pb
from services.core.errors import InvalidRequestError
from services.core.model_spec import ModelSpec
from services.core.protowire import bytes_field
from services.core.signature import Given, check_inputs
from services.core.tensor import ELEMENT_BYTES, encode_bytes
from services.router import codec
from services.router.rest import answers as rest_answers
from services.router.rest import codec as rest_codec
from services.router.table import Target
from turnout.v1 import link_pb2, tensor_pb2

NAMES = st.sampled_from(["x", "y", ""])
SIZED = st.sampled_from(["FP32", "INT8", "INT64", "BF16"])
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def rows_or_refusal(check: Callable[[], int]) -> int | str:
    try:
        return check()
    except InvalidRequestError as error:
        return str(error)


@st.composite
def signatures_and_inputs(draw: st.DrawFn) -> tuple[link_pb2.Served, list[Given]]:
    """A signature of one or two inputs, and inputs that nearly fit it."""
    dimensions = st.lists(st.sampled_from([-1, 0, 1, 2, 3]), max_size=3)
    specs = [
        tensor_pb2.TensorSpec(
            name=name, datatype=draw(SIZED), shape=[draw(st.sampled_from([-1, 2])), *draw(dimensions)]
        )
        for name in draw(st.sampled_from([["x"], ["x"], ["x", "y"]]))
    ]
    inputs = []
    for spec in draw(st.sampled_from([specs, specs, specs[:1], [*specs, specs[0]], []])):
        rows = draw(st.integers(0, 5))
        shape = [rows, *(draw(st.integers(0, 3)) if size < 0 else size for size in spec.shape[1:])]
        if draw(st.integers(0, 4)) == 0:
            shape = draw(st.lists(st.integers(-1, 4), max_size=4))
        datatype = draw(st.sampled_from([spec.datatype, spec.datatype, spec.datatype, "FP32"]))
        size = abs(math.prod(shape)) * ELEMENT_BYTES[datatype]
        data = bytes(max(0, size + draw(st.sampled_from([0, 0, 0, 0, 1, -1]))))
        inputs.append(Given(draw(st.sampled_from([spec.name, spec.name, spec.name, "z"])), datatype, shape, data))
    signature = tensor_pb2.Signature(inputs=specs, batches=draw(st.booleans()))
    return link_pb2.Served(model="m", version="1", signature=signature, max_request_rows=1000), inputs


@given(signatures_and_inputs())
def test_the_fast_check_of_rows_says_what_the_full_check_says(case: tuple[link_pb2.Served, list[Given]]) -> None:
    served, inputs = case
    target = Target(served, ModelSpec())

    short = rows_or_refusal(lambda: target.check(inputs, ()))

    assert short == rows_or_refusal(lambda: check_inputs("m", target.signature, inputs))


def raw_request(draw: st.DrawFn) -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(model_name=draw(TEXT), model_version=draw(TEXT), id=draw(TEXT))
    for name, value in draw(st.dictionaries(TEXT, st.integers(-(1 << 63), (1 << 63) - 1), max_size=2)).items():
        request.parameters[name].int64_param = value
    for _ in range(draw(st.sampled_from([1, 1, 1, 0, 2]))):
        shape = draw(st.lists(st.integers(0, 1 << 40), max_size=3))
        request.inputs.add(name=draw(TEXT), datatype=draw(SIZED), shape=shape)
        request.raw_input_contents.append(draw(st.binary(max_size=40)))
    for name in draw(st.lists(TEXT, max_size=2)):
        request.outputs.add(name=name)
    return request


@st.composite
def raw_requests(draw: st.DrawFn) -> pb.ModelInferRequest:
    return raw_request(draw)


@given(raw_requests())
def test_a_raw_request_is_read_as_it_was_written(request: pb.ModelInferRequest) -> None:
    inference = codec.parse_request(request.SerializeToString())

    assert (inference.model, inference.version, inference.id) == (request.model_name, request.model_version, request.id)
    assert dict(inference.parameters) == {name: value.int64_param for name, value in request.parameters.items()}
    assert list(inference.outputs) == [output.name for output in request.outputs]
    assert [(i.name, i.datatype, list(i.shape), i.data) for i in inference.inputs] == [
        (i.name, i.datatype, list(i.shape), data)
        for i, data in zip(request.inputs, request.raw_input_contents, strict=True)
    ]


@st.composite
def odd_messages(draw: st.DrawFn) -> bytes:
    """A request as no library writes it: fields in any order, unknown ones, some that look like the tensor's."""
    request = raw_request(draw)
    if draw(st.booleans()):
        request.ClearField("id")
        request.ClearField("parameters")
    parts = []
    for field, value in request.ListFields():
        for each in value if field.name in {"inputs", "outputs", "raw_input_contents"} else [value]:
            one = pb.ModelInferRequest()
            if field.name in {"inputs", "outputs", "raw_input_contents"}:
                getattr(one, field.name).append(each)
            elif field.name == "parameters":
                one.MergeFrom(pb.ModelInferRequest(parameters=each))
            else:
                setattr(one, field.name, each)
            parts.append(one.SerializeToString())
    if request.raw_input_contents:
        size = len(request.raw_input_contents[0])
        parts.append(bytes_field(100, bytes_field(7, bytes(size))))
    return b"".join(draw(st.permutations(parts)))


@given(odd_messages() | raw_requests().map(lambda request: request.SerializeToString()), st.binary(max_size=60))
def test_a_known_header_means_what_it_meant(payload: bytes, other: bytes) -> None:
    templates = codec.ModelInferCodec()
    templates.learn(payload, codec.parse_request(payload))
    for count in range(min(len(payload), len(other)) + 1):
        message = payload[: len(payload) - count] + other[:count]
        found = templates.find(message)
        if found is None:
            continue
        template, data = found
        inference = codec.parse_request(message)

        assert template.inference == inference._replace(inputs=())
        assert [(*template.given[:3], bytes(data))] == [
            (i.name, i.datatype, tuple(i.shape), i.data) for i in inference.inputs
        ]


TYPED: dict[str, tuple[str, st.SearchStrategy[Any], str]] = {
    "BOOL": ("bool_contents", st.booleans(), "?"),
    "INT8": ("int_contents", st.integers(-128, 127), "b"),
    "INT16": ("int_contents", st.integers(-(1 << 15), (1 << 15) - 1), "h"),
    "INT32": ("int_contents", st.integers(-(1 << 31), (1 << 31) - 1), "i"),
    "INT64": ("int64_contents", st.integers(-(1 << 63), (1 << 63) - 1), "q"),
    "UINT8": ("uint_contents", st.integers(0, 255), "B"),
    "UINT16": ("uint_contents", st.integers(0, (1 << 16) - 1), "H"),
    "UINT32": ("uint_contents", st.integers(0, (1 << 32) - 1), "I"),
    "UINT64": ("uint64_contents", st.integers(0, (1 << 64) - 1), "Q"),
    "FP32": ("fp32_contents", st.floats(width=32), "f"),
    "FP64": ("fp64_contents", st.floats(), "d"),
}


@pytest.mark.parametrize("datatype", TYPED)
@given(data=st.data())
def test_typed_json_and_raw_are_the_same_tensor(datatype: str, data: st.DataObject) -> None:
    field, elements, code = TYPED[datatype]
    values = data.draw(st.lists(elements, max_size=6))
    raw = struct.pack(f"<{len(values)}{code}", *values)
    request = pb.ModelInferRequest()
    tensor = request.inputs.add(name="x", datatype=datatype, shape=[len(values)])
    getattr(tensor.contents, field).extend(values)
    described = {"name": "x", "datatype": datatype, "shape": [len(values)], "data": values}
    reply = link_pb2.Reply(outputs=[{"name": "x", "datatype": datatype, "shape": [len(values)], "data": raw}])

    by_grpc = codec.parse_request(request.SerializeToString())
    by_rest = rest_codec.parse_request("m", "", json.dumps({"inputs": [described]}).encode())
    answered = json.loads(rest_answers.write_response("m", "1", "", reply))["outputs"][0]["data"]
    again = rest_codec.parse_request("m", "", json.dumps({"inputs": [{**described, "data": answered}]}).encode())

    for inference in (by_grpc, by_rest, again):
        assert_same(inference.inputs[0].data, raw, code)


def assert_same(one: bytes | memoryview, other: bytes, code: str) -> None:
    """Bit for bit, but for what a NaN carries."""
    pairs = zip(struct.iter_unpack(f"<{code}", one), struct.iter_unpack(f"<{code}", other), strict=True)
    for (left,), (right,) in pairs:
        assert left == right or (math.isnan(left) and math.isnan(right))
        if code in "fd":
            assert math.copysign(1, left) == math.copysign(1, right) or math.isnan(left)


@given(st.lists(st.binary(max_size=12), max_size=5))
def test_bytes_survive_both_protocols(elements: list[bytes]) -> None:
    raw = encode_bytes(elements)
    request = pb.ModelInferRequest()
    request.inputs.add(name="x", datatype="BYTES", shape=[len(elements)]).contents.bytes_contents.extend(elements)
    output = {"name": "x", "datatype": "BYTES", "shape": [len(elements)], "data": raw}

    answered = json.loads(rest_answers.write_response("m", "1", "", link_pb2.Reply(outputs=[output])))
    by_rest = rest_codec.parse_request("m", "", json.dumps({"inputs": answered["outputs"]}).encode())

    assert codec.parse_request(request.SerializeToString()).inputs[0].data == raw
    assert by_rest.inputs[0].data == raw


@given(raw_requests(), st.lists(st.integers(0, 1 << 40), max_size=4), st.binary(max_size=20))
def test_an_answer_is_the_message_that_protobuf_would_write(
    request: pb.ModelInferRequest, shape: list[int], data: bytes
) -> None:
    output = {"name": request.model_name, "datatype": "FP32", "shape": shape, "data": data}
    reply = link_pb2.Reply(outputs=[output, output])

    written = codec.write_response(request.model_name, "1", request.id, reply)

    expected = pb.ModelInferResponse(model_name=request.model_name, model_version="1", id=request.id)
    for _ in range(2):
        expected.outputs.add(name=request.model_name, datatype="FP32", shape=shape)
        expected.raw_output_contents.append(data)
    assert pb.ModelInferResponse.FromString(written) == expected


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_refused(payload: bytes) -> None:
    for parse in (codec.parse_request, lambda body: rest_codec.parse_request("m", "", body)):
        with suppress(InvalidRequestError):
            parse(payload)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.dictionaries(st.sampled_from(["name", "datatype", "shape", "data", "parameters"]), JSON, max_size=5)
ODD_INPUT = st.builds(
    lambda odd, datatype, data: {"name": "x", "datatype": datatype, "shape": [2], "data": data, **odd},
    FIELDS,
    st.sampled_from([*TYPED, "BYTES", "FP16"]),
    JSON,
)


@given(
    st.fixed_dictionaries({}, optional={"id": JSON, "parameters": JSON, "outputs": JSON, "inputs": st.lists(ODD_INPUT)})
)
def test_any_json_is_a_request_or_refused(body: dict[str, Any]) -> None:
    with suppress(InvalidRequestError):
        for tensor in rest_codec.parse_request("m", "", json.dumps(body).encode()).inputs:
            size = ELEMENT_BYTES.get(tensor.datatype)
            assert size is None or len(tensor.data) == math.prod(tensor.shape) * size
