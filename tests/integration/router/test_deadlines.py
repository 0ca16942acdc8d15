"""Deadlines and cancels: on time, and told to the replica."""

import asyncio
import signal

import grpc
import grpc.aio
import pytest

from services.core import keys
from services.core.registry import Endpoint
from tests.support.proof import Starvation
from tests.support.puppets import echo, floats, silence
from tests.support.router_mesh import TIMEOUT_S, RouterMesh, infer_request, rest_request
from tests.support.service_process import started

pytestmark = pytest.mark.asyncio(loop_scope="module")

OK, DEADLINE = grpc.StatusCode.OK, grpc.StatusCode.DEADLINE_EXCEEDED
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
LATE_S = 0.2  # beside the time for which the router had no processor


async def test_the_callers_deadline_holds_while_the_replica_sleeps(mesh: RouterMesh) -> None:
    model = await mesh.model()
    model.batcher.answer = silence

    starved = Starvation(mesh.router.pid)
    answer = await model.call(timeout_s=1)
    await model.batcher.until(lambda: model.batcher.cancels)

    assert (answer.code, answer.took_s < 1 + LATE_S + starved.seconds) == (DEADLINE, True)
    assert model.batcher.cancels == [model.batcher.requests[0].id]


@pytest.mark.parametrize("headers", [{"X-Request-Timeout-Ms": "500"}, {}])
async def test_the_header_and_the_models_own_deadline_hold_too(mesh: RouterMesh, headers: dict[str, str]) -> None:
    model = await mesh.model(spec={} if headers else {"default_deadline_ms": 500})
    model.batcher.answer = silence
    starved = Starvation(mesh.router.pid)

    rest = await model.rest(rest_request(1.0), headers=headers)
    answer = await model.call(timeout_s=None) if not headers else None

    late_s = LATE_S + starved.seconds
    assert (rest.status, rest.took_s < 0.5 + late_s) == (504, True), rest
    assert "the deadline passed while waiting for replica" in rest.body["error"]
    await model.batcher.until(lambda: len(model.batcher.cancels) == len(model.batcher.requests))
    if answer is not None:
        assert (answer.code, answer.took_s < 0.5 + late_s) == (DEADLINE, True)


async def test_what_cannot_be_reached_in_time_is_refused_at_the_router(mesh: RouterMesh) -> None:
    model = await mesh.model()
    model.batcher.answer = lambda request: {**(echo(request) or {}), "expected_wait_us": 5_000_000}
    assert (await model.call()).code == OK

    answer = await model.call(timeout_s=1)

    assert (answer.code, len(model.batcher.requests)) == (UNAVAILABLE, 1)
    assert "ms of work queued; the deadline is in" in answer.message
    assert 3000 < (answer.retry_ms() or 0) <= 5000


async def test_a_batcher_that_hangs_costs_its_callers_their_deadline_and_no_more(mesh: RouterMesh) -> None:
    name = f"hang-{id(mesh)}"
    await mesh.put(f"models/{name}", {})
    async with started("tests.support.puppets", {"PUPPET_MODEL": name}) as process:
        endpoint = Endpoint(
            address=await process.address("link"), digest="sha", signature_hash="x", slots=1, max_batch_rows=64
        )
        await mesh.etcd.put(keys.endpoint(name, "1", "hanger"), endpoint.dump())
        await mesh.ready(name, "1")

        starved = Starvation(mesh.router.pid)
        process.signal(signal.SIGSTOP)
        answer = await mesh.call(infer_request(name, 1.0), timeout_s=0.5)
        rest = await mesh.rest(f"/v2/models/{name}/infer", rest_request(1.0), headers={"X-Request-Timeout-Ms": "500"})
        process.signal(signal.SIGCONT)
        after = await mesh.call(infer_request(name, 2.0))
        await mesh.etcd.delete(keys.endpoint(name, "1", "hanger"))

    assert (answer.code, rest.status, after.code) == (DEADLINE, 504, OK)
    assert max(answer.took_s, rest.took_s) < 0.5 + LATE_S + starved.seconds


async def test_a_cancel_reaches_the_replica(mesh: RouterMesh) -> None:
    model = await mesh.model()
    model.batcher.answer = silence
    call = mesh.stub.ModelInfer(infer_request(model.name, 1.0), timeout=TIMEOUT_S)
    task = asyncio.ensure_future(call.code())
    await model.batcher.until(lambda: model.batcher.requests)

    call.cancel()
    await model.batcher.until(lambda: model.batcher.cancels)
    await task

    assert model.batcher.cancels == [model.batcher.requests[0].id]


async def test_a_closed_http_connection_reaches_the_replica_too(mesh: RouterMesh) -> None:
    model = await mesh.model()
    model.batcher.answer = silence
    task = asyncio.create_task(model.rest(rest_request(1.0)))
    await model.batcher.until(lambda: model.batcher.requests)

    task.cancel()
    await model.batcher.until(lambda: model.batcher.cancels)

    assert model.batcher.cancels == [model.batcher.requests[0].id]
    model.batcher.answer = echo
    assert (await model.rest(rest_request(1.0))).status == 200


async def test_an_answer_after_the_cancel_goes_nowhere(mesh: RouterMesh) -> None:
    model = await mesh.model()
    model.batcher.answer = silence
    call = mesh.stub.ModelInfer(infer_request(model.name, 1.0), timeout=TIMEOUT_S)
    left = asyncio.ensure_future(call.code())
    await model.batcher.until(lambda: model.batcher.requests)
    call.cancel()
    await model.batcher.until(lambda: model.batcher.cancels)
    await left

    model.batcher.reply(model.batcher.requests[0], **(echo(model.batcher.requests[0]) or {}))
    model.batcher.answer = echo

    answer = await model.call(7.0)
    assert answer.response is not None
    assert list(answer.response.raw_output_contents) == [floats(7.0, 7.0)]
