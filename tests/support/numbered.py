"""Models whose answers can be checked: every row's first value comes back, beside the number of the version."""

import os
import signal
import time
from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

import joblib
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from inference import grpc_service_pb2 as pb

WIDTH = 4
DEADLY = -13.0  # a row that begins so ends the process of a Moody
_MOST = 1 << 23  # numbers that FP32 holds exactly


class Moody:
    """As the graph of `write`, in Python: takes its time, dies of a DEADLY row, and may keep a diary (see `runs`)."""

    n_features_in_ = WIDTH

    def __init__(self, version: int, sleep_s: float = 0, diary: str = "") -> None:
        self.version = version
        self.sleep_s = sleep_s
        self.diary = diary

    def predict(self, x: np.ndarray) -> np.ndarray:
        if self.diary:
            with Path(self.diary, str(os.getpid())).open("ab", buffering=0) as file:
                file.write(x[:, 0].tobytes())
        if (x[:, 0] == DEADLY).any():
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self.sleep_s)
        return np.stack([x[:, 0], np.full(len(x), self.version, x.dtype)], axis=1)


def write(repository: Path, model: str, *versions: int) -> None:
    """MODEL/V/model.onnx: x FP32 [n, 4] -> y FP32 [n, 2], a row's first value and V."""
    for version in versions:
        onnx.save(_graph(version), _folder(repository, model, version) / "model.onnx")


def write_echo(repository: Path, model: str, version: int, width: int) -> None:
    """MODEL/V/model.onnx: x FP32 [n, width] -> y, the same."""
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", width]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "echo", tensors[:1], tensors[1:])
    onnx.save(_model(graph), _folder(repository, model, version) / "model.onnx")


def write_moody(repository: Path, model: str, version: int, sleep_s: float = 0, diary: str = "") -> None:
    """MODEL/V/model.joblib with the same signature; its spec must say `trusted`. `diary` is a folder."""
    joblib.dump(Moody(version, sleep_s, diary), _folder(repository, model, version) / "model.joblib")


def runs(diary: Path) -> Counter[float]:
    """How often each row was begun, by its first value, by all processes of a Moody together."""
    begun: Counter[float] = Counter()
    for path in diary.iterdir():
        data = path.read_bytes()
        begun.update(np.frombuffer(data[: len(data) // 4 * 4], np.float32).tolist())
    return begun


def numbers(start: int, rows: int) -> list[float]:
    """`rows` numbers from `start` on, which FP32 holds exactly."""
    return [float((start + row) % _MOST) for row in range(rows)]


def request(model: str, values: Sequence[float], version: str = "") -> pb.ModelInferRequest:
    """A row for each of `values`, which stands first in it."""
    x = np.zeros((len(values), WIDTH), np.float32)
    x[:, 0] = values
    tensor = pb.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=x.shape)
    return pb.ModelInferRequest(
        model_name=model, model_version=version, inputs=[tensor], raw_input_contents=[x.tobytes()]
    )


def fault(response: pb.ModelInferResponse, values: Sequence[float], versions: AbstractSet[str]) -> str:
    """What is wrong with an answer to `request`; empty when nothing is."""
    if response.model_version not in versions:
        return f"version {response.model_version} answered, allowed are {sorted(versions)}"
    y = np.frombuffer(response.raw_output_contents[0], np.float32).reshape(-1, 2)
    if y[:, 0].tolist() != list(values):
        return f"rows {y[:, 0].tolist()[:4]} came back for {list(values)[:4]}"
    if set(y[:, 1].tolist()) != {float(response.model_version)}:
        return f"versions {sorted(set(y[:, 1].tolist()))} ran, the answer says {response.model_version}"
    return ""


def _graph(version: int) -> onnx.ModelProto:
    weights = np.zeros((WIDTH, 2), np.float32)
    weights[0, 0] = 1
    constants = [
        numpy_helper.from_array(weights, "w"),
        numpy_helper.from_array(np.array([0, version], np.float32), "b"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", WIDTH])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"])]
    graph = helper.make_graph(nodes, "numbered", [x], [y], constants)
    return _model(graph)


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _folder(repository: Path, model: str, version: int) -> Path:
    folder = repository / model / str(version)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
