import secrets
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from services.chassis.etcd import EtcdClient, EtcdProcess
from tests.support.relay import Proxy


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def etcd(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EtcdProcess]:
    """One server for a module; each test has a prefix of its own."""
    async with EtcdProcess(tmp_path_factory.mktemp("etcd"), fsync=False) as process:
        yield process


@pytest.fixture
def prefix() -> str:
    return f"/t-{secrets.token_hex(4)}/"


@pytest_asyncio.fixture
async def client(etcd: EtcdProcess, prefix: str) -> AsyncIterator[EtcdClient]:
    """Straight to the server."""
    client = EtcdClient([etcd.endpoint], prefix, timeout_s=3)
    yield client
    await client.close()


@pytest_asyncio.fixture
async def proxy(etcd: EtcdProcess) -> AsyncIterator[Proxy]:
    proxy = Proxy(etcd.endpoint)
    await proxy.open()
    yield proxy
    await proxy.cut()


@pytest_asyncio.fixture
async def far_client(proxy: Proxy, prefix: str) -> AsyncIterator[EtcdClient]:
    """The same keys through the proxy."""
    client = EtcdClient([proxy.endpoint], prefix, timeout_s=1)
    yield client
    await client.close()
