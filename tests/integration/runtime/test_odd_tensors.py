"""Tensors that others stumble over, through a worker's link: every datatype, no rank, no element, odd outputs."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from services.core import arrays
from tests.support.lone_worker import lone_worker
from tests.support.onnx_types import TYPES
from turnout.v1.link_pb2 import Reply
from turnout.v1.tensor_pb2 import Tensor

FLOAT = TensorProto.FLOAT
Value = tuple[str, int, Sequence[int | str]]


def saved(folder: Path, nodes: Sequence, inputs: Sequence[Value], outputs: Sequence[Value]) -> Path:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(*each) for each in inputs],
        [helper.make_tensor_value_info(*each) for each in outputs],
    )
    file = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), file)
    return file


def echo(folder: Path, shape: Sequence[int | str], without: str) -> Path:
    """A graph with an input and an output of every datatype but one."""
    kinds = {name: kind for name, kind in TYPES.items() if name != without}
    nodes = [helper.make_node("Identity", [f"{name}_in"], [name]) for name in kinds]
    inputs = [(f"{name}_in", kind, shape) for name, kind in kinds.items()]
    return saved(folder, nodes, inputs, [(name, kind, shape) for name, kind in kinds.items()])


def everything(shape: tuple[int, ...], without: str) -> list[Tensor]:
    """An input of every datatype but one, no two elements of which are alike."""
    count = int(np.prod(shape))
    tensors = []
    for name, kind in TYPES.items():
        if name == without:
            continue
        if name == "BYTES":
            array = np.array([f"é\0{index}".encode() for index in range(count)], dtype=object).reshape(shape)
        elif name == "BF16":
            array = np.arange(0x3F80, 0x3F80 + count, dtype=np.uint16).reshape(shape)
        else:
            array = np.arange(count).reshape(shape).astype(helper.tensor_dtype_to_np_dtype(kind))
        data = arrays.encode(array)[1]
        tensors.append(Tensor(name=f"{name}_in", datatype=name, shape=shape, data=data))
    return tensors


def echoed(reply: Reply, sent: Sequence[Tensor]) -> bool:
    """Whether every tensor came back as it went."""
    assert reply.code == 0, reply.message
    found = {(each.name, each.datatype, tuple(each.shape), each.data) for each in reply.outputs}
    return found == {(each.datatype, each.datatype, tuple(each.shape), each.data) for each in sent}


@pytest.mark.parametrize("without", ["BF16", "BYTES"])  # onnxruntime gives BF16 to nobody who sends text
async def test_datatypes_side_by_side_pass_in_rows_and_without_any_element(tmp_path: Path, without: str) -> None:
    async with lone_worker("onnx", echo(tmp_path, ["n", "m"], without)) as worker:
        assert worker.signature.batches, worker.reason
        for shape in ((3, 2), (1, 2), (0, 2), (2, 0), (0, 0), (3, 2)):
            sent = everything(shape, without)

            assert echoed(await worker.ask(sent, shape[0]), sent), shape


async def test_datatypes_side_by_side_pass_without_a_dimension(tmp_path: Path) -> None:
    async with lone_worker("onnx", echo(tmp_path, [], "BYTES")) as worker:
        sent = everything((), "BYTES")
        reply = await worker.ask(sent)

    assert not worker.signature.batches
    assert [list(spec.shape) for spec in worker.signature.outputs] == [[]] * (len(TYPES) - 1)
    assert echoed(reply, sent)


async def test_outputs_that_are_no_rows_or_not_as_they_are_declared_are_told_and_not_batched(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Reshape", ["x", "sizes"], ["again"]),
        helper.make_node("Transpose", ["x"], ["turned"], perm=[1, 0]),
    ]
    outputs: list[Value] = [
        ("total", FLOAT, []),
        ("sizes", TensorProto.INT64, [2]),
        ("again", FLOAT, ["n", 1, 3]),
        ("turned", FLOAT, [3, "n"]),
    ]
    file = saved(tmp_path, nodes, [("x", FLOAT, ["n", 3])], outputs)
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    async with lone_worker("onnx", file) as worker:
        answer = await worker.answer({"x": rows}, 2)
        empty = await worker.answer({"x": rows[:0]}, 0)

    assert not worker.signature.batches
    assert [list(spec.shape) for spec in worker.signature.outputs] == [[], [2], [-1, 3], [3, -1]]
    assert (answer["total"].shape, float(answer["total"])) == ((), 15.0)
    assert answer["sizes"].tolist() == [2, 3]
    assert np.array_equal(answer["again"], rows)
    assert np.array_equal(answer["turned"], rows.T)
    assert [array.shape for array in empty.values()] == [(), (2,), (0, 3), (3, 0)]


async def test_an_output_that_has_a_row_for_one_and_one_row_for_two_is_not_batched(tmp_path: Path) -> None:
    node = helper.make_node("ReduceMax", ["x"], ["y"], axes=[0], keepdims=1)
    file = saved(tmp_path, [node], [("x", FLOAT, ["n", 1])], [("y", FLOAT, ["n", 1])])
    async with lone_worker("onnx", file) as worker:
        answer = await worker.answer({"x": np.arange(3, dtype=np.float32).reshape(3, 1)}, 3)

    assert not worker.signature.batches
    assert answer["y"].tolist() == [[2]]
