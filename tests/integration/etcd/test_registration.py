import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator

from structlog.testing import CapturingLogger

from services.chassis.etcd import EtcdClient, EtcdProcess, Registration
from tests.integration.etcd.support import events, eventually, observed
from tests.support.relay import Proxy

PROCESS = """
import asyncio, sys, structlog
from services.chassis.etcd import EtcdClient, Registration

async def main():
    client = EtcdClient([sys.argv[1]], sys.argv[2])
    registration = Registration(client, ttl_s=1, keepalive_s=0.3, log=structlog.get_logger())
    registration.put("services/a", b"1")
    await registration.run()

asyncio.run(main())
"""


@contextlib.asynccontextmanager
async def running(client: EtcdClient, ttl_s: int = 5, keepalive_s: float = 0.1) -> AsyncIterator[Registration]:
    log = CapturingLogger()
    registration = Registration(client, ttl_s=ttl_s, keepalive_s=keepalive_s, log=log)
    task = asyncio.create_task(registration.run())
    try:
        yield registration
        assert not task.done()
    finally:
        await registration.close()
        async with asyncio.timeout(5):
            await task


async def values(client: EtcdClient) -> dict[str, bytes]:
    return {key: entry.value for key, entry in (await client.list("")).entries.items()}


async def test_desired_keys_are_written_in_order_under_one_lease_and_go_at_the_end(client: EtcdClient) -> None:
    async with observed(client) as it, running(client) as registration:
        registration.put("services/b", b"1")
        registration.put("services/a", b"1")
        registration.put("services/a", b"1")
        assert await registration.flush(3)
        listing = await client.list("")
        await eventually(lambda: it.mirror.revision == listing.revision)

        assert {entry.lease for entry in listing.entries.values()} == {registration.lease}
        assert it.changes == [("services/b", b"1"), ("services/a", b"1")]
    assert await values(client) == {}


async def test_a_removed_key_is_gone_unless_someone_else_took_it(client: EtcdClient) -> None:
    async with running(client) as registration:
        registration.put("endpoints/mine", b"1")
        registration.put("endpoints/taken", b"1")
        assert await registration.flush(3)
        await client.put("endpoints/taken", b"theirs", lease=await client.grant(5))
        registration.remove("endpoints/mine")
        registration.remove("endpoints/taken")
        registration.remove("endpoints/never-there")
        assert await registration.flush(3)

        assert await values(client) == {"endpoints/taken": b"theirs"}
    assert await values(client) == {"endpoints/taken": b"theirs"}


async def test_the_lease_outlives_its_ttl_while_the_process_lives(client: EtcdClient) -> None:
    async with running(client, ttl_s=1, keepalive_s=0.3) as registration:
        registration.put("services/a", b"1")
        assert await registration.flush(3)
        lease = registration.lease
        await asyncio.sleep(2.2)

        assert registration.lease == lease
        assert await values(client) == {"services/a": b"1"}


async def test_a_lost_lease_is_granted_anew_and_all_keys_written_again(client: EtcdClient) -> None:
    async with observed(client) as it, running(client) as registration:
        registration.put("services/a", b"1")
        registration.put("endpoints/a", b"1")
        assert await registration.flush(3)
        lost = registration.lease
        await client.revoke(lost)
        await eventually(lambda: len(it.changes) >= 6 and len(it.values) == 2)

        assert registration.lease not in (0, lost)
        assert await registration.flush(3)


async def test_a_write_under_a_lost_lease_heals_at_once(client: EtcdClient) -> None:
    async with running(client, keepalive_s=60) as registration:
        registration.put("services/a", b"1")
        assert await registration.flush(3)
        await client.revoke(registration.lease)
        registration.put("services/b", b"1")
        assert await registration.flush(3)

        assert await values(client) == {"services/a": b"1", "services/b": b"1"}


async def test_what_was_put_during_an_outage_is_written_after_it(
    client: EtcdClient, far_client: EtcdClient, proxy: Proxy
) -> None:
    await proxy.cut()
    async with running(far_client) as registration:
        registration.put("services/a", b"1")
        assert not await registration.flush(0.3)
        await proxy.open()
        assert await registration.flush(5)
        await proxy.cut()
        registration.put("services/a", b"2")
        registration.put("services/b", b"1")
        registration.remove("services/b")
        assert not await registration.flush(0.3)
        await proxy.open()
        assert await registration.flush(5)

        assert await values(client) == {"services/a": b"2"}


async def test_a_key_that_etcd_refuses_does_not_hold_up_the_others(client: EtcdClient) -> None:
    async with observed(client) as it, running(client) as registration:
        registration.put("status/huge", bytes(4 << 20))
        registration.put("status/small", b"1")
        await eventually(lambda: it.values == {"status/small": b"1"})

        assert not await registration.flush(0.1)
        registration.put("status/huge", b"now small")
        assert await registration.flush(5)


async def test_closing_while_etcd_is_away_ends_in_time_and_says_so(far_client: EtcdClient, proxy: Proxy) -> None:
    log = CapturingLogger()
    registration = Registration(far_client, log=log)
    task = asyncio.create_task(registration.run())
    registration.put("services/a", b"1")
    assert await registration.flush(3)
    proxy.stall()
    async with asyncio.timeout(3):
        await registration.close(timeout_s=0.3)
        await task

    assert events(log) == ["lease_granted", "lease_not_revoked"]


async def test_a_process_that_was_paused_for_twice_its_ttl_comes_back(client: EtcdClient, etcd: EtcdProcess) -> None:
    async with observed(client) as it:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", PROCESS, etcd.endpoint, client.prefix), stderr=asyncio.subprocess.DEVNULL
        )
        try:
            await eventually(lambda: it.values == {"services/a": b"1"}, timeout_s=15)
            process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(2)
            await eventually(lambda: it.values == {})
            process.send_signal(signal.SIGCONT)
            await eventually(lambda: it.values == {"services/a": b"1"})
        finally:
            process.kill()
            await process.wait()
