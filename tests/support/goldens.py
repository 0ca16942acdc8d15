"""Good requests of every protocol to the models of tests.support.echoes, as bytes, and what is a right answer."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from inference import grpc_service_pb2 as pb
from services.core.tensor import encode_bytes
from tests.support.clients.values import MODELS, WIDTH, tensor
from tests.support.fuzzing import Asked, Golden

ROWS = 2
_JSON = ("Content-Type", "application/json")


def _data(array: np.ndarray) -> bytes:
    return encode_bytes(list(array.ravel())) if array.dtype == object else array.tobytes()


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def grpc_goldens() -> list[Golden]:
    """ModelInfer with raw and with typed contents."""
    raw = pb.ModelInferRequest(model_name="every", id="r-1", parameters={"priority": pb.InferParameter(uint64_param=1)})
    for datatype in MODELS["every"]:
        raw.inputs.add(name=f"in_{datatype.lower()}", datatype=datatype, shape=[ROWS, WIDTH])
        raw.raw_input_contents.append(_data(tensor(datatype, ROWS, WIDTH)))
    typed = pb.ModelInferRequest(model_name="plain", model_version="1")
    for datatype in MODELS["plain"]:
        field = FIELDS.get(datatype, "uint" if datatype.startswith("U") else "int")
        given = typed.inputs.add(name=f"in_{datatype.lower()}", datatype=datatype, shape=[ROWS, WIDTH])
        getattr(given.contents, f"{field}_contents").extend(tensor(datatype, ROWS, WIDTH).ravel().tolist())
    few = pb.ModelInferRequest()
    few.CopyFrom(raw)
    few.outputs.add(name="out_bytes")
    every = [_data(tensor(datatype, ROWS, WIDTH)) for datatype in MODELS["every"]]
    texts = [_data(tensor("BYTES", ROWS, WIDTH))]
    expected = {"every": (raw, every), "plain": (typed, every[: len(MODELS["plain"])]), "few": (few, texts)}
    return [Golden(Asked(request.SerializeToString()), _answers(data)) for request, data in expected.values()]


def _answers(data: list[bytes]) -> Callable[[bytes], bool]:
    return lambda body: list(pb.ModelInferResponse.FromString(body).raw_output_contents) == data


def json_goldens() -> list[Golden]:
    """V2 JSON, flat and nested."""
    inputs, nested, data = [], [], {}
    for datatype in MODELS["plain"]:
        array = tensor(datatype, ROWS, WIDTH, as_text=True, finite=True)
        flat = [_plain(value) for value in array.ravel().tolist()]
        data[f"out_{datatype.lower()}"] = flat
        described = {"name": f"in_{datatype.lower()}", "datatype": datatype, "shape": [ROWS, WIDTH]}
        inputs.append({**described, "data": flat})
        nested.append({**described, "data": [flat[:WIDTH], flat[WIDTH:]]})
    bodies: list[dict[str, Any]] = [
        {"id": "r-1", "inputs": inputs, "parameters": {"priority": 1}},
        {"inputs": nested, "outputs": [{"name": "out_bytes"}, {"name": "out_int64"}]},
    ]

    def is_right(body: bytes) -> bool:
        outputs = json.loads(body)["outputs"]
        return bool(outputs) and all(each["data"] == data[each["name"]] for each in outputs)

    path = "/v2/models/plain/infer"
    return [Golden(Asked(json.dumps(body).encode(), path, [_JSON]), is_right) for body in bodies]


def binary_goldens() -> list[Golden]:
    """V2 with binary tensors, all of them and some beside JSON."""
    inputs, tails = [], []
    for datatype in MODELS["every"]:
        array = tensor(datatype, ROWS, WIDTH)
        described = {"name": f"in_{datatype.lower()}", "datatype": datatype, "shape": [ROWS, WIDTH]}
        tails.append(_data(array))
        inputs.append({**described, "parameters": {"binary_data_size": len(tails[-1])}})
    some = json.loads(json.dumps(inputs))
    number = MODELS["every"].index("INT32")
    some[number].pop("parameters")
    some[number]["data"] = tensor("INT32", ROWS, WIDTH).ravel().tolist()
    few = [tail for index, tail in enumerate(tails) if index != number]
    asked = {"outputs": [{"name": "out_bytes", "parameters": {"binary_data": True}}]}
    return [
        _binary({"inputs": inputs, "parameters": {"binary_data_output": True}}, tails, b"".join(tails)),
        _binary({"id": "r-1", "inputs": some, **asked}, few, tails[MODELS["every"].index("BYTES")]),
    ]


def _binary(head: dict[str, Any], tails: list[bytes], expected: bytes) -> Golden:
    text = json.dumps(head).encode()
    headers = [("Inference-Header-Content-Length", str(len(text))), ("Content-Type", "application/octet-stream")]
    asked = Asked(b"".join([text, *tails]), "/v2/models/every/infer", headers)
    return Golden(asked, lambda body: body.endswith(expected))


FIELDS = {"BOOL": "bool", "INT64": "int64", "UINT64": "uint64", "FP32": "fp32", "FP64": "fp64", "BYTES": "bytes"}
