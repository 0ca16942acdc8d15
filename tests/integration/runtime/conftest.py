"""A pod's worth of fixtures: etcd as a real process, and a runtime that a test starts when its keys are there."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.chassis.etcd import EtcdProcess
from tests.support.runtime_pod import Pod


@pytest.fixture
async def pod(tmp_path: Path, etcd: EtcdProcess) -> AsyncIterator[Pod]:
    pod = Pod(tmp_path, etcd)
    try:
        yield pod
    finally:
        await pod.close()
