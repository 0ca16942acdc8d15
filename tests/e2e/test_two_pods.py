"""Two pods under load: what one loses, the other answers; what stops in good order fails nobody."""

import os
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.mesh import Mesh, until
from tests.support.mesh_probes import QUICK, metric, serve, worker
from tests.support.traffic import Traffic, mixed

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mesh]:
    only = ("runtime-0", "batcher-0", "runtime-1", "batcher-1", "router")
    async with Mesh(tmp_path_factory.mktemp("two-pods"), only=only, replicas=2, settings=QUICK) as mesh:
        await serve(mesh, "numbers", 1, replicas=2)
        yield mesh


@pytest_asyncio.fixture(loop_scope="module")
async def traffic(mesh: Mesh) -> AsyncIterator[Traffic]:
    async with Traffic(await mesh.listening("router", "grpc"), mixed("numbers")) as traffic:
        await traffic.flowing()
        yield traffic


async def test_a_batcher_that_is_killed_fails_nobody_and_comes_back(mesh: Mesh, traffic: Traffic) -> None:
    await mesh.kill("batcher-0")
    await traffic.clean()
    await mesh.restart("batcher-0")
    await mesh.serving("numbers", "1", replicas=2)
    await traffic.clean()

    await traffic.end()
    traffic.check()


async def test_a_batcher_that_hangs_is_left_and_found_again(mesh: Mesh, traffic: Traffic) -> None:
    mesh.pause("batcher-0")
    await traffic.clean(600)
    mesh.resume("batcher-0")
    await _both_answer(mesh, traffic)

    await traffic.end()
    traffic.check(allowed={"DEADLINE_EXCEEDED", "INTERNAL"}, most=traffic.rate * 5)


async def test_a_worker_that_is_killed_costs_at_most_what_ran_on_it(mesh: Mesh, traffic: Traffic) -> None:
    killed = await worker(mesh, "runtime-0", "numbers")
    os.kill(killed, signal.SIGKILL)
    await worker(mesh, "runtime-0", "numbers", besides=[killed])
    await mesh.serving("numbers", "1", replicas=2)
    await traffic.clean()

    await traffic.end()
    traffic.check(allowed={"INTERNAL"}, most=20)


async def test_a_runtime_that_is_killed_costs_at_most_what_ran_on_it(mesh: Mesh, traffic: Traffic) -> None:
    await mesh.kill("runtime-0")
    await traffic.clean()
    await mesh.restart("runtime-0")
    await mesh.serving("numbers", "1", replicas=2)
    await traffic.clean()

    await traffic.end()
    traffic.check(allowed={"INTERNAL"}, most=20)


@pytest.mark.parametrize("name", ["batcher-0", "runtime-0"])
async def test_what_stops_in_good_order_fails_nobody(mesh: Mesh, traffic: Traffic, name: str) -> None:
    assert await mesh.stop(name) == 0
    await traffic.clean()
    await mesh.restart(name)
    await mesh.serving("numbers", "1", replicas=2)
    await traffic.clean()

    await traffic.end()
    traffic.check()


async def test_a_pod_that_is_replaced_fails_nobody(mesh: Mesh, traffic: Traffic) -> None:
    assert await mesh.stop("batcher-1") == 0
    assert await mesh.stop("runtime-1") == 0
    await traffic.clean()
    await mesh.start("runtime-1", "batcher-1")
    await mesh.serving("numbers", "1", replicas=2)
    await traffic.clean()

    await traffic.end()
    traffic.check()


async def _both_answer(mesh: Mesh, traffic: Traffic) -> None:
    """Return when each batcher answers requests."""
    before = await _answered(mesh)

    async def do_both() -> bool:
        await traffic.flowing(50)
        return all(now > then for now, then in zip(await _answered(mesh), before, strict=True))

    await until("both pods answer", do_both)


async def _answered(mesh: Mesh) -> list[float]:
    """How many requests each batcher has answered."""
    return [await metric(mesh, name, "turnout_batcher_requests_total", code="0") for name in ("batcher-0", "batcher-1")]
