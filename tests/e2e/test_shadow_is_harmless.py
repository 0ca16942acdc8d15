"""Whatever becomes of the shadow comparator, callers notice nothing."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.mesh import Mesh, until
from tests.support.mesh_probes import QUICK, metric, serve
from tests.support.traffic import Traffic, mixed

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

NOISE_S = 0.15  # of a p99 on a busy machine; a wait for the comparator would be seconds


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mesh]:
    only = ("shadow", "runtime-0", "batcher-0", "router")
    async with Mesh(tmp_path_factory.mktemp("shadow"), only=only, settings=QUICK) as mesh:
        await serve(mesh, "numbers", 1, 2, route={"stable": "1", "shadow": {"2": 100}})
        yield mesh


@pytest_asyncio.fixture(loop_scope="module")
async def traffic(mesh: Mesh) -> AsyncIterator[Traffic]:
    """Requests that are mirrored, once the comparator has got some."""
    before = await metric(mesh, "router", "turnout_mirrored_total")
    async with Traffic(await mesh.listening("router", "grpc"), mixed("numbers")) as traffic:

        async def is_mirrored() -> bool:
            return await metric(mesh, "router", "turnout_mirrored_total") > before + 50

        await until("requests are mirrored", is_mirrored)
        yield traffic


async def check_nobody_noticed(traffic: Traffic, fault_s: float, over_s: float) -> None:
    await traffic.end()
    traffic.check()
    assert traffic.quantile_s(0.99, fault_s, over_s) < 2 * traffic.quantile_s(0.99, 0, fault_s) + NOISE_S


async def test_a_killed_comparator_is_not_noticed_and_gets_copies_again(mesh: Mesh, traffic: Traffic) -> None:
    await traffic.flowing(300)
    fault_s = traffic.now_s()
    await mesh.kill("shadow")
    await traffic.flowing(400)
    await mesh.restart("shadow")
    before = await metric(mesh, "router", "turnout_mirrored_total")

    async def is_mirrored() -> bool:
        return await metric(mesh, "router", "turnout_mirrored_total") > before

    await until("copies are sent again", is_mirrored)
    await check_nobody_noticed(traffic, fault_s, traffic.now_s())


async def test_a_hung_comparator_is_not_noticed(mesh: Mesh, traffic: Traffic) -> None:
    await traffic.flowing(300)
    fault_s = traffic.now_s()
    mesh.pause("shadow")
    await traffic.flowing(1000)
    over_s = traffic.now_s()
    mesh.resume("shadow")

    await check_nobody_noticed(traffic, fault_s, over_s)


async def test_a_slow_comparator_is_not_noticed(mesh: Mesh, traffic: Traffic) -> None:
    """It gets a tenth of its time, in short turns: its link stays open and is read slowly."""
    await traffic.flowing(300)
    fault_s = traffic.now_s()
    for _ in range(15):
        mesh.pause("shadow")
        await traffic.flowing(36)
        mesh.resume("shadow")
        await traffic.flowing(4)

    await check_nobody_noticed(traffic, fault_s, traffic.now_s())


async def test_a_route_with_an_unknown_candidate_is_not_noticed(mesh: Mesh) -> None:
    """Routers refuse it and mirror as before."""
    await mesh.put("routes/numbers", {"stable": "1", "shadow": {"9": 100}})
    async with Traffic(await mesh.listening("router", "grpc"), mixed("numbers")) as traffic:
        await traffic.flowing(400)

    traffic.check()
