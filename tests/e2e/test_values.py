"""Values that others lose on the way: not finite, nothing, scalars, text with NULs; through a whole mesh and back."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
import numpy as np
import onnx
import pytest
import pytest_asyncio
from onnx import TensorProto, helper

from inference import grpc_service_pb2 as pb
from inference import grpc_service_pb2_grpc as pb_grpc
from services.core.tensor import decode_bytes, encode_bytes
from tests.support.channels import own_channel
from tests.support.mesh import Mesh
from tests.support.mesh_probes import QUICK, errors, introduce

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

NAMES = ("runtime-0", "batcher-0", "router")
# name -> type and shape of a model that gives back what it takes
MODELS: dict[str, tuple[int, Sequence[Any]]] = {
    "rows": (TensorProto.FLOAT, ["n", 4]),
    "halves": (TensorProto.FLOAT16, ["n", "length"]),
    "texts": (TensorProto.STRING, ["n", "length"]),
    "scalar": (TensorProto.FLOAT, []),
    "fixed": (TensorProto.DOUBLE, [2, 0]),
}
TEXTS = [b"a\0b\0", b"", b"\0", "é\0".encode(), b"x" * 300, b"end"]


def write(folder: Path, datatype: int, shape: Sequence[Any]) -> None:
    folder.mkdir(parents=True)
    x, y = (helper.make_tensor_value_info(name, datatype, shape) for name in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "echo", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, folder / "model.onnx")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mesh]:
    async with Mesh(tmp_path_factory.mktemp("values"), only=NAMES, settings=QUICK) as mesh:
        for name, (datatype, shape) in MODELS.items():
            write(mesh.repository / name / "1", datatype, shape)
            await introduce(mesh, name, 1)
        yield mesh


@pytest_asyncio.fixture(loop_scope="module")
async def stub(mesh: Mesh) -> AsyncIterator[pb_grpc.GRPCInferenceServiceStub]:
    async with own_channel(await mesh.listening("router", "grpc")) as channel:
        yield pb_grpc.GRPCInferenceServiceStub(channel)


async def echo(stub: Any, model: str, datatype: str, shape: Sequence[int], data: bytes) -> tuple[list[int], bytes]:
    """Shape and data of the answer."""
    tensor = pb.ModelInferRequest.InferInputTensor(name="x", datatype=datatype, shape=shape)
    request = pb.ModelInferRequest(model_name=model, inputs=[tensor], raw_input_contents=[data])
    response = await stub.ModelInfer(request, timeout=20)
    return list(response.outputs[0].shape), response.raw_output_contents[0]


async def rest(mesh: Mesh, model: str, tensor: dict[str, Any], body: bytes | None = None) -> tuple[int, bytes]:
    url = f"http://{await mesh.listening('router', 'rest')}/v2/models/{model}/infer"
    sent = {"data": body} if body is not None else {"json": {"inputs": [{"name": "x", **tensor}]}}
    async with aiohttp.ClientSession() as session, session.post(url, **sent) as answer:
        return answer.status, await answer.read()


async def test_what_is_not_finite_keeps_its_bits(mesh: Mesh, stub: Any) -> None:
    data = np.array([[np.nan, np.inf, -np.inf, -0.0]], np.float32).tobytes()
    body = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [NaN, Infinity, -Infinity, -0.0]}]}'
    status, answer = await rest(mesh, "rows", {}, body)

    assert await echo(stub, "rows", "FP32", [1, 4], data) == ([1, 4], data)
    assert (status, b"[NaN,Infinity,-Infinity,-0.0]" in answer) == (200, True)


async def test_half_precision_keeps_its_bits(stub: Any) -> None:
    data = np.array([[1.5, -0.0, np.inf], [np.nan, 6e-8, 65504]], np.float16).tobytes()

    assert await echo(stub, "halves", "FP16", [2, 3], data) == ([2, 3], data)


@pytest.mark.parametrize(
    ("model", "datatype", "shape"),
    [("rows", "FP32", [0, 4]), ("halves", "FP16", [3, 0]), ("texts", "BYTES", [0, 2]), ("fixed", "FP64", [2, 0])],
)
async def test_nothing_is_answered_with_nothing_and_the_next_is_well(
    mesh: Mesh, stub: Any, model: str, datatype: str, shape: list[int]
) -> None:
    status, answer = await rest(mesh, "rows", {"datatype": "FP32", "shape": [0, 4], "data": []})

    assert await echo(stub, model, datatype, shape, b"") == (shape, b"")
    assert (status, b'"shape":[0,4],"data":[]' in answer) == (200, True)
    assert (await echo(stub, "rows", "FP32", [1, 4], bytes(16)))[0] == [1, 4]
    assert errors(mesh, *NAMES) == []


async def test_a_scalar_is_one_element(mesh: Mesh, stub: Any) -> None:
    data = np.float32(2.5).tobytes()
    status, answer = await rest(mesh, "scalar", {"datatype": "FP32", "shape": [], "data": [2.5]})

    assert await echo(stub, "scalar", "FP32", [], data) == ([], data)
    assert (status, b'"shape":[],"data":[2.5]' in answer) == (200, True)


async def test_text_keeps_every_byte_over_both_protocols(mesh: Mesh, stub: Any) -> None:
    words = ["a\0b\0", "", "\0", "é"]
    shape, data = await echo(stub, "texts", "BYTES", [2, 3], encode_bytes(TEXTS))
    status, answer = await rest(mesh, "texts", {"datatype": "BYTES", "shape": [2, 2], "data": words})

    assert (shape, decode_bytes(data)) == ([2, 3], TEXTS)
    assert status == 200
    assert b'["a\\u0000b\\u0000","","\\u0000","\xc3\xa9"]' in answer


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\3\0\0\0abc\0\0\0\2de", "input 'x': BYTES element 1 at offset 7: its length 33554432 reaches"),
        (b"\3\0\0\0abc\2\0", "input 'x': BYTES element 1 at offset 7: its 4-byte length is cut off"),
        (b"\3\0\0\0abc", "input 'x': BYTES data holds 1 elements, but the shape says 2"),
        (b"abcdef", "input 'x': BYTES element 0 at offset 0: its length 1684234849 reaches"),
    ],
)
async def test_a_wrong_length_of_text_is_refused_with_its_place(stub: Any, data: bytes, says: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await echo(stub, "texts", "BYTES", [1, 2], data)

    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert says in (refused.value.details() or "")


async def test_a_hundred_thousand_texts_are_cut_into_batches_and_joined(stub: Any) -> None:
    words = [f"word {number}".encode() for number in range(100_000)]
    shape, data = await echo(stub, "texts", "BYTES", [1000, 100], encode_bytes(words))

    assert (shape, decode_bytes(data)) == ([1000, 100], words)
