import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from services.chassis.etcd import EtcdClient, EtcdProcess
from services.cli.errors import CliError
from services.cli.route_edit import Edit
from services.cli.routes import change_route
from services.core.registry import ConfigStatus, Inventory
from services.core.route_spec import RouteSpec
from services.fleet.applied import where_applied

KEY = "routes/digits"
LONG = {"stable": "1", "canary": [{"version": "2", "percent": 10, "at": 12.5}], "sticky_by": "user_id"}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[EtcdClient]:
    async with EtcdProcess(tmp_path / "etcd", fsync=False) as etcd:
        made = EtcdClient([etcd.endpoint])
        await made.put("models/digits", b"{}")
        yield made
        await made.close()


async def stored(client: EtcdClient) -> RouteSpec:
    entry = await client.get(KEY)
    assert entry
    return RouteSpec.parse(entry.value)


async def test_a_change_keeps_the_place_of_a_canary(client: EtcdClient) -> None:
    await client.put(KEY, orjson.dumps(LONG))

    _, revision = await change_route(client, "digits", Edit(canary={"2": 50}, author="ana"))

    entry = await client.get(KEY)
    assert entry
    assert entry.mod_revision == revision
    assert orjson.loads(entry.value)["canary"] == [{"version": "2", "percent": 50.0, "at": 12.5}]


async def test_changes_at_the_same_time_are_all_kept(client: EtcdClient) -> None:
    await client.put(KEY, orjson.dumps(LONG))

    await asyncio.gather(*(change_route(client, "digits", Edit(canary={version: 1})) for version in "345"))

    assert {each.version for each in (await stored(client)).canary} == {"2", "3", "4", "5"}


async def test_a_version_that_no_pod_has_is_refused(client: EtcdClient) -> None:
    inventory = Inventory.model_validate({"models": {"digits": {"1": {"state": "READY"}}}})
    await client.put("status/runtime/r/inventory", inventory.dump())

    with pytest.raises(CliError, match="digits has no version 7; its versions are 1"):
        await change_route(client, "digits", Edit(stable="7"))
    with pytest.raises(CliError, match="no model nobody"):
        await change_route(client, "nobody", Edit(stable="1"))


async def test_a_value_that_is_no_route_is_not_written_over(client: EtcdClient) -> None:
    await client.put(KEY, b"{")

    with pytest.raises(CliError, match="no route"):
        await change_route(client, "digits", Edit(stable="1"))
    entry = await client.get(KEY)
    assert entry
    assert entry.value == b"{"


async def test_routers_count_when_they_have_seen_the_change(client: EtcdClient) -> None:
    for name, status in {
        "old": ConfigStatus(revision=4, refused={KEY: "an earlier fault"}, refused_at={KEY: 4}),
        "good": ConfigStatus(revision=9, accepted={KEY: 9}),
        "bad": ConfigStatus(revision=9, accepted={KEY: 3}, refused={KEY: "no version 7"}, refused_at={KEY: 9}),
    }.items():
        await client.put(f"status/router/{name}/routes", status.dump())

    assert await where_applied(client, KEY, 9) == (3, 1, ("no version 7",))
