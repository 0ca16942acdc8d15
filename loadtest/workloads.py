"""The reference workloads: their models, their requests and their right answers."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from inference import grpc_service_pb2 as pb
from services.cli.demo.graphs import ranker

SEED = 7
RANKER_SPEC = {"batching": {"max_batch_size": 1024, "max_queue_size": 16384}}
IMAGE_SPEC = {"batching": {"max_batch_size": 8}}


@dataclass(frozen=True, slots=True)
class Workload:
    """One row of the table. `floor_*`: what a release must reach on two cores; 0 = none."""

    name: str
    model: str
    rows: int
    inner: tuple[int, ...]
    connections: int
    streams: int
    floor_requests_s: float = 0
    floor_rows_s: float = 0
    ceiling_cpu_us: float = 0
    ceiling_p50_ms: float = 0

    @property
    def concurrency(self) -> int:
        return self.connections * self.streams

    def inputs(self) -> NDArray[np.float32]:
        """The one request that is sent again and again, [rows, *inner]."""
        shape = (self.rows, *self.inner)
        return np.random.default_rng(SEED).normal(size=shape).astype(np.float32)

    def request(self, inputs: NDArray[np.float32]) -> pb.ModelInferRequest:
        tensor = pb.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=inputs.shape)
        return pb.ModelInferRequest(model_name=self.model, inputs=[tensor], raw_input_contents=[inputs.tobytes()])

    def grpc_body(self) -> bytes:
        """The request with gRPC's message prefix, as h2load posts it."""
        message = self.request(self.inputs()).SerializeToString()
        return struct.pack(">BI", 0, len(message)) + message


WORKLOADS: Sequence[Workload] = (
    Workload("W1", "ranker", 1, (32,), 8, 8, floor_requests_s=15_000, ceiling_cpu_us=80),
    Workload("W2", "ranker", 100, (32,), 8, 8, floor_rows_s=500_000),
    Workload("W3", "image", 1, (3, 224, 224), 8, 8, floor_requests_s=400),
    Workload("W4", "ranker", 1, (32,), 1, 1, ceiling_p50_ms=1.0),
)


def write_repository(folder: Path) -> None:
    """MODEL/1/model.onnx of both models."""
    rng = np.random.default_rng(SEED)
    first = rng.normal(size=(32, 64)).astype(np.float32)
    second = rng.normal(size=(64, 1)).astype(np.float32) / 8
    models = {"ranker": ranker(first, second), "image": _image(rng)}
    for name, model in models.items():
        path = folder / name / "1" / "model.onnx"
        path.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(model, path)


def session(repository: Path, model: str) -> onnxruntime.InferenceSession:
    """The same model in this process, on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    path = repository / model / "1" / "model.onnx"
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _image(rng: np.random.Generator) -> onnx.ModelProto:
    """[n,3,224,224] -> mean over space -> [n,1000]."""
    weights = numpy_helper.from_array(rng.normal(size=(3, 1000)).astype(np.float32), "w")
    axes = numpy_helper.from_array(np.array([2, 3], np.int64), "axes")
    nodes = [
        helper.make_node("ReduceMean", ["x", "axes"], ["m"], keepdims=0),
        helper.make_node("MatMul", ["m", "w"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 224, 224])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1000])
    graph = helper.make_graph(nodes, "image", [x], [y], [weights, axes])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
