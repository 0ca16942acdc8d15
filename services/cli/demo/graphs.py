"""Small neural networks as ONNX graphs, written node by node."""

from collections.abc import Sequence

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

_OPSET, _IR_VERSION = 17, 9


def classifier(layers: Sequence[tuple[NDArray, NDArray]], scale: float) -> onnx.ModelProto:
    """Input `x` FP32 [n, k] times `scale`, dense layers (weights, bias) with ReLU between, softmax.

    Outputs `label` INT64 [n] and `probabilities` FP32 [n, classes], as classifiers of other frameworks answer here.
    """
    nodes = [helper.make_node("Mul", ["x", "scale"], ["h0"])]
    constants = [numpy_helper.from_array(np.array(scale, np.float32), "scale")]
    for number, (weights, bias) in enumerate(layers):
        is_last = number == len(layers) - 1
        dense = "logits" if is_last else f"d{number}"
        nodes.append(helper.make_node("Gemm", [f"h{number}", f"w{number}", f"b{number}"], [dense]))
        constants.append(numpy_helper.from_array(weights.astype(np.float32), f"w{number}"))
        constants.append(numpy_helper.from_array(bias.astype(np.float32), f"b{number}"))
        if not is_last:
            nodes.append(helper.make_node("Relu", [dense], [f"h{number + 1}"]))
    nodes.append(helper.make_node("Softmax", ["logits"], ["probabilities"], axis=1))
    nodes.append(helper.make_node("ArgMax", ["logits"], ["label"], axis=1, keepdims=0))
    outputs = [
        helper.make_tensor_value_info("label", TensorProto.INT64, ["n"]),
        helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["n", len(layers[-1][1])]),
    ]
    return _model("classifier", nodes, len(layers[0][0]), outputs, constants)


def ranker(first: NDArray, second: NDArray) -> onnx.ModelProto:
    """Input `x` FP32 [n, k], a hidden layer with ReLU, output `y` FP32 [n, 1] between 0 and 1."""
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["d0"]),
        helper.make_node("Relu", ["d0"], ["h1"]),
        helper.make_node("MatMul", ["h1", "w1"], ["d1"]),
        helper.make_node("Sigmoid", ["d1"], ["y"]),
    ]
    constants = [numpy_helper.from_array(first, "w0"), numpy_helper.from_array(second, "w1")]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", second.shape[1]])]
    return _model("ranker", nodes, first.shape[0], outputs, constants)


def _model(
    name: str,
    nodes: list[onnx.NodeProto],
    features: int,
    outputs: list[onnx.ValueInfoProto],
    constants: list[onnx.TensorProto],
) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", features])]
    graph = helper.make_graph(nodes, name, inputs, outputs, constants)
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
        producer_name="turnout",
    )
    onnx.checker.check_model(model, full_check=True)
    return model
