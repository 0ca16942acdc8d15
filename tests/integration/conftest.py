"""What tests of several services start."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.chassis.etcd import EtcdProcess


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[EtcdProcess]:
    async with EtcdProcess(tmp_path / "etcd", fsync=False) as process:
        yield process
