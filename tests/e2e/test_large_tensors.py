"""Tensors of some hundred KiB through a whole mesh whose processes are killed: as bytes, and through shared memory."""

import os
import signal
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
import pytest_asyncio
from onnx import TensorProto, helper

from inference import grpc_service_pb2 as pb
from tests.support.mesh import Mesh, until
from tests.support.mesh_probes import QUICK, introduce, metric, model_ready, worker
from tests.support.traffic import Ask, Traffic

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

WIDTH = 40_000  # numbers in a row: 160 KB
RATE = 40.0
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where arenas have their names
# Bytes an arena may have: none at all, room for a few tensors so that some fall back, and enough.
LIMITS = {"bytes": 0, "scarce": 2 << 20, "enough": 64 << 20}


def write(repository: Path) -> None:
    """filled/1/model.onnx: x FP32 [n, WIDTH] -> y FP32 [n, 2], the least and the largest number of each row."""
    nodes = [
        helper.make_node("ReduceMin", ["x", "axes"], ["least"]),
        helper.make_node("ReduceMax", ["x", "axes"], ["most"]),
        helper.make_node("Concat", ["least", "most"], ["y"], axis=1),
    ]
    axes = onnx.numpy_helper.from_array(np.array([1], np.int64), "axes")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", WIDTH])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])
    model = helper.make_model(
        helper.make_graph(nodes, "filled", [x], [y], [axes]), opset_imports=[helper.make_opsetid("", 18)], ir_version=9
    )
    folder = repository / "filled" / "1"
    folder.mkdir(parents=True)
    onnx.save(model, folder / "model.onnx")


def ask(number: int) -> Ask:
    """Rows that are filled with one number each: one byte of another request would show."""
    rows = [float(number * 8 + row) for row in range(1 + number % 3)]
    tensor = pb.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=[len(rows), WIDTH])
    data = np.repeat(np.array(rows, np.float32), WIDTH).tobytes()
    request = pb.ModelInferRequest(model_name="filled", inputs=[tensor], raw_input_contents=[data])
    if number % 5 == 0:
        request.id = f"r-{number}"  # takes the way of requests that no template covers

    def fault(response: pb.ModelInferResponse) -> str:
        got = np.frombuffer(response.raw_output_contents[0], np.float32).tolist()
        return "" if got == [value for row in rows for value in (row, row)] else f"{got} came back for {rows}"

    return Ask(request, fault, sets_deadline=number % 2 == 0)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=LIMITS)
async def mesh(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mesh]:
    limit: Mapping[str, str] = {"SHARED_MEMORY_BYTES": str(LIMITS[request.param])}
    settings = {**QUICK, "router": limit, "batcher": limit}
    only = ("runtime-0", "batcher-0", "router")
    async with Mesh(tmp_path_factory.mktemp("large"), only=only, settings=settings) as mesh:
        write(mesh.repository)
        await introduce(mesh, "filled", 1, spec={"batching": {"max_batch_size": 8}})
        yield mesh


def arenas_of(*pids: int) -> list[str]:
    """Those that these processes made."""
    return [path.name for pid in pids for path in SHARED_MEMORY.glob(f"turnout-{pid}-*")]


async def traffic_to(mesh: Mesh) -> Traffic:
    return Traffic(await mesh.listening("router", "grpc"), ask, rate=RATE)


async def forgotten(*pids: int) -> None:
    """Return when nothing is left of what killed processes had."""

    async def are_gone() -> bool:
        return not arenas_of(*pids)

    await until("their arenas are gone", are_gone)


async def shares(mesh: Mesh) -> tuple[bool, bool]:
    """Whether tensors have gone through shared memory from the router, and from the batcher."""
    name = "turnout_shared_memory_tensors_total"
    return await metric(mesh, "router", name) > 0, await metric(mesh, "batcher-0", name) > 0


async def test_tensors_arrive_as_they_were_sent(mesh: Mesh, request: pytest.FixtureRequest) -> None:
    async with await traffic_to(mesh) as traffic:
        await traffic.clean(80)
    traffic.check()

    is_on = LIMITS[request.node.callspec.params["mesh"]] > 0
    assert await shares(mesh) == (is_on, is_on)
    for process in ("router", "batcher-0"):
        assert await metric(mesh, process, "turnout_shared_memory_blocks") == 0
        assert (len(arenas_of(mesh.child(process).pid)) > 0) == is_on


async def test_a_worker_that_is_killed_leaves_nothing_behind(mesh: Mesh) -> None:
    async with await traffic_to(mesh) as traffic:
        await traffic.flowing(30)
        killed = await worker(mesh, "runtime-0", "filled")
        os.kill(killed, signal.SIGKILL)
        await worker(mesh, "runtime-0", "filled", besides=[killed])
        await traffic.clean(80)
    traffic.check(allowed={"INTERNAL", "UNAVAILABLE", "DEADLINE_EXCEEDED"})

    assert len(arenas_of(mesh.child("batcher-0").pid)) <= 1
    assert await metric(mesh, "batcher-0", "turnout_shared_memory_blocks") == 0


async def test_a_batcher_that_is_killed_leaves_nothing_behind(mesh: Mesh) -> None:
    killed = mesh.child("batcher-0").pid
    async with await traffic_to(mesh) as traffic:
        await traffic.flowing(30)
        await mesh.kill("batcher-0")
        await forgotten(killed)
        await mesh.restart("batcher-0")
        await mesh.serving("filled", "1")
        await traffic.clean(80)
    traffic.check(allowed={"INTERNAL", "UNAVAILABLE", "DEADLINE_EXCEEDED"})

    assert len(arenas_of(mesh.child("router").pid)) <= 1
    assert await metric(mesh, "router", "turnout_shared_memory_blocks") == 0


async def test_a_router_that_is_killed_leaves_nothing_behind(mesh: Mesh) -> None:
    killed = mesh.child("router").pid
    async with await traffic_to(mesh) as traffic:
        await traffic.flowing(30)
        await mesh.kill("router")
        await forgotten(killed)
    traffic.check(allowed={"UNAVAILABLE"})

    await mesh.restart("router")
    await model_ready(mesh, "filled")
    async with await traffic_to(mesh) as again:
        await again.clean(80)
    again.check()


async def test_a_batcher_that_hangs_is_given_up_with_its_blocks(mesh: Mesh) -> None:
    async with await traffic_to(mesh) as traffic:
        await traffic.flowing(30)
        mesh.pause("batcher-0")
        await traffic.failing()
        mesh.resume("batcher-0")
        await traffic.clean(80)
    traffic.check(allowed={"INTERNAL", "UNAVAILABLE", "DEADLINE_EXCEEDED"})

    assert await metric(mesh, "router", "turnout_shared_memory_blocks") == 0


async def test_what_stops_in_good_order_leaves_nothing_behind(mesh: Mesh) -> None:
    pids = [mesh.child(process).pid for process in ("router", "batcher-0")]
    for process in ("router", "batcher-0"):
        assert await mesh.stop(process) == 0

    assert arenas_of(*pids) == []
