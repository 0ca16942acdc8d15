import struct
from types import SimpleNamespace
from typing import Any

import pytest

from services.chassis.quick_reply import ReplyReader
from services.core.errors import InvalidRequestError
from services.core.tensor import encode_bytes
from services.router.inference import Inference
from services.router.tfserving.predict_codec import PredictCodec, parse
from services.router.tfserving.tensors import tensor_proto
from tests.support.targets import target
from turnout.tfserving import prediction_service_pb2 as pb
from turnout.tfserving import tensor_pb2 as tf_tensor_pb2
from turnout.v1 import link_pb2, tensor_pb2

# As tensorflow-serving-api 2.21 and make_tensor_proto write them.
BY_VERSION = (
    "0a180a016d120208031a0f73657276696e675f64656661756c74121b0a0178121608011208120208011202080222080000803f00002040"
    "1a0179"
)
BY_LABEL = "0a0b0a016d2206737461626c6512150a0178121008071204120208024202616242026100"
ANSWER = "0a170a0179121208011204120208022a080000803f0000004012180a016d120208031a0f73657276696e675f64656661756c74"


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def message(data: bytes = floats(1, 2), *, content: bool = True, datatype: str = "FP32", **spec: Any) -> bytes:
    request = pb.PredictRequest(model_spec=pb.ModelSpec(name="m", **spec))
    tensor = tensor_proto("x", datatype, [1, 2], data)
    if content:
        for _, values in tensor.ListFields()[2:]:
            del values[:]
        tensor.tensor_content = data
    request.inputs["x"].CopyFrom(tensor)
    return request.SerializeToString()


def flight(**parameters: str) -> Any:
    served = target([("x", "FP32", (-1, 2))])
    served.version = "3"
    return SimpleNamespace(target=served, inference=Inference("m", "", "", parameters, (), (), 0))


def test_what_tensorflow_serving_s_client_writes_is_read() -> None:
    by_version, by_label = (parse(bytes.fromhex(each)) for each in (BY_VERSION, BY_LABEL))

    assert by_version[:4] == ("m", "3", "", {"signature_name": "serving_default"})
    assert [(*given[:2], list(given.shape), given.data) for given in by_version.inputs] == [
        ("x", "FP32", [1, 2], floats(1, 2.5))
    ]
    assert by_version.outputs == ["y"]
    assert by_label[:4] == ("m", "stable", "", {})
    assert by_label.inputs[0].data == encode_bytes([b"ab", b"a\0"])


def test_an_answer_is_what_its_client_reads() -> None:
    reply = link_pb2.Reply()
    reply.outputs.add(name="y", datatype="FP32", shape=[2], data=floats(1, 2))

    assert PredictCodec().write(flight(), reply).hex() == ANSWER


def test_several_outputs_of_any_datatype_are_answered() -> None:
    given = [
        tensor_pb2.Tensor(name="i", datatype="INT64", shape=[2], data=struct.pack("<2q", -1, 2)),
        tensor_pb2.Tensor(name="t", datatype="BYTES", shape=[], data=encode_bytes([b"a\0"])),
        tensor_pb2.Tensor(name="b", datatype="BOOL", shape=[1, 2], data=b"\1\0"),
        tensor_pb2.Tensor(name="d", datatype="FP64", shape=[0], data=b""),
    ]

    answer = pb.PredictResponse.FromString(PredictCodec().write(flight(), link_pb2.Reply(outputs=given)))

    assert list(answer.outputs["i"].int64_val) == [-1, 2]
    assert list(answer.outputs["t"].string_val) == [b"a\0"]
    assert list(answer.outputs["b"].bool_val) == [True, False]
    assert [dim.size for dim in answer.outputs["d"].tensor_shape.dim] == [0]
    assert len(answer.outputs) == 4


def test_a_quick_reply_is_answered_as_a_whole_one() -> None:
    reply = link_pb2.Reply(id=1, expected_wait_us=1, total_ns=1, stages_ns=[1] * 7, final=True)
    reply.outputs.add(name="y", datatype="FP32", shape=[2], data=floats(1, 2))
    encoded = b"\x09" + bytes(8) + b"\x61" + bytes(8) + b"\x39" + bytes(8) + b"\x32\x38" + bytes(56)
    rest = link_pb2.Reply(final=True).SerializeToString() + link_pb2.Reply(outputs=reply.outputs).SerializeToString()
    frame = b"\x1a" + bytes([len(encoded) + len(rest)]) + encoded + rest
    reader = ReplyReader()
    first, quick = (reader.read(frame)[0][0] for _ in range(2))

    assert type(first) is not type(quick)
    assert PredictCodec().write(flight(), quick).hex() == ANSWER


@pytest.mark.parametrize("content", [True, False])
def test_other_data_behind_the_same_header_is_found(content: bool) -> None:  # noqa: FBT001
    codec = PredictCodec()
    payload = message(content=content, signature_name="serving_default")
    codec.learn(payload, codec.parse(payload))

    found = codec.find(message(floats(3, 4), content=content, signature_name="serving_default"))

    assert found is not None
    template, data = found
    assert (template.given[:3], bytes(data)) == (("x", "FP32", (1, 2)), floats(3, 4))
    assert template.inference.parameters == {"signature_name": "serving_default"}
    assert template.plan(target([("x", "FP32", (-1, 2))]), data).rows == 1
    assert codec.find(message(floats(3, 4), content=not content, signature_name="serving_default")) is None


@pytest.mark.parametrize(
    "payload",
    [
        message(b"\1\0", datatype="BOOL", content=False),
        message(struct.pack("<2i", 1, 2), datatype="INT32", content=False),
        message() + pb.PredictRequest(output_filter=["y"]).SerializeToString(),
        bytes.fromhex(BY_LABEL),
    ],
)
def test_what_is_not_data_to_its_end_is_parsed_each_time(payload: bytes) -> None:
    codec = PredictCodec()
    codec.learn(payload, codec.parse(payload))

    assert codec.find(payload) is None


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (b"\xff", "1 bytes that are not a tensorflow.serving.PredictRequest: was the message cut off?"),
        (message()[:-1], "bytes that are not a tensorflow.serving.PredictRequest"),
        (b"", "model_spec has no name"),
        (pb.PredictRequest(model_spec=pb.ModelSpec(name="m", version={"value": -1})).SerializeToString(), "is -1"),
        (pb.PredictRequest(model_spec=pb.ModelSpec(name="m", version_label="")).SerializeToString(), "label is empty"),
    ],
)
def test_what_is_no_request_is_refused(payload: bytes, says: str) -> None:
    with pytest.raises(InvalidRequestError, match=says):
        parse(payload)


def test_single_values_for_many_elements_have_a_bound_over_all_inputs() -> None:
    request = pb.PredictRequest(model_spec=pb.ModelSpec(name="m"))
    shape = tf_tensor_pb2.TensorShapeProto(dim=[tf_tensor_pb2.TensorShapeProto.Dim(size=6 << 20)])
    for name in "abc":
        request.inputs[name].CopyFrom(
            tf_tensor_pb2.TensorProto(dtype=tf_tensor_pb2.DT_FLOAT, tensor_shape=shape, float_val=[1.0])
        )
    two = pb.PredictRequest(model_spec=request.model_spec, inputs={name: request.inputs[name] for name in "ab"})

    assert [len(each.data) for each in parse(two.SerializeToString()).inputs] == [24 << 20] * 2
    with pytest.raises(InvalidRequestError, match="make over 67108864 bytes of this request"):
        parse(request.SerializeToString())
