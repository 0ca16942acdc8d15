import asyncio
import resource
import stat
import time
from pathlib import Path

import pytest

from services.chassis.etcd import EtcdClient, EtcdProcess, MirrorTiming
from tests.integration.etcd.support import compact, events, eventually, observed
from tests.support.relay import Proxy


async def test_what_is_there_is_delivered_as_one_list_and_changes_follow(client: EtcdClient) -> None:
    await client.put("models/a", b"1")
    await client.put("routes/a", b"1")
    async with observed(client) as it:
        assert it.lists == [it.lists[0]]
        assert it.changes == [("models/a", b"1"), ("routes/a", b"1")]
        assert (it.mirror.source, it.mirror.connected) == ("etcd", True)

        revision = await client.put("routes/a", b"2")
        took_s = await eventually(lambda: it.mirror.revision == revision)
        await client.delete("models/a")
        await eventually(lambda: it.values == {"routes/a": b"2"})

        assert took_s < 1
        assert it.changes[2:] == [("routes/a", b"2"), ("models/a", None)]
        assert it.mirror.age_s() < 1


async def test_only_wanted_prefixes_are_delivered(client: EtcdClient) -> None:
    await client.put("status/x", b"1")
    async with observed(client, prefixes=["models/", "routes/"]) as it:
        assert it.lists == []
        await client.put("status/x", b"2")
        await client.put("routes/a", b"1")
        await eventually(lambda: len(it.lists) > 0)

        assert it.changes == [("routes/a", b"1")]


async def test_every_value_of_a_burst_arrives_in_order_and_once(client: EtcdClient) -> None:
    async with observed(client) as it:
        for number in range(100):
            await client.put("routes/a", b"%d" % number)
        await eventually(lambda: it.values == {"routes/a": b"99"})

        assert it.changes == [("routes/a", b"%d" % number) for number in range(100)]


async def test_a_quiet_etcd_is_known_to_be_alive(client: EtcdClient) -> None:
    async with observed(client) as it:
        ages = []
        for _ in range(30):  # longer than the silence that counts as dead
            await asyncio.sleep(0.05)
            ages.append(it.mirror.age_s())

        assert max(ages) < 1
        assert it.mirror.connected
        assert events(it.log) == []


async def test_an_idle_mirror_costs_next_to_nothing(client: EtcdClient) -> None:
    async with observed(client, timing=MirrorTiming()) as it:
        await eventually(lambda: it.mirror.connected)
        before = resource.getrusage(resource.RUSAGE_SELF)
        await asyncio.sleep(1)
        after = resource.getrusage(resource.RUSAGE_SELF)

        assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.1


async def test_after_a_cut_the_watch_goes_on_without_gap_or_repetition(
    client: EtcdClient, far_client: EtcdClient, proxy: Proxy
) -> None:
    await client.put("routes/a", b"1")
    async with observed(far_client) as it:
        await proxy.cut()
        await eventually(lambda: not it.mirror.connected)
        await client.put("routes/a", b"2")
        await client.put("routes/b", b"1")
        await client.delete("routes/b")
        await proxy.open()
        await eventually(lambda: it.mirror.connected and len(it.changes) == 4)

        assert it.changes == [("routes/a", b"1"), ("routes/a", b"2"), ("routes/b", b"1"), ("routes/b", None)]
        assert events(it.log) == ["etcd_lost", "etcd_found_again"]


async def test_what_was_compacted_meanwhile_is_found_by_listing_deletes_included(
    client: EtcdClient, far_client: EtcdClient, proxy: Proxy, etcd: EtcdProcess
) -> None:
    await client.put("routes/gone", b"1")
    await client.put("routes/kept", b"1")
    await client.put("routes/changed", b"1")
    async with observed(far_client) as it:
        await proxy.cut()
        await eventually(lambda: not it.mirror.connected)
        await client.delete("routes/gone")
        await client.put("routes/changed", b"2")
        await compact(etcd, await client.put("routes/new", b"1"))
        await proxy.open()
        await eventually(lambda: len(it.lists) == 2)

        assert it.changes[3:] == [("routes/gone", None), ("routes/changed", b"2"), ("routes/new", b"1")]
        assert "etcd_history_lost" in events(it.log)
        await client.put("routes/kept", b"2")
        await eventually(lambda: it.values["routes/kept"] == b"2")


async def test_a_half_open_connection_is_noticed_and_replaced(
    client: EtcdClient, far_client: EtcdClient, proxy: Proxy
) -> None:
    async with observed(far_client) as it:
        proxy.stall()
        took_s = await eventually(lambda: not it.mirror.connected)
        await client.put("routes/a", b"1")
        await proxy.cut()  # what was stalled is lost for good
        proxy.flow()
        await proxy.open()
        await eventually(lambda: it.values == {"routes/a": b"1"})

        assert took_s < 3
        assert it.mirror.connected


async def test_a_hanging_endpoint_is_left_for_another(client: EtcdClient, proxy: Proxy, etcd: EtcdProcess) -> None:
    both = EtcdClient([proxy.endpoint, etcd.endpoint], client.prefix, timeout_s=1)
    async with observed(both) as it:
        proxy.stall()
        await client.put("routes/a", b"1")
        took_s = await eventually(lambda: it.values == {"routes/a": b"1"})

        assert took_s < 4
    await both.close()


async def test_without_etcd_the_snapshot_serves_and_then_the_difference_comes(
    client: EtcdClient, far_client: EtcdClient, proxy: Proxy, tmp_path: Path
) -> None:
    path = tmp_path / "snapshot.json"
    for key in ("routes/gone", "routes/kept", "routes/changed"):
        await client.put(key, b"1")
    async with observed(client, snapshot=path):
        pass
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

    await proxy.cut()
    await client.delete("routes/gone")
    await client.put("routes/changed", b"2")
    async with observed(far_client, snapshot=path) as it:
        assert {"routes/gone", "routes/kept", "routes/changed"} == set(it.values)
        assert (it.mirror.source, it.mirror.connected, len(it.lists)) == ("snapshot", False, 1)
        assert it.mirror.age_s() < 30

        await proxy.open()
        await eventually(lambda: it.mirror.source == "etcd")
        assert it.changes[3:] == [("routes/gone", None), ("routes/changed", b"2")]
        assert events(it.log) == ["etcd_lost", "snapshot_used", "etcd_found_again"]


async def test_a_change_is_on_disk_soon_also_without_a_graceful_end(client: EtcdClient, tmp_path: Path) -> None:
    path = tmp_path / "snapshot.json"
    async with observed(client, snapshot=path):
        await client.put("routes/a", b"written")

        await eventually(lambda: path.exists() and "written" in path.read_text(), timeout_s=2)


async def test_a_corrupt_snapshot_is_ignored_and_said(far_client: EtcdClient, proxy: Proxy, tmp_path: Path) -> None:
    path = tmp_path / "snapshot.json"
    path.write_text('{"sha256": "00", "snapshot"')
    await proxy.cut()
    async with observed(far_client, snapshot=path, loaded=False) as it:
        await eventually(lambda: "snapshot_ignored" in events(it.log))
        assert (it.mirror.source, it.mirror.loaded.is_set(), it.lists) == ("none", False, [])
        assert it.mirror.age_s() == float("inf")

        await proxy.open()
        await eventually(it.mirror.loaded.is_set)
        assert it.mirror.source == "etcd"


async def test_a_disk_that_cannot_be_written_is_said_and_nothing_else(client: EtcdClient, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    async with observed(client, snapshot=tmp_path / "file" / "snapshot.json") as it:
        await eventually(lambda: "snapshot_not_written" in events(it.log))
        await client.put("routes/a", b"1")

        await eventually(lambda: it.values == {"routes/a": b"1"})


@pytest.fixture
def own_etcd(tmp_path: Path) -> EtcdProcess:
    return EtcdProcess(tmp_path / "etcd", fsync=False)


async def test_a_restarted_etcd_is_found_again(own_etcd: EtcdProcess) -> None:
    async with own_etcd as etcd:
        client = EtcdClient([etcd.endpoint], timeout_s=1)
        await client.put("routes/a", b"1")
        async with observed(client) as it:
            await etcd.kill()
            await eventually(lambda: not it.mirror.connected)
            assert it.values == {"routes/a": b"1"}
            await etcd.start()
            await eventually(lambda: it.mirror.connected, timeout_s=5)
            await client.put("routes/a", b"2")
            await eventually(lambda: it.values == {"routes/a": b"2"})

            assert it.changes == [("routes/a", b"1"), ("routes/a", b"2")]
        await client.close()


async def test_a_paused_etcd_is_noticed_and_found_again(own_etcd: EtcdProcess) -> None:
    async with own_etcd as etcd:
        client = EtcdClient([etcd.endpoint], timeout_s=1)
        async with observed(client) as it:
            began = time.monotonic()
            etcd.pause()
            await eventually(lambda: not it.mirror.connected)
            assert time.monotonic() - began < 3
            etcd.resume()
            await eventually(lambda: it.mirror.connected)
            await client.put("routes/a", b"1")

            await eventually(lambda: it.values == {"routes/a": b"1"})
        await client.close()


async def test_an_etcd_with_another_history_is_listed_anew(own_etcd: EtcdProcess, tmp_path: Path) -> None:
    await own_etcd.start()
    port = int(own_etcd.endpoint.rpartition(":")[2])
    client = EtcdClient([own_etcd.endpoint], timeout_s=1)
    for number in range(5):
        await client.put("routes/old", b"%d" % number)
    async with observed(client) as it:
        await own_etcd.stop()
        async with EtcdProcess(tmp_path / "empty", port=port, fsync=False):
            await eventually(lambda: it.values == {})
            await client.put("routes/new", b"1")
            await eventually(lambda: it.values == {"routes/new": b"1"})

            assert it.changes == [("routes/old", b"4"), ("routes/old", None), ("routes/new", b"1")]
    await client.close()
