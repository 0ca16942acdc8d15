"""ONNX models."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from services.core.signature import TensorSpec
from services.runtime.backends import BadArtifactError, Options
from services.runtime.backends.onnx import Model

FLOAT, TEXT = TensorProto.FLOAT, TensorProto.STRING


def save(folder: Path, nodes: Sequence, inputs: Sequence, outputs: Sequence, weights: Sequence = ()) -> Path:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(*each) for each in inputs],
        [helper.make_tensor_value_info(*each) for each in outputs],
        list(weights),
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    file = folder / "model.onnx"
    onnx.save(model, file)
    return file


def linear(folder: Path) -> tuple[Path, np.ndarray]:
    weights = np.arange(6, dtype=np.float32).reshape(3, 2)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    initializer = numpy_helper.from_array(weights, "w")
    return save(folder, [node], [("x", FLOAT, ["n", 3])], [("y", FLOAT, ["n", 2])], [initializer]), weights


def test_the_signature_is_the_graphs(tmp_path: Path) -> None:
    file, _ = linear(tmp_path)
    signature = Model().load(file, Options())

    assert signature.inputs == (TensorSpec("x", "FP32", (-1, 3)),)
    assert signature.outputs == (TensorSpec("y", "FP32", (-1, 2)),)
    assert signature.batches
    assert signature.platform == "onnxruntime_onnx"


def test_answers_equal_onnxruntimes_own(tmp_path: Path) -> None:
    file, weights = linear(tmp_path)
    model = Model()
    model.load(file, Options())
    rows = np.random.default_rng(1).random((5, 3), np.float32)
    own = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"]).run(None, {"x": rows})[0]

    answer = model.run({"x": rows})["y"]

    assert np.array_equal(answer, own)
    assert np.allclose(answer, rows @ weights)


def test_a_fixed_first_dimension_does_not_batch(tmp_path: Path) -> None:
    file = save(tmp_path, [helper.make_node("Identity", ["x"], ["y"])], [("x", FLOAT, [4])], [("y", FLOAT, [4])])

    assert not Model().load(file, Options()).batches


def test_text_goes_in_and_comes_out(tmp_path: Path) -> None:
    file = save(
        tmp_path, [helper.make_node("Identity", ["x"], ["y"])], [("x", TEXT, ["n", 1])], [("y", TEXT, ["n", 1])]
    )
    model = Model()
    signature = model.load(file, Options())
    answer = model.run({"x": np.array([[b"a"], ["é".encode()]], dtype=object)})["y"]

    assert signature.inputs == (TensorSpec("x", "BYTES", (-1, 1)),)
    assert answer.tolist() == [["a"], ["é"]]


def test_a_truncated_file_is_refused_by_its_name(tmp_path: Path) -> None:
    file, _ = linear(tmp_path)
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(BadArtifactError) as caught:
        Model().load(file, Options())

    assert str(caught.value).startswith("model.onnx: expected an ONNX model; onnxruntime says: ")
    assert str(tmp_path) not in str(caught.value)


def test_a_map_output_is_refused_with_a_hint(tmp_path: Path) -> None:
    node = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[0, 1])
    value = helper.make_sequence_type_proto(helper.make_map_type_proto(TensorProto.INT64, _float_type()))
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", FLOAT, ["n", 2])], [helper.make_value_info("y", value)]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "model.onnx")
    with pytest.raises(BadArtifactError, match=r"output 'y' is a seq\(map.*zipmap=False"):
        Model().load(tmp_path / "model.onnx", Options())


def _float_type() -> onnx.TypeProto:
    return helper.make_tensor_type_proto(FLOAT, None)
