"""Services start alone and in any order, wait for the others without falling over, and find them."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.featured import ask, prepare_featured
from tests.support.mesh import Mesh, until
from tests.support.mesh_probes import QUICK, errors, model_ready
from tests.support.traffic import Traffic

pytestmark = pytest.mark.timeout(180)

ALL = ("feature-proxy", "shadow", "runtime-0", "batcher-0", "router")
ORDERS = [ALL[::-1], *(random.Random(seed).sample(ALL, len(ALL)) for seed in (1, 2))]


@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
async def test_services_find_each_other_in_whatever_order_they_start(order: Sequence[str], tmp_path: Path) -> None:
    async with Mesh(tmp_path, only=(), settings=QUICK) as mesh:
        await prepare_featured(mesh)
        for name in order:
            await mesh.start(name, ready=False)
            await _stands(mesh, name)
        await _all_is_well(mesh)


async def test_services_wait_for_an_etcd_that_comes_last(tmp_path: Path) -> None:
    async with Mesh(tmp_path, only=(), settings=QUICK) as mesh:
        await prepare_featured(mesh)
        await mesh.etcd.kill()
        await mesh.start(*ALL, ready=False)
        for name in ALL:
            await _says(mesh, name, "registration_failed")
        await mesh.etcd.start()
        await _all_is_well(mesh)


async def _stands(mesh: Mesh, name: str) -> None:
    """Return once it has started, whether or not it lacks others."""

    async def has_started() -> bool:
        assert mesh.child(name).pid, mesh.log(name)
        record = await mesh.record(name)
        return record is not None and record.state in {"ready", "not_ready"}

    await until(f"{name} has started", has_started)


async def _says(mesh: Mesh, name: str, event: str) -> None:
    async def has_said() -> bool:
        assert mesh.child(name).pid, mesh.log(name)
        return any(line.get("event") == event for line in mesh.log_lines(name))

    await until(f"{name} says {event}", has_said)


async def _all_is_well(mesh: Mesh) -> None:
    for name in ALL:
        await mesh.ready(name)
    await model_ready(mesh, "featured")
    async with Traffic(await mesh.listening("router", "grpc"), ask) as traffic:
        await traffic.clean(100)

    traffic.check()
    assert errors(mesh, *ALL) == []
