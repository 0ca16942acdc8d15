from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from services.chassis.etcd import EtcdClient, EtcdError, EtcdProcess, EtcdUnavailableError
from tests.integration.etcd.support import etcdctl, eventually, observed

PASSWORD = "secret"  # noqa: S105 - of a server that lives for a second


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guarded_etcd(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EtcdProcess]:
    """It knows one user; its tokens do not survive a restart."""
    folder: Path = tmp_path_factory.mktemp("etcd")
    async with EtcdProcess(folder, fsync=False, flags=["--bcrypt-cost=4"]) as process:
        etcdctl(process, "user", "add", f"root:{PASSWORD}")
        etcdctl(process, "user", "grant-role", "root", "root")
        etcdctl(process, "auth", "enable")
        yield process


async def test_a_user_with_the_right_password_is_let_in(guarded_etcd: EtcdProcess, prefix: str) -> None:
    client = EtcdClient([guarded_etcd.endpoint], prefix, user="root", password=PASSWORD)
    await client.put("a", b"1")

    assert (await client.list("")).entries["a"].value == b"1"
    await client.close()


@pytest.mark.parametrize(("user", "password"), [("root", "wrong"), ("nobody", PASSWORD), ("", "")])
async def test_others_are_refused_with_a_reason(guarded_etcd: EtcdProcess, user: str, password: str) -> None:
    client = EtcdClient([guarded_etcd.endpoint], user=user, password=password)
    with pytest.raises(EtcdError, match="user") as refused:
        await client.get("a")

    assert not isinstance(refused.value, EtcdUnavailableError)
    await client.close()


async def test_a_token_that_became_invalid_is_replaced_in_the_same_call(guarded_etcd: EtcdProcess, prefix: str) -> None:
    client = EtcdClient([guarded_etcd.endpoint], prefix, user="root", password=PASSWORD)
    lease = await client.grant(30)
    await guarded_etcd.stop()
    await guarded_etcd.start()

    await client.put("a", b"1", lease=lease)
    await client.keep_alive(lease)
    await client.close()


async def test_a_mirror_logs_in_again_after_a_restart(guarded_etcd: EtcdProcess, prefix: str) -> None:
    client = EtcdClient([guarded_etcd.endpoint], prefix, user="root", password=PASSWORD, timeout_s=1)
    other = EtcdClient([guarded_etcd.endpoint], prefix, user="root", password=PASSWORD)
    async with observed(client) as it:
        await guarded_etcd.kill()
        await eventually(lambda: not it.mirror.connected)
        await guarded_etcd.start()
        await eventually(lambda: it.mirror.connected)
        await other.put("a", b"1")
        await eventually(lambda: it.values == {"a": b"1"})
    await client.close()
    await other.close()


async def test_a_user_is_no_hindrance_where_etcd_asks_for_none(etcd: EtcdProcess, prefix: str) -> None:
    client = EtcdClient([etcd.endpoint], prefix, user="root", password=PASSWORD)
    await client.put("a", b"1")

    assert await client.get("a") is not None
    await client.close()
