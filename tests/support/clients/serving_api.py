"""What tensorflow-serving-api sees: python -m tests.support.clients.serving_api CHECK,… ADDRESS…, one a router.

Its stubs want messages of TensorFlow. They are those that TensorFlow ships; the rest of it is left unimported, which
saves seconds.
"""

import sys
import types
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import grpc
import numpy as np

from tests.support.clients import report
from tests.support.clients.values import MODELS, MOST_ROWS, WIDTH, same, tensor

_found = find_spec("tensorflow")
assert _found is not None
_bare = types.ModuleType("tensorflow")
_bare.__path__ = list(_found.submodule_search_locations or ())
sys.modules["tensorflow"] = _bare

from tensorflow.core.framework import tensor_pb2, types_pb2  # noqa: E402
from tensorflow_serving.apis import get_model_metadata_pb2 as metadata_pb2  # noqa: E402
from tensorflow_serving.apis import get_model_status_pb2 as status_pb2  # noqa: E402
from tensorflow_serving.apis import model_service_pb2_grpc, predict_pb2, prediction_service_pb2_grpc  # noqa: E402

TIMEOUT_S = 60
_WORDS = {"FP32": "FLOAT", "FP64": "DOUBLE", "FP16": "HALF", "BF16": "BFLOAT16", "BYTES": "STRING"}
_FIELDS = {"FP32": "float", "FP64": "double", "INT64": "int64", "BOOL": "bool", "UINT32": "uint32", "UINT64": "uint64"}
Arrays = Mapping[str, np.ndarray]


class Side:
    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address)
        self.predictions = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)
        self.models = model_service_pb2_grpc.ModelServiceStub(self.channel)

    def predict(self, request: Any) -> Any:
        return self.predictions.Predict(request, timeout=TIMEOUT_S)


def arrays_of(model: str, rows: int) -> dict[str, np.ndarray]:
    return {f"in_{each.lower()}": tensor(each, rows, WIDTH) for each in MODELS[model]}


def request_of(model: str, arrays: Arrays, *, raw: bool = True) -> Any:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    for name, array in arrays.items():
        request.inputs[name].CopyFrom(_proto(name[3:].upper(), array, raw=raw))
    return request


def check_answer(sent: Arrays, answer: Any) -> None:
    got = {name: _array(proto) for name, proto in answer.outputs.items()}
    lost = [name for name, array in sent.items() if not same(array, got[f"out_{name[3:]}"])]
    assert not lost, [(name, sent[name], got[f"out_{name[3:]}"]) for name in lost]
    assert (answer.model_spec.name, answer.model_spec.version.value) == ("every", 1)


def every_datatype(side: Side) -> None:
    for rows in (0, 1, 4, 5, MOST_ROWS):
        for raw in (True, False):
            sent = arrays_of("every", rows)
            check_answer(sent, side.predict(request_of("every", sent, raw=raw)))


def one_value_for_a_whole_shape(side: Side) -> None:
    sent = {**arrays_of("every", 2), "in_fp32": np.full((2, WIDTH), 2.5, np.float32)}
    request = request_of("every", sent)
    request.inputs["in_fp32"].ClearField("tensor_content")
    request.inputs["in_fp32"].float_val.append(2.5)
    check_answer(sent, side.predict(request))


def outputs_as_asked(side: Side) -> None:
    request = request_of("every", arrays_of("every", 2))
    request.output_filter.extend(["out_uint8", "out_bytes"])
    assert set(side.predict(request).outputs) == {"out_uint8", "out_bytes"}
    request.output_filter.append("out_none")
    refused(lambda: side.predict(request), "INVALID_ARGUMENT", "out_none")


def errors(side: Side) -> None:
    sent = arrays_of("every", 1)
    refused(lambda: side.predict(request_of("nobody", sent)), "NOT_FOUND", "nobody")
    other = request_of("every", sent)
    other.model_spec.version.value = 9
    refused(lambda: side.predict(other), "NOT_FOUND", "9")
    few = request_of("every", {"in_int8": sent["in_int8"]})
    refused(lambda: side.predict(few), "INVALID_ARGUMENT", "needs input")
    many = request_of("every", arrays_of("every", MOST_ROWS + 1))
    refused(lambda: side.predict(many), "INVALID_ARGUMENT", "takes at most")


def status_and_metadata(side: Side) -> None:
    asked = status_pb2.GetModelStatusRequest()
    asked.model_spec.name = "every"
    status = side.models.GetModelStatus(asked, timeout=TIMEOUT_S).model_version_status
    assert [(each.version, each.state) for each in status] == [(1, status_pb2.ModelVersionStatus.AVAILABLE)]

    wanted = metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    wanted.model_spec.name = "every"
    answer = side.predictions.GetModelMetadata(wanted, timeout=TIMEOUT_S)
    signatures = metadata_pb2.SignatureDefMap()
    assert answer.metadata["signature_def"].Unpack(signatures)
    signature = signatures.signature_def["serving_default"]
    assert {name: _datatype(info.dtype) for name, info in signature.inputs.items()} == {
        f"in_{each.lower()}": each for each in MODELS["every"]
    }
    sizes = {tuple(dim.size for dim in info.tensor_shape.dim) for info in signature.outputs.values()}
    assert sizes == {(-1, WIDTH)}
    asked.model_spec.name = "nobody"
    refused(lambda: side.models.GetModelStatus(asked, timeout=TIMEOUT_S), "NOT_FOUND", "nobody")


def refused(call: Callable[[], object], *says: str) -> None:
    report.refused(call, grpc.RpcError, *says)


def _proto(datatype: str, array: np.ndarray, *, raw: bool) -> Any:
    proto = tensor_pb2.TensorProto(dtype=types_pb2.DataType.Value(f"DT_{_WORDS.get(datatype, datatype)}"))
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    if datatype == "BYTES":
        proto.string_val.extend(array.ravel())
    elif raw:
        proto.tensor_content = array.tobytes()
    elif datatype in ("FP16", "BF16"):
        proto.half_val.extend(array.view(np.uint16).ravel().tolist())
    else:
        getattr(proto, f"{_FIELDS.get(datatype, 'int')}_val").extend(array.ravel().tolist())
    return proto


def _array(proto: Any) -> np.ndarray:
    """As TensorFlow's own make_ndarray reads it, for what a server may answer."""
    datatype = _datatype(proto.dtype)
    shape = [dim.size for dim in proto.tensor_shape.dim]
    if datatype == "BYTES":
        return np.array(list(proto.string_val), dtype=object).reshape(shape)
    kind = tensor(datatype, 0, 1).dtype
    if proto.tensor_content or 0 in shape:
        return np.frombuffer(proto.tensor_content, kind).reshape(shape)
    if datatype in ("FP16", "BF16"):
        return np.array(proto.half_val, np.uint16).view(kind).reshape(shape)
    return np.array(getattr(proto, f"{_FIELDS.get(datatype, 'int')}_val"), kind).reshape(shape)


def _datatype(number: int) -> str:
    word = types_pb2.DataType.Name(number).removeprefix("DT_")
    return {long: short for short, long in _WORDS.items()}.get(word, word)


def main(checks: str, addresses: Sequence[str]) -> None:
    sides = {f"serving {number}": Side(address) for number, address in enumerate(addresses)}
    report.run(checks, globals(), sides)
    for side in sides.values():
        side.channel.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
