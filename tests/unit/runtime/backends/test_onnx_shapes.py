"""ONNX models of every datatype and of odd shapes, and those whose data lies in other files."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from services.core.signature import Signature, TensorSpec
from services.runtime.backends import BadArtifactError, Options
from services.runtime.backends.onnx import Model
from tests.support.onnx_types import TYPES

FLOAT, INT64, BF16 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BFLOAT16
Value = tuple[str, int, Sequence[int | str] | None]


def graph(
    nodes: Sequence, inputs: Sequence[Value], outputs: Sequence[Value], weights: Sequence = ()
) -> onnx.ModelProto:
    made = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(*each) for each in inputs],
        [helper.make_tensor_value_info(*each) for each in outputs],
        list(weights),
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def loaded(folder: Path, model: onnx.ModelProto) -> tuple[Model, Signature]:
    onnx.save(model, folder / "model.onnx")
    backend = Model()
    return backend, backend.load(folder / "model.onnx", Options())


def echo(onnx_type: int, shape: Sequence[int | str] | None) -> onnx.ModelProto:
    return graph([helper.make_node("Identity", ["x"], ["y"])], [("x", onnx_type, shape)], [("y", onnx_type, shape)])


def values(datatype: str, shape: tuple[int, ...]) -> np.ndarray:
    count = int(np.prod(shape))
    if datatype == "BYTES":
        return np.array([f"é{index}".encode() for index in range(count)], dtype=object).reshape(shape)
    if datatype == "BF16":
        return np.arange(0x3F80, 0x3F80 + count, dtype=np.uint16).reshape(shape)
    return np.arange(count).reshape(shape).astype(helper.tensor_dtype_to_np_dtype(TYPES[datatype]))


@pytest.mark.parametrize("shape", [(3, 2), (0, 2), (2, 0), ()])
@pytest.mark.parametrize("datatype", TYPES)
def test_every_datatype_goes_in_and_comes_out(tmp_path: Path, datatype: str, shape: tuple[int, ...]) -> None:
    model, signature = loaded(tmp_path, echo(TYPES[datatype], ["n", "m"] if shape else []))
    sent = values(datatype, shape)
    sent.flags.writeable = False
    answer = model.run({"x": sent})["y"]
    text = [each.decode() for each in sent.ravel()] if datatype == "BYTES" else sent.ravel().tolist()

    assert signature.inputs == (TensorSpec("x", datatype, (-1, -1) if shape else ()),)
    assert signature.outputs == (TensorSpec("y", datatype, (-1, -1) if shape else ()),)
    assert answer.shape == shape
    assert answer.ravel().tolist() == text


def test_inputs_of_several_datatypes_and_bf16_are_computed_with(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], to=FLOAT),
        helper.make_node("Cast", ["times"], ["factor"], to=FLOAT),
        helper.make_node("Mul", ["wide", "factor"], ["y"]),
        helper.make_node("Cast", ["y"], ["short"], to=BF16),
    ]
    model, signature = loaded(
        tmp_path,
        graph(nodes, [("x", BF16, ["n", 2]), ("times", INT64, [])], [("y", FLOAT, ["n", 2]), ("short", BF16, None)]),
    )
    words = np.array([[0x3F80, 0x4000]], np.uint16)  # 1 and 2
    answer = model.run({"x": words, "times": np.array(2)})

    assert not signature.batches
    assert answer["y"].tolist() == [[2, 4]]
    assert answer["short"].tolist() == [[0x4000, 0x4080]]


def test_bf16_and_text_go_in_together_but_bf16_does_not_come_out_of_text(tmp_path: Path) -> None:
    nodes = [helper.make_node("Cast", ["x"], ["y"], to=FLOAT), helper.make_node("Identity", ["t"], ["z"])]
    inputs: list[Value] = [("x", BF16, ["n"]), ("t", TYPES["BYTES"], ["n"])]
    outputs: list[Value] = [("y", FLOAT, ["n"]), ("z", TYPES["BYTES"], ["n"])]
    model, _ = loaded(tmp_path, graph(nodes, inputs, outputs))
    answer = model.run({"x": np.array([0x3F80, 0x4000], np.uint16), "t": np.array([b"a", b"b"], dtype=object)})

    assert answer["y"].tolist() == [1, 2]
    assert answer["z"].tolist() == ["a", "b"]
    with pytest.raises(
        BadArtifactError, match=r"^model.onnx: text goes in and BF16 comes out.*cast the output to FP32$"
    ):
        loaded(
            tmp_path,
            graph([helper.make_node("Identity", ["x"], ["y"]), nodes[1]], inputs, [("y", BF16, ["n"]), outputs[1]]),
        )


def test_an_output_without_a_declared_shape_has_the_one_that_it_shows(tmp_path: Path) -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    weights = numpy_helper.from_array(np.ones((3, 2), np.float32), "w")
    _, signature = loaded(tmp_path, graph([node], [("x", FLOAT, ["n", 3])], [("y", FLOAT, None)], [weights]))

    assert signature.outputs == (TensorSpec("y", "FP32", (-1, 2)),)
    assert signature.batches


def test_a_rank_that_is_a_lie_is_mended(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["as_it_is"]),
        helper.make_node("Reshape", ["x", "as_it_is"], ["y"]),
        helper.make_node("Identity", ["y"], ["z"]),
    ]
    outputs: list[Value] = [("y", FLOAT, ["n", 1, 3]), ("z", FLOAT, ["n"])]
    model, signature = loaded(tmp_path, graph(nodes, [("x", FLOAT, ["n", 3])], outputs))
    answer = model.run({"x": np.ones((2, 3), np.float32)})

    assert [spec.shape for spec in signature.outputs] == [(-1, 3), (-1, 3)]
    assert [array.shape for array in answer.values()] == [(2, 3), (2, 3)]


def test_a_first_dimension_that_is_not_the_rows_is_seen(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Identity", ["x"], ["y"]),
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[0], keepdims=0),
        helper.make_node("Transpose", ["x"], ["turned"], perm=[1, 0]),
    ]
    outputs: list[Value] = [("y", FLOAT, ["n", 3]), ("mean", FLOAT, None), ("turned", FLOAT, None)]
    _, signature = loaded(tmp_path, graph(nodes, [("x", FLOAT, ["n", 3])], outputs))

    assert [spec.shape for spec in signature.outputs] == [(-1, 3), (3,), (3, -1)]
    assert not signature.batches


def test_free_sizes_inside_stay_free(tmp_path: Path) -> None:
    node = helper.make_node("Transpose", ["x"], ["y"], perm=[0, 2, 1])
    _, signature = loaded(tmp_path, graph([node], [("x", FLOAT, ["n", "h", "w"])], [("y", FLOAT, None)]))

    assert signature.outputs[0].shape == (-1, -1, -1)


def test_an_input_without_a_declared_shape_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadArtifactError, match=r"^model.onnx: input 'x' has no declared shape: export it with one"):
        loaded(tmp_path, echo(FLOAT, None))


def with_data(folder: Path) -> np.ndarray:
    weights = np.arange(3000, dtype=np.float32).reshape(3, 1000)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = graph(
        [node], [("x", FLOAT, ["n", 3])], [("y", FLOAT, ["n", 1000])], [numpy_helper.from_array(weights, "w")]
    )
    onnx.save(model, folder / "model.onnx", save_as_external_data=True, location="model.data", size_threshold=16)
    return weights


def test_weights_in_a_file_beside_the_model_are_found(tmp_path: Path) -> None:
    weights = with_data(tmp_path)
    model = Model()
    model.load(tmp_path / "model.onnx", Options())

    assert (tmp_path / "model.data").stat().st_size >= weights.nbytes
    assert np.array_equal(model.run({"x": np.eye(3, dtype=np.float32)})["y"], weights)


@pytest.mark.parametrize(("kept_bytes", "found"), [(None, 'does not exist: "model.data"'), (100, "file_length: 100")])
def test_missing_or_short_external_data_is_named(tmp_path: Path, kept_bytes: int | None, found: str) -> None:
    with_data(tmp_path)
    data = tmp_path / "model.data"
    if kept_bytes is None:
        data.unlink()
    else:
        data.write_bytes(data.read_bytes()[:kept_bytes])
    with pytest.raises(BadArtifactError) as caught:
        Model().load(tmp_path / "model.onnx", Options())

    assert str(caught.value).startswith("model.onnx: expected an ONNX model with its external data beside it; onnxrun")
    assert found in str(caught.value)
    assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize("location", ["../../../etc/passwd", "/etc/passwd"])
def test_external_data_outside_the_versions_folder_is_refused(tmp_path: Path, location: str) -> None:
    with_data(tmp_path)
    model = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = location
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(BadArtifactError, match=r"^model.onnx: expected an ONNX model with its external data beside it"):
        Model().load(tmp_path / "model.onnx", Options())
