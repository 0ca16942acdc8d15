"""etcd, a runtime that a test starts, and what operators do to both."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import structlog

from services.chassis.etcd import EtcdProcess
from services.fleet.lifecycle import Lifecycle
from services.fleet.uploads import Uploads
from tests.support.runtime_pod import Pod


@pytest.fixture
async def pod(tmp_path: Path, etcd: EtcdProcess) -> AsyncIterator[Pod]:
    pod = Pod(tmp_path, etcd)
    try:
        yield pod
    finally:
        await pod.close()


@pytest.fixture
def lifecycle(pod: Pod, tmp_path: Path) -> Lifecycle:
    return Lifecycle(pod.client, structlog.get_logger(), Uploads(tmp_path / "uploads"))
