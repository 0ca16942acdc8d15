"""etcd is away for longer than leases last: nobody who predicts notices, and what starts meanwhile serves too."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.featured import either, serve_featured
from tests.support.mesh import Mesh, until
from tests.support.mesh_probes import QUICK, serve
from tests.support.traffic import Traffic, mixed

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

VERSIONS = frozenset({"1", "2"})
AWAY_S = 12.5  # leases last 10 s
BACK_S = 6.0  # every client has come back, lapsed leases were noticed, keys are written anew


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mesh]:
    only = ("feature-proxy", "runtime-0", "batcher-0", "router")
    async with Mesh(tmp_path_factory.mktemp("etcd"), only=only, settings=QUICK) as mesh:
        await serve(mesh, "numbers", 1, 2, route={"stable": "1", "canary": {"2": 20}})
        await serve_featured(mesh)
        yield mesh


@pytest_asyncio.fixture(loop_scope="module")
async def traffic(mesh: Mesh) -> AsyncIterator[Traffic]:
    async with Traffic(await mesh.listening("router", "grpc"), either(mixed("numbers", VERSIONS))) as traffic:
        await traffic.clean()
        yield traffic


async def test_an_etcd_that_hangs_fails_nobody(mesh: Mesh, traffic: Traffic) -> None:
    async with mesh.without_etcd():
        await asyncio.sleep(AWAY_S)
    await asyncio.sleep(BACK_S)
    await _follows(mesh, traffic)

    traffic.check()


async def test_an_etcd_that_is_killed_and_comes_back_fails_nobody(mesh: Mesh, traffic: Traffic) -> None:
    await mesh.etcd.kill()
    await asyncio.sleep(AWAY_S)
    await mesh.etcd.start()
    await asyncio.sleep(BACK_S)
    await _follows(mesh, traffic)

    traffic.check()


async def test_what_restarts_while_etcd_is_away_serves_from_what_it_knew(mesh: Mesh, traffic: Traffic) -> None:
    await traffic.end()
    traffic.check()
    mesh.etcd.pause()
    for name in ("router", "batcher-0", "feature-proxy", "runtime-0"):
        await mesh.kill(name)
        await mesh.start(name, ready=False)
    async with Traffic(await _address(mesh), either(mixed("numbers", VERSIONS))) as after:
        await after.clean()
        served_s = after.now_s()
        mesh.etcd.resume()
        for name in ("router", "batcher-0", "feature-proxy", "runtime-0"):
            await mesh.ready(name)
        await asyncio.sleep(BACK_S)

    after.check(allowed={"UNAVAILABLE", "NOT_FOUND"})
    assert [outcome for outcome in after.failed() if outcome.sent_s > served_s] == []


async def _follows(mesh: Mesh, traffic: Traffic) -> None:
    """A change takes effect again: without a canary, version 2 answers only who names it."""
    await mesh.put("routes/numbers", {"stable": "2"})

    async def moved() -> bool:
        await traffic.flowing(50)
        return all(outcome.version == "2" for outcome in traffic.answered()[-50:] if outcome.key and outcome.version)

    await until("the new route is in effect", moved)
    await mesh.put("routes/numbers", {"stable": "1", "canary": {"2": 20}})
    await traffic.end()


async def _address(mesh: Mesh) -> str:
    async def said() -> str:
        lines = [line for line in mesh.log_lines("router") if line.get("name") == "grpc"]
        return str(lines[0]["address"]) if lines else ""

    return await until("the router listens", said)
