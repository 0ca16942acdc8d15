"""What was counted of a model: every answer before the question is in it, of all replicas, also of those that died."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import grpc
import grpc.aio
import numpy as np
import pytest
import pytest_asyncio

from inference import grpc_service_pb2 as pb
from inference import grpc_service_pb2_grpc
from tests.support import numbered
from tests.support.channels import own_channel
from tests.support.mesh import Mesh, until
from tests.support.mesh_probes import QUICK, serve

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]
TIMEOUT_S = 20.0
FRONTS = ("router", "aio")  # processes of the mesh


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mesh]:
    only = ("runtime-0", "batcher-0", "router")
    async with Mesh(tmp_path_factory.mktemp("statistics"), only=only, settings=QUICK) as mesh:
        mesh.add("aio", like="router", NATIVE_FRONT="false")
        await mesh.start("aio")
        await serve(mesh, "numbers", 1)
        yield mesh


@asynccontextmanager
async def calling(mesh: Mesh, router: str) -> AsyncIterator["Caller"]:
    channel = own_channel(await mesh.listening(router, "grpc"))
    stub = grpc_service_pb2_grpc.GRPCInferenceServiceStub(channel)
    caller = Caller(stub, await mesh.listening(router, "rest"))
    await until("the model is ready", caller.is_ready)
    yield caller
    await channel.close()


@pytest_asyncio.fixture(loop_scope="module", params=FRONTS)
async def caller(mesh: Mesh, request: pytest.FixtureRequest) -> AsyncIterator["Caller"]:
    async with calling(mesh, request.param) as caller:
        yield caller


class Caller:
    """Of one router, by both protocols."""

    def __init__(self, stub: Any, rest: str) -> None:
        self.stub = stub
        self._rest = rest

    async def is_ready(self) -> bool:
        try:
            await self.stub.ModelReady(pb.ModelReadyRequest(name="numbers"), timeout=TIMEOUT_S)
        except grpc.aio.AioRpcError:
            return False
        return True

    async def infer(self, rows: int) -> None:
        values = np.arange(rows * numbered.WIDTH, dtype=np.float32).reshape(rows, -1)
        tensor = pb.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=values.shape)
        request = pb.ModelInferRequest(model_name="numbers", inputs=[tensor], raw_input_contents=[values.tobytes()])
        await self.stub.ModelInfer(request, timeout=TIMEOUT_S)

    async def counted(self, **asked: str) -> pb.ModelStatistics:
        request = pb.ModelStatisticsRequest(**asked)
        (found,) = (await self.stub.ModelStatistics(request, timeout=TIMEOUT_S)).model_stats
        check_sums(found)
        return found

    async def get(self, path: str) -> tuple[int, Any]:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"http://{self._rest}{path}") as answer,
        ):
            return answer.status, await answer.json()


def check_sums(counted: pb.ModelStatistics) -> None:
    """What holds of any counts, and times that are there where something was done."""
    assert sum(size.compute_infer.count for size in counted.batch_stats) == counted.execution_count
    assert sum(size.batch_size * size.compute_infer.count for size in counted.batch_stats) == counted.inference_count
    for size in counted.batch_stats:
        counts = {size.compute_input.count, size.compute_infer.count, size.compute_output.count}
        assert len(counts) == 1
        assert size.compute_infer.ns > 0
    stats = counted.inference_stats
    for part in (stats.queue, stats.compute_input, stats.compute_infer, stats.compute_output):
        assert part.count == stats.success.count
    assert (counted.last_inference > 0) == (counted.execution_count > 0)


async def metrics(mesh: Mesh, process: str) -> set[str]:
    address = await mesh.metrics(process)
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}/metrics") as answer:
        return set((await answer.text()).splitlines())


async def test_what_was_answered_before_is_counted(caller: Caller) -> None:
    before = await caller.counted(name="numbers")
    await asyncio.gather(*(caller.infer(rows) for rows in (1, 2, 3)))
    with pytest.raises(grpc.aio.AioRpcError):
        await caller.infer(100_000)  # the router refuses that: no replica sees it
    after = await caller.counted(name="numbers", version="1")

    assert after.inference_count - before.inference_count == 6
    assert after.inference_stats.success.count - before.inference_stats.success.count == 3
    assert after.inference_stats.fail.count == before.inference_stats.fail.count
    assert 1 <= after.execution_count - before.execution_count <= 3
    assert after.last_inference >= before.last_inference


async def test_rest_says_the_same_as_grpc_with_numbers_as_numbers(caller: Caller) -> None:
    await caller.infer(2)
    counted = await caller.counted(name="numbers")

    for path in ("/v2/models/stats", "/v2/models/numbers/stats", "/v2/models/numbers/versions/1/stats"):
        status, body = await caller.get(path)
        (said,) = body["model_stats"]
        assert (status, said["name"], said["version"]) == (200, "numbers", "1")
        assert said["inference_count"] == counted.inference_count
        assert said["inference_stats"]["success"] == {
            "count": counted.inference_stats.success.count,
            "ns": counted.inference_stats.success.ns,
        }
        sizes = {size["batch_size"]: size["compute_infer"]["count"] for size in said["batch_stats"]}
        assert sizes == {size.batch_size: size.compute_infer.count for size in counted.batch_stats}


async def test_metrics_of_the_router_have_the_same_under_tritons_names(mesh: Mesh, caller: Caller) -> None:
    await caller.infer(2)
    counted = await caller.counted(name="numbers")
    labels = 'model="numbers",version="1"'
    expected = {
        f"nv_inference_request_success{{{labels}}} {counted.inference_stats.success.count}.0",
        f"nv_inference_count{{{labels}}} {counted.inference_count}.0",
        f"nv_inference_exec_count{{{labels}}} {counted.execution_count}.0",
    }

    async def are_there() -> bool:  # of the other router once it has heard it
        return expected <= await metrics(mesh, "router")

    await until(f"{expected} in metrics", are_there)
    names = {line.partition("{")[0] for line in await metrics(mesh, "batcher-0")}
    assert {line.partition("{")[0] for line in expected} <= names


async def test_an_unknown_model_or_version_is_not_found(caller: Caller) -> None:
    for asked in ({"name": "nobody"}, {"name": "numbers", "version": "7"}):
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await caller.counted(**asked)
        assert error.value.code() == grpc.StatusCode.NOT_FOUND
    for path in ("/v2/models/nobody/stats", "/v2/models/numbers/versions/7/stats", "/v2/models/nobody/config"):
        status, body = await caller.get(path)
        assert (status, list(body)) == (404, ["error"])


async def test_what_a_batcher_counted_outlives_it_and_counts_once(mesh: Mesh) -> None:
    async with AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(calling(mesh, router)) for router in FRONTS]
        await callers[0].infer(3)
        before = [await caller.counted(name="numbers") for caller in callers]
        await mesh.restart("batcher-0")  # which says its last word
        for caller in callers:
            await until("the model is ready again", caller.is_ready)
            await caller.infer(2)
        after = [await caller.counted(name="numbers") for caller in callers]
        assert [now.inference_count for now in after] == [then.inference_count + 4 for then in before]
        assert [now.execution_count for now in after] == [then.execution_count + 2 for then in before]

        await mesh.kill("batcher-0")
        remains = [await caller.counted(name="numbers") for caller in callers]
        assert [now.inference_count for now in remains] == [then.inference_count for then in after]
    await mesh.start("batcher-0")
