"""Good requests of TensorFlow Serving's protocols, as bytes: V1 over REST, and PredictRequest."""

import base64
import json
from typing import Any

from tests.support.clients.values import MODELS, WIDTH, tensor
from tests.support.fuzzing import Asked, Golden
from turnout.tfserving import prediction_service_pb2 as pb

PREDICT = "/tensorflow.serving.PredictionService/Predict"
ROWS = 2
_TYPES = {
    "BOOL": 10, "INT8": 6, "INT16": 5, "INT32": 3, "INT64": 9, "UINT8": 4, "UINT16": 17, "UINT32": 22, "UINT64": 23,
    "FP32": 1, "FP64": 2, "BYTES": 7, "FP16": 19, "BF16": 14,
}  # fmt: skip
_FIELDS = {"FP32": "float", "FP64": "double", "INT64": "int64", "BOOL": "bool", "UINT32": "uint32", "UINT64": "uint64"}
_NUMBERS = tensor("INT64", ROWS, WIDTH).tolist()


def v1_goldens() -> list[Golden]:
    """Rows and columns, with text as it is and as b64."""
    columns: dict[str, Any] = {}
    for datatype in MODELS["plain"]:
        rows = tensor(datatype, ROWS, WIDTH, finite=True).tolist()
        columns[f"in_{datatype.lower()}"] = rows
    columns["in_bytes"] = [[{"b64": base64.b64encode(text).decode()} for text in row] for row in columns["in_bytes"]]
    instances = [{name: rows[number] for name, rows in columns.items()} for number in range(ROWS)]
    path, headers = "/v1/models/plain:predict", [("Content-Type", "application/json")]

    def by_rows(body: bytes) -> bool:
        return [row["out_int64"] for row in json.loads(body)["predictions"]] == _NUMBERS

    def by_columns(body: bytes) -> bool:
        return bool(json.loads(body)["outputs"]["out_int64"] == _NUMBERS)

    row_body = json.dumps({"instances": instances, "signature_name": "serving_default"}).encode()
    return [
        Golden(Asked(row_body, path, headers), by_rows),
        Golden(Asked(json.dumps({"inputs": columns}).encode(), path, headers), by_columns),
    ]


def predict_goldens() -> list[Golden]:
    """Tensors as tensor_content, and as values in fields."""
    raw, typed = pb.PredictRequest(), pb.PredictRequest()
    raw.model_spec.name, typed.model_spec.name = "every", "every"
    raw.model_spec.version.value = 1
    typed.output_filter.extend(["out_int64", "out_bytes"])
    for datatype in MODELS["every"]:
        array = tensor(datatype, ROWS, WIDTH)
        for request in (raw, typed):
            proto = request.inputs[f"in_{datatype.lower()}"]
            proto.dtype = _TYPES[datatype]
            for size in (ROWS, WIDTH):
                proto.tensor_shape.dim.add(size=size)
            if datatype == "BYTES":
                proto.string_val.extend(array.ravel())
            elif request is raw:
                proto.tensor_content = array.tobytes()
            elif datatype in ("FP16", "BF16"):
                proto.half_val.extend(array.view("<u2").ravel().tolist())
            else:
                getattr(proto, f"{_FIELDS.get(datatype, 'int')}_val").extend(array.ravel().tolist())
    return [Golden(Asked(request.SerializeToString()), _is_echo) for request in (raw, typed)]


def _is_echo(body: bytes) -> bool:
    numbers = list(pb.PredictResponse.FromString(body).outputs["out_int64"].int64_val)
    return numbers == [number for row in _NUMBERS for number in row]
