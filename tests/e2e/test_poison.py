"""A request that ends the process which runs it: its neighbours are answered, and it is not run again and again."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support import numbered
from tests.support.mesh import Mesh, until
from tests.support.mesh_probes import QUICK, introduce, metric, workers
from tests.support.traffic import Ask, Outcome, Traffic

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

WORKERS = 3  # the first and the second die of it, the third answers the neighbours
POISON_EVERY, POISONED = 10_000, 150  # of the calls' numbers
# A delay, so that the poison has company.
SPEC = {"trusted": True, "instances": {"count": WORKERS}, "batching": {"max_queue_delay_microseconds": 20_000}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mesh]:
    only = ("runtime-0", "batcher-0", "router")
    async with Mesh(tmp_path_factory.mktemp("poison"), only=only, settings=QUICK) as mesh:
        numbered.write_moody(mesh.repository, "moody", 1)
        await introduce(mesh, "moody", 1, spec=SPEC)
        await until("all workers are there", lambda: _all_there(mesh))
        yield mesh


def ask(number: int) -> Ask:
    poisonous = number % POISON_EVERY == POISONED
    values = [numbered.DEADLY] if poisonous else numbered.numbers(number, 1 + number % 3)
    return Ask(
        numbered.request("moody", values),
        lambda response: numbered.fault(response, values, frozenset({"1"})),
        key="poison" if poisonous else "",
    )


async def test_poison_costs_two_workers_no_neighbour_and_is_refused_for_a_while(mesh: Mesh) -> None:
    before = set(workers(mesh, "runtime-0", "moody"))
    async with Traffic(await mesh.listening("router", "grpc"), ask) as traffic:
        poisoned = await _answer_to_poison(traffic)
        await traffic.clean()
        await until("the dead were replaced", lambda: _all_there(mesh))
        await traffic.clean()
    after = set(workers(mesh, "runtime-0", "moody"))
    async with Traffic(await mesh.listening("router", "grpc"), ask) as again:
        refused = await _answer_to_poison(again)
        await again.clean()

    assert (poisoned.code, poisoned.message) == ("INTERNAL", "the process of moody/1 died with this request, twice")
    assert [outcome for outcome in traffic.failed() if not outcome.key] == [], traffic.summary()
    assert len(before & after) == WORKERS - 2
    assert (refused.code, "refused for a minute" in refused.message) == ("INTERNAL", True)
    assert set(workers(mesh, "runtime-0", "moody")) == after
    assert await metric(mesh, "runtime-0", "turnout_runtime_failures_total", kind="exit") == 2
    for each in (traffic, again):
        each.check(allowed={"INTERNAL"}, most=1)


async def _answer_to_poison(traffic: Traffic) -> Outcome:
    async with asyncio.timeout(20):
        while not (found := [outcome for outcome in traffic.outcomes if outcome.key == "poison"]):
            await traffic.flowing(1)
    return found[0]


async def _all_there(mesh: Mesh) -> bool:
    ready = await metric(mesh, "runtime-0", "turnout_runtime_instances", model="moody", state="READY")
    return ready == WORKERS
