"""The APIs: how each asks for a workload's rows, and how its answer is read."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inference import grpc_service_pb2 as pb
from loadtest import h2load
from loadtest.workloads import Workload

Array = NDArray[np.float32]
LENGTH = "Inference-Header-Content-Length"
_OCTETS = {"Content-Type": "application/octet-stream"}
_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class Call:
    """One request as bytes."""

    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Api:
    """One way to ask. `serves`: whether a workload can be asked so."""

    name: str
    call: Callable[[Workload, Array], Call]
    read: Callable[[bytes, Mapping[str, str]], Array]
    is_grpc: bool = False
    serves: Callable[[Workload], bool] = lambda _: True


def _path(workload: Workload) -> str:
    return f"/v2/models/{workload.model}/infer"


def _grpc(workload: Workload, inputs: Array) -> Call:
    message = workload.request(inputs).SerializeToString()
    return Call(h2load.METHOD, h2load.GRPC, b"\0" + len(message).to_bytes(4, "big") + message)


def _read_grpc(body: bytes, _headers: Mapping[str, str]) -> Array:
    reply = pb.ModelInferResponse.FromString(body)
    return np.frombuffer(reply.raw_output_contents[0], np.float32).reshape(reply.outputs[0].shape)


def _binary(workload: Workload, inputs: Array) -> Call:
    tensor = {"name": "x", "shape": inputs.shape, "datatype": "FP32", "parameters": {"binary_data_size": inputs.nbytes}}
    said = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}, separators=(",", ":")).encode()
    return Call(_path(workload), {**_OCTETS, LENGTH: str(len(said))}, said + inputs.tobytes())


def _raw(workload: Workload, inputs: Array) -> Call:
    return Call(_path(workload), {**_OCTETS, LENGTH: "0"}, inputs.tobytes())


def _read_binary(body: bytes, headers: Mapping[str, str]) -> Array:
    length = int(headers[LENGTH])
    shape = json.loads(body[:length])["outputs"][0]["shape"]
    return np.frombuffer(body[length:], np.float32).reshape(shape)


def _decimal(inputs: Array) -> list[float]:
    """The numbers as their owner would write them: as short as they read back the same."""
    return [float(str(value)) for value in inputs.ravel()]


def _json(workload: Workload, inputs: Array) -> Call:
    tensor = {"name": "x", "shape": inputs.shape, "datatype": "FP32", "data": _decimal(inputs)}
    return Call(_path(workload), _JSON, json.dumps({"inputs": [tensor]}, separators=(",", ":")).encode())


def _read_json(body: bytes, _headers: Mapping[str, str]) -> Array:
    output = json.loads(body)["outputs"][0]
    return np.array(output["data"], np.float32).reshape(output["shape"])


def _v1(workload: Workload, inputs: Array) -> Call:
    rows = np.array(_decimal(inputs)).reshape(inputs.shape).tolist()
    body = json.dumps({"instances": rows}, separators=(",", ":")).encode()
    return Call(f"/v1/models/{workload.model}:predict", _JSON, body)


def _read_v1(body: bytes, _headers: Mapping[str, str]) -> Array:
    return np.array(json.loads(body)["predictions"], np.float32)


APIS = (
    Api("gRPC", _grpc, _read_grpc, is_grpc=True),
    Api("V2 binary", _binary, _read_binary),
    Api("V2 raw", _raw, _read_binary, serves=lambda workload: workload.rows == 1),
    Api("V2 JSON", _json, _read_json),
    Api("V1 JSON", _v1, _read_v1),
)
