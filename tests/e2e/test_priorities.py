"""Priorities through the whole mesh, as clients of Triton and of REST set them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest_asyncio

from inference import grpc_service_pb2_grpc
from tests.support import numbered
from tests.support.channels import own_channel
from tests.support.mesh import Mesh
from tests.support.mesh_probes import QUICK, introduce

BATCHING = {"max_batch_size": 1, "priority_levels": 2, "default_priority_level": 2}


@pytest_asyncio.fixture
async def mesh(tmp_path: Path) -> AsyncIterator[Mesh]:
    async with Mesh(tmp_path, only=("runtime-0", "batcher-0", "router"), settings=QUICK) as mesh:
        yield mesh


async def test_an_urgent_request_overtakes_a_queue_of_others_on_either_protocol(mesh: Mesh) -> None:
    numbered.write_moody(mesh.repository, "slow", 1, sleep_s=0.05)
    await introduce(mesh, "slow", 1, spec={"trusted": True, "batching": BATCHING})
    finished: list[str] = []
    rest = f"http://{await mesh.listening('router', 'rest')}/v2/models/slow/infer"
    async with (
        own_channel(await mesh.listening("router", "grpc")) as channel,
        aiohttp.ClientSession() as client,
    ):
        stub = grpc_service_pb2_grpc.GRPCInferenceServiceStub(channel)

        async def call(name: str, value: float, priority: int) -> None:
            request = numbered.request("slow", [value])
            if priority:
                request.parameters["priority"].uint64_param = priority
            reply = await stub.ModelInfer(request, timeout=30)
            assert not numbered.fault(reply, [value], {"1"})
            finished.append(name)

        async def post(name: str, value: float) -> None:
            rows = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [value, 0, 0, 0]}
            async with client.post(rest, json={"parameters": {"priority": 1}, "inputs": [rows]}) as response:
                assert (await response.json())["outputs"][0]["data"][0] == value
            finished.append(name)

        low = [asyncio.create_task(call(f"low {n}", n, 0)) for n in range(30)]
        while not finished:
            await asyncio.wait(low, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(call("high by gRPC", 100, 1), post("high by REST", 101))
        overtaken = 32 - len(finished)
        await asyncio.gather(*low)

    assert overtaken >= 15  # of 30: those before it, and what was with the worker already
    assert len(finished) == 32
