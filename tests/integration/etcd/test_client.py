import time
from collections.abc import Awaitable, Callable

import pytest

from services.chassis.etcd import EtcdClient, EtcdProcess, EtcdUnavailableError, LeaseLostError
from tests.integration.etcd.support import compact
from tests.support.relay import Proxy


async def test_what_was_put_is_got_until_it_is_deleted(client: EtcdClient) -> None:
    revision = await client.put("models/digits", b"1")
    entry = await client.get("models/digits")

    assert entry is not None
    assert (entry.key, entry.value, entry.mod_revision, entry.lease) == ("models/digits", b"1", revision, 0)
    assert await client.delete("models/digits")
    assert not await client.delete("models/digits")
    assert await client.get("models/digits") is None


async def test_a_listing_has_the_keys_below_a_prefix_at_one_revision(client: EtcdClient) -> None:
    for key in ("models/a", "models/b", "models0", "model"):
        revision = await client.put(key, key.encode())
    listing = await client.list("models/")

    assert {k: e.value for k, e in listing.entries.items()} == {"models/a": b"models/a", "models/b": b"models/b"}
    assert listing.revision >= revision
    assert len((await client.list("")).entries) == 4


async def test_compare_and_swap_refuses_what_changed_meanwhile(client: EtcdClient) -> None:
    assert await client.put_if("routes/a", b"1", mod_revision=0)
    assert not await client.put_if("routes/a", b"2", mod_revision=0)

    entry = await client.get("routes/a")
    assert entry is not None
    assert await client.put_if("routes/a", b"2", mod_revision=entry.mod_revision)
    assert not await client.put_if("routes/a", b"3", mod_revision=entry.mod_revision)
    after = await client.get("routes/a")
    assert after is not None
    assert after.value == b"2"


async def test_only_what_hangs_on_the_own_lease_is_deleted(client: EtcdClient) -> None:
    mine, other = await client.grant(5), await client.grant(5)
    await client.put("endpoints/a", b"1", lease=other)

    assert not await client.delete_if_lease("endpoints/a", mine)
    assert await client.get("endpoints/a") is not None
    assert await client.delete_if_lease("endpoints/a", other)
    assert await client.get("endpoints/a") is None


async def test_a_revoked_lease_takes_its_keys_along_and_is_lost(client: EtcdClient) -> None:
    lease = await client.grant(5)
    await client.put("services/a", b"1", lease=lease)
    await client.keep_alive(lease)
    await client.revoke(lease)

    assert await client.get("services/a") is None
    with pytest.raises(LeaseLostError):
        await client.keep_alive(lease)
    with pytest.raises(LeaseLostError):
        await client.put("services/a", b"1", lease=lease)
    with pytest.raises(LeaseLostError):
        await client.revoke(lease)


async def test_earlier_values_are_read_back_to_what_was_compacted(client: EtcdClient, etcd: EtcdProcess) -> None:
    revisions = [await client.put("routes/a", b"%d" % number) for number in range(5)]

    assert [entry.value async for entry in client.earlier("routes/a", revisions[4])] == [b"3", b"2", b"1", b"0"]
    await compact(etcd, revisions[2])
    assert [entry.value async for entry in client.earlier("routes/a", revisions[4])] == [b"3", b"2"]


async def test_a_key_without_a_past_has_no_earlier_values(client: EtcdClient) -> None:
    revision = await client.put("routes/a", b"1")

    assert [entry async for entry in client.earlier("routes/a", revision)] == []


async def test_an_endpoint_that_is_down_is_passed_over_for_reads_and_writes(etcd: EtcdProcess, prefix: str) -> None:
    for first_call in ("get", "put"):
        client = EtcdClient(["127.0.0.1:1", etcd.endpoint], prefix)
        if first_call == "get":
            assert await client.get("a") is None
        assert await client.put("a", b"1") > 0
        await client.close()


async def test_an_endpoint_that_hangs_is_passed_over_within_the_deadline(
    etcd: EtcdProcess, proxy: Proxy, prefix: str
) -> None:
    client = EtcdClient([proxy.endpoint, etcd.endpoint], prefix, timeout_s=2)
    await client.put("a", b"1")
    proxy.stall()
    began = time.monotonic()
    entry = await client.get("a")

    assert entry is not None
    assert time.monotonic() - began < 2
    await client.put("a", b"2")  # goes to the one that answered
    await client.close()


@pytest.mark.parametrize(
    "call",
    [
        lambda client, _: client.get("a"),
        lambda client, _: client.put("a", b"1"),
        lambda client, lease: client.keep_alive(lease),
        lambda client, lease: client.revoke(lease),
    ],
    ids=["get", "put", "keep_alive", "revoke"],
)
async def test_every_call_ends_when_etcd_hangs(
    call: Callable[[EtcdClient, int], Awaitable[object]], far_client: EtcdClient, proxy: Proxy
) -> None:
    lease = await far_client.grant(5)
    proxy.stall()

    began = time.monotonic()
    with pytest.raises(EtcdUnavailableError):
        await call(far_client, lease)
    assert time.monotonic() - began < 3


async def test_without_etcd_calls_fail_at_once_and_say_where(prefix: str) -> None:
    client = EtcdClient(["127.0.0.1:1"], prefix)

    with pytest.raises(EtcdUnavailableError, match=r"etcd at 127\.0\.0\.1:1 did not answer"):
        await client.list("")
    with pytest.raises(EtcdUnavailableError):
        await client.keep_alive(1)
    await client.close()
