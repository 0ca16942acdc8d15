"""A model of rows that differ in length: the mean over each row, and a value for each of its positions."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from inference import grpc_service_pb2 as pb

PAD_TO = {"inputs": {"x": -9.5}, "mask": "mask", "outputs": ["each"]}
_FLOAT, _INT = TensorProto.FLOAT, TensorProto.INT64


def write(repository: Path, model: str, version: int, *, heeds_mask: bool = True) -> None:
    """MODEL/V/model.onnx: x FP32 [n, length, 2], mask INT64 [n, length] -> mean FP32 [n, 2], each FP32 [n, length]."""
    folder = repository / model / str(version)
    folder.mkdir(parents=True)
    onnx.save(_graph(heeds_mask=heeds_mask), folder / "model.onnx")


def expected(x: np.ndarray) -> dict[str, np.ndarray]:
    """What it answers for rows of one length, nothing beside them."""
    real = max(1, x.shape[1])
    return {"mean": x.sum(axis=1) / np.float32(real), "each": x.sum(axis=2)}


def request(model: str, x: np.ndarray) -> pb.ModelInferRequest:
    tensor = pb.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=x.shape)
    return pb.ModelInferRequest(model_name=model, inputs=[tensor], raw_input_contents=[x.tobytes()])


def fault(response: pb.ModelInferResponse, x: np.ndarray) -> str:
    """What is wrong with an answer to `request`; empty when nothing is."""
    for name, wanted in expected(x).items():
        at = [output.name for output in response.outputs].index(name)
        got = np.frombuffer(response.raw_output_contents[at], np.float32).reshape(response.outputs[at].shape)
        if got.shape != wanted.shape or not np.allclose(got, wanted, rtol=1e-5, atol=1e-5):
            return f"{name} is {got.tolist()} of shape {got.shape}, not {wanted.tolist()} of {wanted.shape}"
    return ""


def _graph(*, heeds_mask: bool) -> onnx.ModelProto:
    """Counts one position at least, so that the mean of nothing is 0."""
    node = helper.make_node
    nodes = [
        node("Cast", ["mask"], ["told"], to=_FLOAT),
        node("Identity" if heeds_mask else "Mul", ["told"] if heeds_mask else ["told", "zero"], ["scaled"]),
        node("Add", ["scaled", "zero" if heeds_mask else "one"], ["real"]),
        node("Unsqueeze", ["real", "last"], ["column"]),
        node("Mul", ["x", "column"], ["kept"]),
        node("ReduceSum", ["kept", "first"], ["total"], keepdims=0),
        node("ReduceSum", ["real", "first"], ["sum"], keepdims=1),
        node("Max", ["sum", "one"], ["count"]),
        node("Div", ["total", "count"], ["mean"]),
        node("ReduceSum", ["kept", "last"], ["each"], keepdims=0),
    ]
    value = helper.make_tensor_value_info
    constants = {"zero": np.float32(0), "one": np.float32(1), "first": np.array([1]), "last": np.array([2])}
    graph = helper.make_graph(
        nodes,
        "ragged",
        [value("x", _FLOAT, ["n", "length", 2]), value("mask", _INT, ["n", "length"])],
        [value("mean", _FLOAT, ["n", 2]), value("each", _FLOAT, ["n", "length"])],
        [numpy_helper.from_array(np.asarray(constant), name) for name, constant in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
