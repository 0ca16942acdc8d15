from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.chassis.etcd import EtcdProcess
from tests.support.puppet_pod import PuppetPod


@pytest.fixture
async def pod(tmp_path: Path, etcd: EtcdProcess) -> AsyncIterator[PuppetPod]:
    pod = PuppetPod(tmp_path, etcd)
    try:
        yield pod
    finally:
        await pod.close()
