"""A router's beginning and end, and its days without etcd."""

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from inference import grpc_service_pb2 as pb
from services.chassis.etcd import snapshot
from services.core import keys
from tests.support.puppets import echo, silence
from tests.support.router_mesh import FRONTS, TIMEOUT_S, RouterMesh, infer_request, rest_request, router_mesh, until

OK, UNAVAILABLE = grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE


@pytest.fixture(params=FRONTS)
async def mesh(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RouterMesh]:
    """A router of the test's own."""
    async with router_mesh(tmp_path, request.param) as mesh:
        yield mesh


@pytest.fixture
async def no_errors_of_its_own() -> None:
    """Said by the tests themselves here."""


async def saved(mesh: RouterMesh, key: str) -> bool:
    """Whether the snapshot on disk holds what etcd holds below a key."""
    entries = (await mesh.etcd.list(key)).entries
    kept = snapshot.read(mesh.folder / "router-snapshot.json", mesh.etcd.prefix)
    return kept is not None and all(
        key in kept.entries and kept.entries[key].value == entry.value for key, entry in entries.items()
    )


async def test_without_etcd_it_serves_what_it_knows_also_after_a_restart(mesh: RouterMesh) -> None:
    model = await mesh.model("1", "2")
    await model.route({"stable": "1", "canary": {"2": 100}})
    await until("the route is in the snapshot", lambda: saved(mesh, f"routes/{model.name}"))

    await mesh.server.kill()
    assert (await model.call()).code == OK
    assert await mesh.stop_router() == 0
    await mesh.start_router()

    async def is_served() -> bool:
        return (await model.call()).trailing.get("turnout-arm") == "canary"

    await until("the canary serves from the snapshot", is_served)
    assert (await mesh.stub.ServerReady(pb.ServerReadyRequest(), timeout=TIMEOUT_S)).ready
    assert await mesh.metric("turnout_config_age_seconds") >= 0

    await mesh.server.start()
    await until("etcd is back", lambda: mesh.etcd.list("routes/"), 10)
    await model.route({"stable": "1"})
    assert (await model.call()).trailing["turnout-arm"] == "stable"


async def test_before_any_configuration_it_is_live_and_not_ready_and_becomes_so_by_itself(mesh: RouterMesh) -> None:
    await mesh.stop_router()
    await mesh.server.kill()
    shutil.rmtree(mesh.folder)
    await mesh.start_router()
    check = health_pb2_grpc.HealthStub(mesh.channel).Check

    health = await check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
    live = await mesh.rest("/v2/health/live", method="GET")
    ready = await mesh.rest("/v2/health/ready", method="GET")
    unknown = await mesh.call(infer_request("m", 1.0))
    model_ready = await mesh.rest("/v2/models/m/ready", method="GET")
    await mesh.server.start()

    async def is_ready() -> bool:
        answer = await check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    assert (health.status, live.status, ready.status) == (health_pb2.HealthCheckResponse.NOT_SERVING, 200, 503)
    assert (unknown.code, model_ready.status) == (UNAVAILABLE, 503)
    assert "no configuration yet" in unknown.message
    await until("it is ready", is_ready)
    assert (await mesh.rest("/v2/health/ready", method="GET")).status == 200


async def test_a_stop_answers_what_is_in_flight_and_refuses_what_is_new(mesh: RouterMesh) -> None:
    model = await mesh.model()
    model.batcher.answer = silence
    waiting = [asyncio.create_task(model.call(float(n))) for n in range(4)]
    by_rest = asyncio.create_task(model.rest(rest_request(9.0)))
    await model.batcher.until(lambda: len(model.batcher.requests) == 5)
    watch = health_pb2_grpc.HealthStub(mesh.channel).Watch(health_pb2.HealthCheckRequest())
    await watch.read()

    mesh.router.signal(signal.SIGTERM)
    async with asyncio.timeout(TIMEOUT_S):
        heard = await watch.read()
    new, new_rest = await model.call(), await model.rest(rest_request(1.0))
    ready = await mesh.rest("/v2/health/ready", method="GET")
    model_ready = await mesh.rest(f"/v2/models/{model.name}/ready", method="GET")
    for request in list(model.batcher.requests):
        model.batcher.reply(request, **(echo(request) or {}))
    answers, rest = await asyncio.gather(*waiting), await by_rest

    assert heard.status == health_pb2.HealthCheckResponse.NOT_SERVING
    assert (new.code, new_rest.status, ready.status, model_ready.status) == (UNAVAILABLE, 503, 503, 503)
    assert "this router is stopping" in new.message
    assert ({answer.code for answer in answers}, rest.status) == ({OK}, 200)
    assert await mesh.router.exit_code() == 0
    assert not (await mesh.etcd.list(f"{keys.SERVICES}router/")).entries
    assert not (await mesh.etcd.list(f"{keys.STATUS}router/")).entries


@pytest.mark.parametrize("front", FRONTS)
async def test_a_stop_does_not_wait_for_ever(tmp_path: Path, front: str) -> None:
    async with router_mesh(tmp_path, front, drain_s=0.5) as mesh:
        model = await mesh.model()
        model.batcher.answer = silence
        waiting = asyncio.create_task(model.call())
        await model.batcher.until(lambda: model.batcher.requests)

        code = await mesh.stop_router()

        assert code == 0
        assert (await waiting).code in {UNAVAILABLE, grpc.StatusCode.CANCELLED}


@pytest.mark.parametrize("front", FRONTS)
async def test_more_requests_than_it_may_hold_are_refused_at_once(tmp_path: Path, front: str) -> None:
    async with router_mesh(tmp_path, front, max_in_flight=4) as mesh:
        model = await mesh.model()
        model.batcher.answer = silence
        waiting = [asyncio.create_task(model.call()) for _ in range(4)]
        await model.batcher.until(lambda: len(model.batcher.requests) == 4)

        answer, rest = await model.call(), await model.rest(rest_request(1.0))
        for request in list(model.batcher.requests):
            model.batcher.reply(request, **(echo(request) or {}))

        assert (answer.code, rest.status) == (UNAVAILABLE, 503)
        assert "4 requests are in flight, the most this router takes" in answer.message
        assert {each.code for each in await asyncio.gather(*waiting)} == {OK}
        assert await mesh.metric("turnout_refused_early_total", reason="in_flight") >= 1


async def test_bodies_that_never_end_are_bounded_together(tmp_path: Path) -> None:
    async with router_mesh(tmp_path, "native", max_message_bytes=1 << 20) as mesh:
        model = await mesh.model()
        host, port = mesh.rest_address.split(":")
        head = f"POST /v2/models/{model.name}/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
        streams = []
        for _ in range(6):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(head.encode() + bytes(900_000))
            await writer.drain()
            streams.append((reader, writer))

        answers = [asyncio.create_task(reader.readline()) for reader, _ in streams]
        async with asyncio.timeout(TIMEOUT_S):
            while sum(task.done() for task in answers) < 2:
                await asyncio.wait([task for task in answers if not task.done()], return_when=asyncio.FIRST_COMPLETED)
        await mesh.rest("/v2/health/live", method="GET")  # whoever is refused is refused before this answer
        done, held = await asyncio.wait(answers, timeout=0)
        for task in held:
            task.cancel()
        for _, writer in streams:
            writer.close()

        assert ({task.result() for task in done}, len(held)) == ({b"HTTP/1.1 503 Service Unavailable\r\n"}, 4)
        assert (await model.rest(rest_request(1.0))).status == 200
