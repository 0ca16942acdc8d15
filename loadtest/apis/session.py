"""One mesh, and every API asked for every workload; a figure counts only when every answer was right."""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import numpy as np

from loadtest import h2load
from loadtest.apis.calls import Api, Array
from loadtest.bench import CALIBRATION, SAMPLES, WrongAnswerError
from loadtest.mesh_stats import cpu_seconds, ok_count, processes
from loadtest.workloads import IMAGE_SPEC, RANKER_SPEC, Workload, session, write_repository
from tests.support.mesh import Mesh

_NAMES = {"router": "router", "batcher-0": "batcher", "worker-0": "worker"}


async def measure(
    apis: Sequence[Api], workloads: Sequence[Workload], seconds: float, say: Callable[[str], object]
) -> list[dict[str, Any]]:
    folder = Path(tempfile.mkdtemp(prefix="turnout-bench-"))
    write_repository(folder / "models")
    found = []
    async with Mesh(folder, only=("runtime-0", "batcher-0", "router")) as mesh:
        for model, spec in (("ranker", RANKER_SPEC), ("image", IMAGE_SPEC)):
            await mesh.put(f"models/{model}", spec)
            await mesh.put(f"routes/{model}", {"stable": "1"})
            await mesh.serving(model, "1")
        for workload in workloads:
            for api in apis:
                if api.serves(workload):
                    say(f"{workload.name} {api.name}")
                    found.append(await _one(mesh, api, workload, folder, seconds))
    shutil.rmtree(folder)  # of a failure it is kept, for its logs
    return found


async def _one(mesh: Mesh, api: Api, workload: Workload, folder: Path, seconds: float) -> dict[str, Any]:
    address = await mesh.listening("router", "grpc" if api.is_grpc else "rest")
    metrics = await mesh.metrics("router")
    call = api.call(workload, workload.inputs())
    body = folder / "body.bin"
    body.write_bytes(call.body)
    # HTTP/1.1 has one request at a time on a connection: as many connections as gRPC has streams.
    shape = (workload.connections, workload.streams) if api.is_grpc else (workload.concurrency, 1)

    def load(requests: int) -> h2load.Load:
        return h2load.run(
            address,
            body,
            path=call.path,
            headers=call.headers,
            is_http1=not api.is_grpc,
            requests=requests,
            connections=shape[0],
            streams=shape[1],
            log=folder / "h2load.log",
            timeout_s=10 * seconds + 60,
        )

    await _check(mesh, api, workload)
    first = await asyncio.to_thread(load, CALIBRATION)
    warm = await asyncio.to_thread(load, max(CALIBRATION, int(first.requests_s)))
    watched = processes(mesh)
    before, ok_before = cpu_seconds(watched), await ok_count(metrics, workload.model)
    result = await asyncio.to_thread(load, max(CALIBRATION, int(warm.requests_s * seconds)))
    after, ok_after = cpu_seconds(watched), await ok_count(metrics, workload.model)
    await _check(mesh, api, workload)
    if ok_after - ok_before != result.requests:
        raise WrongAnswerError(f"{api.name}: {result.requests} calls, {ok_after - ok_before} answered OK")
    cpu_us = {
        shown: (after[name] - before[name]) / result.requests * 1e6 for name, shown in _NAMES.items() if name in watched
    }
    return {
        "workload": workload.name,
        "api": api.name,
        "body_bytes": len(call.body),
        "requests": result.requests,
        "requests_s": result.requests_s,
        "p50_ms": result.p50_ms,
        "p99_ms": result.p99_ms,
        "cpu_us": cpu_us,
    }


async def _check(mesh: Mesh, api: Api, workload: Workload) -> None:
    """Raise WrongAnswerError unless sampled answers equal the model run in this process."""
    model = session(mesh.repository, workload.model)
    rng = np.random.default_rng()
    async with contextlib.AsyncExitStack() as stack:
        ask = await _asker(mesh, api, workload, stack)
        for _ in range(SAMPLES):
            inputs = rng.normal(size=(workload.rows, *workload.inner)).astype(np.float32)
            got, expected = await ask(inputs), model.run(None, {"x": inputs})[0]
            if got.shape != expected.shape and got.size == expected.size:  # V1 says no shape of a row of one number
                got = got.reshape(expected.shape)
            if not np.allclose(got, expected, rtol=1e-4, atol=1e-5):
                raise WrongAnswerError(f"{workload.name} {api.name}: an answer differs")


async def _asker(mesh: Mesh, api: Api, workload: Workload, stack: contextlib.AsyncExitStack) -> Callable[[Array], Any]:
    if api.is_grpc:
        address = await mesh.listening("router", "grpc")
        options = [("grpc.max_send_message_length", -1)]
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(address, options=options))
        infer = channel.unary_unary(h2load.METHOD)

        async def by_grpc(inputs: Array) -> Array:
            return api.read(await infer(api.call(workload, inputs).body[5:], timeout=30), {})

        return by_grpc
    address = await mesh.listening("router", "rest")
    client = await stack.enter_async_context(aiohttp.ClientSession())

    async def by_rest(inputs: Array) -> Array:
        call = api.call(workload, inputs)
        async with client.post(f"http://{address}{call.path}", data=call.body, headers=call.headers) as answer:
            body = await answer.read()
            if answer.status != 200:
                raise WrongAnswerError(f"{workload.name} {api.name}: {answer.status} {body[:300].decode()}")
            return api.read(body, answer.headers)

    return by_rest
