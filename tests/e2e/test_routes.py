"""Routes edited while a whole mesh serves: who gets which version, and what becomes of a value that is wrong."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from inference import grpc_service_pb2 as pb
from services.core.split import point_of, points_of_percent
from tests.support import numbered
from tests.support.channels import own_channel
from tests.support.mesh import Mesh, until
from tests.support.mesh_probes import QUICK, metric, router_status, serve
from tests.support.proof import Starvation
from tests.support.traffic import MODEL_INFER, Traffic, mixed

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

BOTH = frozenset({"1", "2"})
KEYS = [f"user-{number}" for number in range(3000)]
AT_ONCE = 64
EFFECT_S = 1.0  # from the write to the first request that goes by it

BAD = {
    "not JSON": (b'{"stable": ', "not JSON"),
    "over 100": (b'{"stable": "1", "canary": {"2": 130}}', "130"),
    "unknown version": (b'{"stable": "9"}', "no pod knows version 9"),
    "unknown field": (b'{"stable": "1", "cannary": {"2": 10}}', "cannary"),
    "negative": (b'{"stable": "1", "canary": {"2": -1}}', "-1"),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mesh]:
    only = ("runtime-0", "batcher-0", "router")
    async with Mesh(tmp_path_factory.mktemp("routes"), only=only, settings=QUICK) as mesh:
        mesh.add("router-2", "router")
        await mesh.start("router-2")
        await serve(mesh, "numbers", 1, 2, route={"stable": "1"})
        yield mesh


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_route_never_takes_effect_and_a_good_one_does_within_a_second(mesh: Mesh, name: str) -> None:
    await _route(mesh, {"stable": "1"})
    value, reason = BAD[name]
    async with Traffic(await mesh.listening("router", "grpc"), mixed("numbers", BOTH)) as traffic:
        await traffic.flowing(50)
        await mesh.put("routes/numbers", value)
        await until("the value is refused", lambda: _refused(mesh, reason))
        counted = await metric(mesh, "router", "turnout_config_refused")
        refused_s = traffic.now_s()
        await traffic.flowing(100)
        took_s = await _route(mesh, {"stable": "2"})
        await until("nothing is refused", lambda: _is_clean(mesh))

    traffic.check()
    kept = [each for each in traffic.outcomes if each.key and each.sent_s < refused_s]
    assert {outcome.version for outcome in kept} == {"1"}
    assert counted == 1
    assert took_s < EFFECT_S


async def test_a_key_has_one_version_on_every_router_and_a_growing_canary_keeps_its_users(mesh: Mesh) -> None:
    addresses = [await mesh.listening(name, "grpc") for name in ("router", "router-2")]
    await _route(mesh, {"stable": "1", "canary": [{"version": "2", "percent": 10, "at": 0}]})
    ten, again = [await _versions(address) for address in addresses]
    await _route(mesh, {"stable": "1", "canary": [{"version": "2", "percent": 20, "at": 0}]})
    twenty = await _versions(addresses[0])

    assert ten == again == _expected(10)
    assert twenty == _expected(20)
    assert all(twenty[key] == "2" for key, version in ten.items() if version == "2")
    assert 200 < sum(version == "2" for version in ten.values()) < 400


@pytest.mark.parametrize(("percent", "all_get"), [(0, "1"), (100, "2")])
async def test_nothing_is_nobody_and_a_hundred_is_everybody(mesh: Mesh, percent: float, all_get: str) -> None:
    await _route(mesh, {"stable": "1", "canary": {"2": percent}})

    assert set((await _versions(await mesh.listening("router", "grpc"))).values()) == {all_get}


async def test_a_key_gets_the_same_version_by_rest(mesh: Mesh) -> None:
    await _route(mesh, {"stable": "1", "canary": {"2": 50}})
    url = f"http://{await mesh.listening('router', 'rest')}/v2/models/numbers/infer"
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [7, 0, 0, 0]}]}
    seen = {}
    async with aiohttp.ClientSession() as session:
        for key in KEYS[:100]:
            async with session.post(url, json=body, headers={"x-routing-key": key}) as answer:
                said = await answer.json()
                assert said["outputs"][0]["data"] == [7, float(said["model_version"])]
                seen[key] = said["model_version"]

    expected = _expected(50)
    assert seen == {key: expected[key] for key in seen}


def _expected(percent: float) -> dict[str, str]:
    """What the rule of the split gives each key, for a canary 2 from 0 on."""
    most = points_of_percent(percent)
    return {key: "2" if point_of("numbers", key.encode()) < most else "1" for key in KEYS}


async def _versions(address: str, keys: Sequence[str] = KEYS) -> dict[str, str]:
    """Key -> the version that answered it, each answer checked."""
    room = asyncio.Semaphore(AT_ONCE)
    async with own_channel(address) as channel:
        infer = channel.unary_unary(MODEL_INFER, None, None)

        async def ask(number: int, key: str) -> str:
            payload = numbered.request("numbers", [float(number)]).SerializeToString()
            async with room:
                answer = await infer(payload, timeout=20, metadata=[("x-routing-key", key)])
            response = pb.ModelInferResponse.FromString(answer)
            assert numbered.fault(response, [float(number)], BOTH) == ""
            return response.model_version

        found = await asyncio.gather(*(ask(number, key) for number, key in enumerate(keys)))
    return dict(zip(keys, found, strict=True))


async def _route(mesh: Mesh, route: Mapping[str, Any]) -> float:
    """Write a route; seconds until the last router says that it is in effect, but for those without a processor."""
    pids = [mesh.etcd.pid, *(mesh.child(name).pid for name in mesh.names("router"))]
    starved, began = Starvation(*pids), time.monotonic()
    revision = await mesh.put("routes/numbers", route)

    async def in_effect() -> bool:
        statuses = await router_status(mesh)
        return len(statuses) == 2 and all(status.accepted.get("routes/numbers") == revision for status in statuses)

    await until("the route is in effect", in_effect)
    return time.monotonic() - began - starved.seconds


async def _refused(mesh: Mesh, reason: str) -> bool:
    return all(reason in status.refused.get("routes/numbers", "") for status in await router_status(mesh))


async def _is_clean(mesh: Mesh) -> bool:
    return not any(status.refused for status in await router_status(mesh))
