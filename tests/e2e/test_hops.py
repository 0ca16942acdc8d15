"""One request through every hop of a whole mesh: large ones, those whose caller leaves, and those that find no room."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
import numpy as np
import pytest
import pytest_asyncio

from inference import grpc_service_pb2 as pb
from tests.support import numbered
from tests.support.channels import own_channel
from tests.support.mesh import Mesh, until
from tests.support.mesh_probes import QUICK, errors, introduce, metric
from tests.support.traffic import MODEL_INFER

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

WIDTH = 1_250_000  # 5 MB a row
SLOW_S = 0.3
NAMES = ("runtime-0", "batcher-0", "router")
ONE_BY_ONE = {"max_batch_size": 1, "slots": 1, "max_queue_size": 3}
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def diary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("diary")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory, diary: Path) -> AsyncIterator[Mesh]:
    async with Mesh(tmp_path_factory.mktemp("hops"), only=NAMES, settings=QUICK) as mesh:
        numbered.write_echo(mesh.repository, "wide", 1, WIDTH)
        numbered.write_moody(mesh.repository, "slow", 1, sleep_s=SLOW_S, diary=str(diary))
        await introduce(mesh, "wide", 1, spec={"default_deadline_ms": 60_000})
        await introduce(mesh, "slow", 1, spec={"trusted": True, "batching": ONE_BY_ONE, "default_deadline_ms": 30_000})
        yield mesh


@pytest_asyncio.fixture(loop_scope="module")
async def infer(mesh: Mesh) -> AsyncIterator[Any]:
    """ModelInfer, with bytes in and out."""
    async with own_channel(
        await mesh.listening("router", "grpc"), max_receive_message_length=-1, max_send_message_length=-1
    ) as channel:
        yield channel.unary_unary(MODEL_INFER)


def wide(rows: int) -> tuple[bytes, bytes]:
    """A request of 5 MB a row, and its tensor."""
    data = np.arange(rows * WIDTH, dtype=np.uint32).tobytes()  # any bits are a number that comes back as it went
    tensor = pb.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=[rows, WIDTH])
    request = pb.ModelInferRequest(model_name="wide", inputs=[tensor], raw_input_contents=[data])
    return request.SerializeToString(), data


@pytest.mark.parametrize("rows", [1, 12])
async def test_five_and_sixty_megabytes_pass_every_hop_and_come_back(infer: Any, rows: int) -> None:
    request, data = wide(rows)

    response = pb.ModelInferResponse.FromString(await infer(request, timeout=60))

    assert list(response.outputs[0].shape) == [rows, WIDTH]
    assert response.raw_output_contents[0] == data


async def test_more_than_the_limit_is_refused_at_the_edge_with_both_numbers(mesh: Mesh, infer: Any) -> None:
    request, _ = wide(14)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await infer(request, timeout=60)

    assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert f"{len(request)} bytes" in (refused.value.details() or "")
    assert f"{64 << 20}" in (refused.value.details() or "")
    assert errors(mesh, *NAMES) == []


async def test_what_its_caller_left_while_it_waited_is_never_run(mesh: Mesh, infer: Any, diary: Path) -> None:
    def ask(value: float) -> Any:
        return infer(numbered.request("slow", [value]).SerializeToString(), timeout=30)

    async def first_runs() -> bool:
        return numbered.runs(diary)[11.0] == 1

    runs = ask(11.0)
    await until("the first runs", first_runs)
    leaves, stays = ask(12.0), ask(13.0)

    async def two_wait() -> bool:
        return await metric(mesh, "batcher-0", "turnout_batcher_queue_rows", model="slow") == 2

    await until("two wait behind the one that runs", two_wait)
    leaves.cancel()
    await asyncio.gather(runs, stays)

    begun = numbered.runs(diary)
    assert (begun[11.0], begun[12.0], begun[13.0]) == (1, 0, 1)
    assert await metric(mesh, "batcher-0", "turnout_batcher_cancelled_total", model="slow", stage="queue") == 1


async def test_what_its_caller_left_while_it_ran_is_dropped_and_its_slot_is_free_after_it(
    mesh: Mesh, infer: Any, diary: Path
) -> None:
    leaves = infer(numbered.request("slow", [21.0]).SerializeToString(), timeout=30)

    async def runs() -> bool:
        return numbered.runs(diary)[21.0] == 1

    await until("it runs", runs)
    leaves.cancel()
    after = pb.ModelInferResponse.FromString(
        await infer(numbered.request("slow", [22.0]).SerializeToString(), timeout=30)
    )

    assert numbered.fault(after, [22.0], {"1"}) == ""
    assert await metric(mesh, "batcher-0", "turnout_batcher_cancelled_total", model="slow", stage="running") == 1


async def test_a_full_queue_is_503_with_a_hint_and_who_waits_is_served_with_its_own_id(mesh: Mesh) -> None:
    url = f"http://{await mesh.listening('router', 'rest')}/v2/models/slow/infer"

    async def ask(number: int) -> tuple[int, Mapping[str, str], Any]:
        x = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [number, 0, 0, 0]}
        body, headers = {"id": f"r-{number}", "inputs": [x]}, {"x-request-id": f"call-{number}"}
        async with session.post(url, json=body, headers=headers) as answer:
            return answer.status, answer.headers, await answer.json()

    async with aiohttp.ClientSession() as session:
        answers = await asyncio.gather(*(ask(number) for number in range(30, 42)))

    assert {status for status, _, _ in answers} == {200, 503}
    for number, (status, headers, body) in enumerate(answers, 30):
        assert headers["x-request-id"] == f"call-{number}"
        if status == 503:
            assert int(headers["Retry-After"]) >= 1
            assert "queue of slow/1 is full" in body["error"]
        else:
            assert (body["id"], body["outputs"][0]["data"][0]) == (f"r-{number}", number)
