"""A server of the Open Inference Protocol: how it is reached, what it tells of a model, what its errors mean."""

from pathlib import Path
from typing import Any, NamedTuple

import grpc
import numpy as np
from tritonclient.grpc import service_pb2 as pb

from services.core.errors import (
    CANCELLED,
    DEADLINE_EXCEEDED,
    FAILED_PRECONDITION,
    INTERNAL,
    PERMISSION_DENIED,
    UNAUTHENTICATED,
    UNAVAILABLE,
)
from services.core.signature import TensorSpec
from services.core.spec import BadValueError
from services.core.tensor import DATATYPES, encode_bytes
from services.runtime.backends import BadArtifactError, ModelError, NotThereError
from services.runtime.backends.triton_spec import Remote

_ASK_S = 5.0
_FINAL = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNIMPLEMENTED,
}
_OURS = {UNAUTHENTICATED, PERMISSION_DENIED, CANCELLED}  # not what the caller is, may or did: what this mesh is there
_NOT_CONNECTED = ("failed to connect", "connections to all backends failing")
# What gRPC says when a connection goes under a call: nobody knows what became of it. All else is the server's word.
_TORN = (
    "Socket closed", "Stream removed", "recvmsg", "sendmsg", "onnection reset", "roken pipe", "all calls", "GOAWAY",
    "goaway", "ping timeout", "keepalive", "ransport clos", "ransport is clos", "ndpoint clos", "EOF",
)  # fmt: skip
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 2000),  # also the time that one try may take
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.use_local_subchannel_pool", 1),  # a channel made anew has a connection of its own
)
_FIELDS = {
    "BOOL": ("bool_contents", "?"),
    "INT8": ("int_contents", "i1"),
    "INT16": ("int_contents", "<i2"),
    "INT32": ("int_contents", "<i4"),
    "INT64": ("int64_contents", "<i8"),
    "UINT8": ("uint_contents", "u1"),
    "UINT16": ("uint_contents", "<u2"),
    "UINT32": ("uint_contents", "<u4"),
    "UINT64": ("uint64_contents", "<u8"),
    "FP32": ("fp32_contents", "<f4"),
    "FP64": ("fp64_contents", "<f8"),
}


class Described(NamedTuple):
    """What the server tells of a model."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    platform: str
    max_batch_size: int | None  # 0 = it does not batch; None = it does not say


def read(artifact: Path) -> Remote:
    try:
        return Remote.parse(artifact.read_bytes())
    except BadValueError as error:
        raise BadArtifactError(f'{artifact.name}: expected {{"url": …, "model": …}}; {error}') from error


def open_channel(remote: Remote, folder: Path) -> Any:
    if not remote.is_encrypted:
        return grpc.insecure_channel(remote.address, _OPTIONS)
    try:
        roots = (folder / remote.root_certificates).read_bytes() if remote.root_certificates else None
    except OSError as error:
        said = f"found {error.strerror}"
        raise BadArtifactError(f"{remote.root_certificates}: expected a PEM file beside remote.json, {said}") from error
    return grpc.secure_channel(remote.address, grpc.ssl_channel_credentials(roots), _OPTIONS)


def describe(stub: Any, remote: Remote, artifact: Path) -> Described:
    """Raises NotThereError while it cannot be asked, BadArtifactError where asking again is useless."""
    headers = tuple(remote.headers.items())
    name = {"name": remote.model, "version": remote.version}
    try:
        metadata = stub.ModelMetadata(pb.ModelMetadataRequest(**name), timeout=_ASK_S, metadata=headers)
        ready = stub.ModelReady(pb.ModelReadyRequest(**name), timeout=_ASK_S, metadata=headers)
        if not ready.ready:
            raise NotThereError(f"{remote.url}: model {remote.model!r} is not ready there")
        config = _config(stub, name, headers)
    except grpc.RpcError as error:
        said = f"{remote.url}: model {remote.model!r}: {error.code().name}: {error.details()}"
        if error.code() in _FINAL:
            raise BadArtifactError(f"{artifact.name}: {said}") from None
        raise NotThereError(said) from None
    if config is not None and config.model_transaction_policy.decoupled:
        raise BadArtifactError(f"{artifact.name}: model {remote.model!r} is decoupled: one answer a request passes")
    if config is not None and config.HasField("sequence_batching"):
        raise BadArtifactError(f"{artifact.name}: model {remote.model!r} takes sequences, which are not passed on")
    inputs, outputs = (tuple(_spec(artifact, each) for each in side) for side in (metadata.inputs, metadata.outputs))
    return Described(inputs, outputs, metadata.platform, None if config is None else config.max_batch_size)


def status_of(error: Any, timeout_s: float) -> ModelError:
    """What callers are told."""
    code, details = error.code().value[0], error.details() or ""
    if code == DEADLINE_EXCEEDED:
        return ModelError(code, f"the server that has this model did not answer within {timeout_s * 1000:.0f} ms")
    if code == UNAVAILABLE:
        if details.startswith(_NOT_CONNECTED):
            return ModelError(code, "the server that has this model cannot be reached", executed=False)
        if any(word in details for word in _TORN):
            return ModelError(code, "the server that has this model went away with the request", executed=None)
        return ModelError(code, f"the server that has this model says: {details}", executed=False)
    if code in _OURS or code == FAILED_PRECONDITION:
        return ModelError(INTERNAL, f"the server that has this model says: {error.code().name}: {details}")
    return ModelError(code, details or error.code().name)


def tensor_data(response: Any, place: int) -> bytes:
    """The bytes of one output, which some servers send as numbers."""
    if response.raw_output_contents:
        data: bytes = response.raw_output_contents[place]
        return data
    tensor = response.outputs[place]
    if tensor.datatype == "BYTES":
        return encode_bytes(list(tensor.contents.bytes_contents))
    if tensor.datatype not in _FIELDS:
        raise ValueError(f"the server gave no data for output {tensor.name!r} of datatype {tensor.datatype}")
    field, dtype = _FIELDS[tensor.datatype]
    return np.array(getattr(tensor.contents, field), dtype).tobytes()


def _config(stub: Any, name: dict[str, str], headers: tuple[tuple[str, str], ...]) -> Any:
    """The model's configuration, where the server has Triton's extension."""
    try:
        return stub.ModelConfig(pb.ModelConfigRequest(**name), timeout=_ASK_S, metadata=headers).config
    except grpc.RpcError as error:
        if error.code() == grpc.StatusCode.UNIMPLEMENTED:
            return None
        raise


def _spec(artifact: Path, tensor: Any) -> TensorSpec:
    if tensor.datatype not in DATATYPES:
        raise BadArtifactError(
            f"{artifact.name}: the server tells of {tensor.name!r} as {tensor.datatype!r}; expected one of"
            f" {', '.join(DATATYPES)}"
        )
    return TensorSpec(tensor.name, tensor.datatype, tuple(tensor.shape))
