"""The Open Inference Protocol's messages <-> Inference: reads ModelInferRequest and writes its answer."""

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from google.protobuf.message import DecodeError

from inference import grpc_service_pb2 as pb
from services.chassis.quick_reply import AnyReply, QuickReply
from services.core.errors import InvalidRequestError
from services.core.protowire import bytes_field, tag, varint
from services.core.signature import Given
from services.core.tensor import BYTES, encode_bytes
from services.router.flight import Flight
from services.router.inference import NO_PARAMETERS, NOWHERE, Extras, Inference, Parameter, extras_of
from services.router.templates import Templates
from turnout.v1 import tensor_pb2

MODEL_INFER = "/inference.GRPCInferenceService/ModelInfer"
_RAW_INPUT = tag(7, 2)  # ModelInferRequest.raw_input_contents
_RAW = tag(6, 2)  # ModelInferResponse.raw_output_contents
# datatype -> (field of InferTensorContents, struct code, least, most)
_TYPED: dict[str, tuple[str, str, int | None, int | None]] = {
    "BOOL": ("bool_contents", "?", None, None),
    "INT8": ("int_contents", "b", -(1 << 7), (1 << 7) - 1),
    "INT16": ("int_contents", "h", -(1 << 15), (1 << 15) - 1),
    "INT32": ("int_contents", "i", None, None),
    "INT64": ("int64_contents", "q", None, None),
    "UINT8": ("uint_contents", "B", 0, (1 << 8) - 1),
    "UINT16": ("uint_contents", "H", 0, (1 << 16) - 1),
    "UINT32": ("uint_contents", "I", None, None),
    "UINT64": ("uint64_contents", "Q", None, None),
    "FP32": ("fp32_contents", "f", None, None),
    "FP64": ("fp64_contents", "d", None, None),
    BYTES: ("bytes_contents", "", None, None),
}


class ModelInferCodec:
    """grpc_front.Codec of ModelInfer."""

    def __init__(self) -> None:
        self._templates = Templates(parse_request)
        self.find = self._templates.find

    def parse(self, payload: bytes) -> Inference:
        return parse_request(payload)

    def learn(self, payload: bytes, inference: Inference) -> None:
        self._templates.learn(payload, inference, _RAW_INPUT)

    def write(self, flight: Flight, reply: AnyReply) -> bytes:
        target, inference = flight.target, flight.inference
        if inference.extras is None:
            return write_response(target.model, target.version, inference.id, reply)
        return write_response(target.model, target.version, inference.id, reply, inference.extras.placed)


def parse_request(payload: bytes) -> Inference:
    """The request in a ModelInferRequest's bytes. Raises InvalidRequestError."""
    try:
        request = pb.ModelInferRequest.FromString(payload)
    except DecodeError:
        raise InvalidRequestError(
            f"{len(payload)} bytes that are not an inference.ModelInferRequest: was the message cut off?"
        ) from None
    extras = _extras(request)
    if extras is None or not extras.inputs:
        inputs = _inputs(request.inputs, request.raw_input_contents)
    else:
        inputs = _inputs_of_which_some_lie_elsewhere(request, extras.inputs)
    parameters = _parameters(request.parameters) if request.parameters else None
    return Inference(
        model=request.model_name,
        version=request.model_version,
        id=request.id,
        parameters=parameters or NO_PARAMETERS,
        inputs=inputs,
        outputs=[output.name for output in request.outputs] if request.outputs else (),
        size_bytes=len(payload),
        extras=extras,
    )


def _inputs(tensors: Any, raw: Any) -> list[Given]:
    if len(raw) == len(tensors):
        if any(tensor.HasField("contents") for tensor in tensors):
            raise InvalidRequestError("an input has both contents and raw_input_contents: give one of them")
        return [Given(t.name, t.datatype, t.shape, data) for t, data in zip(tensors, raw, strict=True)]
    if raw:
        raise InvalidRequestError(
            f"{len(raw)} raw_input_contents for {len(tensors)} inputs: give one entry an input, in order, or none"
        )
    return [Given(t.name, t.datatype, t.shape, _typed_data(t)) for t in tensors]


def _inputs_of_which_some_lie_elsewhere(request: pb.ModelInferRequest, elsewhere: Mapping[str, Any]) -> list[Given]:
    """All inputs in their order; those in shared memory have no entry in raw_input_contents, and no data yet."""
    here = iter(_inputs([t for t in request.inputs if t.name not in elsewhere], request.raw_input_contents))
    inputs = []
    for tensor in request.inputs:
        if tensor.name not in elsewhere:
            inputs.append(next(here))
        elif tensor.HasField("contents"):
            raise InvalidRequestError(f"input {tensor.name!r} has both contents and a place in shared memory")
        else:
            inputs.append(Given(tensor.name, tensor.datatype, tensor.shape, b""))
    return inputs


def _extras(request: pb.ModelInferRequest) -> Extras | None:
    """What is said of single tensors; None, and quickly, for the many requests that say nothing."""
    tensors: list[Any] = [*request.inputs, *request.outputs]
    for tensor in tensors:
        if tensor.parameters:
            break
    else:
        return None
    return extras_of(
        ((tensor.name, _parameters(tensor.parameters)) for tensor in request.inputs),
        ((output.name, _parameters(output.parameters)) for output in request.outputs),
    )


def _parameters(given: Mapping[str, pb.InferParameter]) -> dict[str, Parameter]:
    return {name: _parameter(value) for name, value in given.items()}


def _parameter(value: pb.InferParameter) -> Parameter:
    kind = value.WhichOneof("parameter_choice")
    return getattr(value, kind) if kind else ""  # type: ignore[no-any-return]


def _typed_data(tensor: Any) -> bytes:
    """The raw form of typed contents. Raises InvalidRequestError for a wrong field or a value out of range."""
    entry = _TYPED.get(tensor.datatype)
    if entry is None:
        raise InvalidRequestError(
            f"input {tensor.name!r}: {tensor.datatype or 'no datatype'} travels in raw_input_contents only"
        )
    field, code, least, most = entry
    for other, values in tensor.contents.ListFields():
        if other.name != field and len(values):
            raise InvalidRequestError(f"input {tensor.name!r} is {tensor.datatype}: fill {field}, not {other.name}")
    values = getattr(tensor.contents, field)
    if tensor.datatype == BYTES:
        return encode_bytes(values)
    if most is not None and values and not (least or 0) <= min(values) <= max(values) <= most:
        raise InvalidRequestError(f"input {tensor.name!r}: a value is outside {tensor.datatype}, {least} to {most}")
    return struct.pack(f"<{len(values)}{code}", *values)


def write_response(
    model: str, version: str, request_id: str, reply: AnyReply, placed: Mapping[str, Mapping[str, Parameter]] = NOWHERE
) -> bytes:
    """A ModelInferResponse: always raw_output_contents, one entry an output, in order.

    `placed`: outputs that lie in shared memory, whose entries are empty, and what is said of them.
    """
    parts = [_answered_by(model, version)]
    if request_id:
        parts.append(bytes_field(3, request_id.encode()))
    if isinstance(reply, QuickReply):
        layout = reply.layout
        if not layout.rendered:
            layout.rendered = _described(*layout.tensor) + _RAW + varint(len(reply.data))
        return b"".join((*parts, layout.rendered, reply.data))
    raw: list[bytes] = []
    for output in reply.outputs[:]:  # slices of repeated fields are made in C, iterators are not
        data = output.data
        if placed and output.name in placed:
            parts.append(_described_as_placed(output, placed[output.name]))
        else:
            parts.append(_described(output.name, output.datatype, tuple(output.shape[:])))
        raw += (_RAW, varint(len(data)), data)
    return b"".join(parts + raw)


@lru_cache(maxsize=4096)
def _answered_by(model: str, version: str) -> bytes:
    """ModelInferResponse.model_name and model_version."""
    return bytes_field(1, model.encode()) + bytes_field(2, version.encode())


@lru_cache(maxsize=4096)
def _described(name: str, datatype: str, shape: tuple[int, ...]) -> bytes:
    """One ModelInferResponse.outputs: the same few again and again."""
    output = pb.ModelInferResponse.InferOutputTensor(name=name, datatype=datatype, shape=shape)
    return bytes_field(5, output.SerializeToString())


def _described_as_placed(tensor: tensor_pb2.Tensor, said: Mapping[str, Parameter]) -> bytes:
    output = pb.ModelInferResponse.InferOutputTensor(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
    for name, value in said.items():
        if isinstance(value, str):
            output.parameters[name].string_param = value
        else:
            output.parameters[name].int64_param = int(value)
    return bytes_field(5, output.SerializeToString())


def timing_text(stages: Sequence[tuple[str, int]]) -> str:
    """Stages and nanoseconds as a Server-Timing value: `parse;dur=0.012, …` (milliseconds)."""
    return ", ".join(f"{name};dur={nanoseconds / 1e6:.3f}" for name, nanoseconds in stages)
