"""tensorflow.serving.PredictionService/Predict <-> Inference: the hot method of TensorFlow Serving's gRPC."""

from functools import lru_cache
from typing import Any

from google.protobuf.message import DecodeError

from services.chassis.quick_reply import AnyReply, QuickReply
from services.core.errors import InvalidRequestError
from services.core.protowire import bytes_field, tag, varint
from services.core.signature import SERVING_DEFAULT, SIGNATURE_NAME
from services.router.flight import Flight
from services.router.inference import NO_PARAMETERS, Inference
from services.router.templates import Templates
from services.router.tfserving.tensors import CONTENT_TAG, KINDS, VALUE_TAGS, all_given, tensor_proto
from turnout.tfserving import prediction_service_pb2 as pb
from turnout.tfserving import tensor_pb2

PREDICT = "/tensorflow.serving.PredictionService/Predict"
_OUTPUTS, _KEY, _VALUE = tag(1, 2), 1, tag(2, 2)  # PredictResponse.outputs, and of its entries


class PredictCodec:
    """grpc_front.Codec of Predict."""

    def __init__(self) -> None:
        self._templates = Templates(parse)
        self.find = self._templates.find

    def parse(self, payload: bytes) -> Inference:
        return parse(payload)

    def learn(self, payload: bytes, inference: Inference) -> None:
        if len(inference.inputs) != 1:
            return
        self._templates.learn(payload, inference, CONTENT_TAG)
        datatype = inference.inputs[0].datatype
        if datatype in {"FP32", "FP64"}:  # of these, values by field are the tensor's data too
            self._templates.learn(payload, inference, VALUE_TAGS[datatype])

    def write(self, flight: Flight, reply: AnyReply) -> bytes:
        target = flight.target
        parts: list[Any] = []
        if isinstance(reply, QuickReply):
            name, datatype, shape = reply.layout.tensor
            _add_output(parts, name, datatype, shape, reply.data)
        else:
            for each in reply.outputs[:]:
                _add_output(parts, each.name, each.datatype, tuple(each.shape[:]), each.data)
        parts.append(_answered_by(target.model, target.version, answered_signature(flight)))
        return b"".join(parts)


def parse(payload: bytes) -> Inference:
    """The request in a PredictRequest's bytes. Raises InvalidRequestError."""
    try:
        request = pb.PredictRequest.FromString(payload)
    except DecodeError:
        raise InvalidRequestError(
            f"{len(payload)} bytes that are not a tensorflow.serving.PredictRequest: was the message cut off?"
        ) from None
    return inference_of(request.model_spec, len(payload))._replace(
        inputs=all_given(request.inputs), outputs=request.output_filter[:]
    )


def inference_of(spec: pb.ModelSpec, size_bytes: int) -> Inference:
    """What a ModelSpec says of a request. Raises InvalidRequestError."""
    if not spec.name:
        raise InvalidRequestError("model_spec has no name; give the model's")
    name = spec.signature_name
    parameters = {SIGNATURE_NAME: name} if name else NO_PARAMETERS
    return Inference(spec.name, version_of(spec), "", parameters, (), (), size_bytes)


def version_of(spec: pb.ModelSpec) -> str:
    """The version or label that a ModelSpec asks for; empty = none. Raises InvalidRequestError."""
    kind = spec.WhichOneof("version_choice")
    if kind is None:
        return ""
    if kind == "version_label":
        if not spec.version_label:
            raise InvalidRequestError("model_spec.version_label is empty; name a label, or leave it out")
        return str(spec.version_label)
    if spec.version.value < 0:
        raise InvalidRequestError(f"model_spec.version is {spec.version.value}; versions are 0 or more")
    return str(spec.version.value)


def answered_signature(flight: Flight) -> str:
    """The name of the signature that has answered."""
    asked = flight.inference.parameters.get(SIGNATURE_NAME)
    return str(asked or flight.target.signature.name or SERVING_DEFAULT)


def _add_output(parts: list[Any], name: str, datatype: str, shape: tuple[int, ...], data: Any) -> None:
    """One entry of PredictResponse.outputs."""
    kind = KINDS.get(datatype)
    if kind is not None and kind.packed:
        parts += (_described(name, datatype, shape, len(data)), data)
    else:
        tensor = tensor_proto(name, datatype, shape, data).SerializeToString()
        parts += (_entry(name, len(tensor)), tensor)


@lru_cache(maxsize=4096)
def _described(name: str, datatype: str, shape: tuple[int, ...], data_bytes: int) -> bytes:
    """All of an entry but its data, which comes last."""
    dims = [tensor_pb2.TensorShapeProto.Dim(size=size) for size in shape]
    kind = KINDS[datatype]
    tensor = tensor_pb2.TensorProto(dtype=kind.dtype, tensor_shape=tensor_pb2.TensorShapeProto(dim=dims))
    head = tensor.SerializeToString() + VALUE_TAGS[datatype] + varint(data_bytes)
    return _entry(name, len(head) + data_bytes) + head


def _entry(name: str, tensor_bytes: int) -> bytes:
    """What stands before an entry's TensorProto."""
    head = bytes_field(_KEY, name.encode()) + _VALUE + varint(tensor_bytes)
    return _OUTPUTS + varint(len(head) + tensor_bytes) + head


@lru_cache(maxsize=4096)
def _answered_by(model: str, version: str, signature: str) -> bytes:
    """PredictResponse.model_spec."""
    return bytes_field(2, model_spec(model, version, signature).SerializeToString())


def model_spec(model: str, version: str, signature: str = "") -> pb.ModelSpec:
    spec = pb.ModelSpec(name=model, signature_name=signature)
    spec.version.value = int(version)
    return spec
