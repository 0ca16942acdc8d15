import os
import sys
from pathlib import Path

from services.cli.processes import Child
from services.cli.readiness import not_ready
from services.core.registry import ServiceRecord


async def test_a_process_counts_when_its_own_record_says_ready(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    child = Child("router", command, dict(os.environ), tmp_path / "router.log")
    assert not_ready([child], []) == ["router is down"]
    child.start()
    before = ServiceRecord(pid=child.pid + 1, state="ready")  # of the start before: its lease has not run out yet
    try:
        assert not_ready([child], [before]) == ["router is starting"]
        assert not_ready([child], [before, ServiceRecord(pid=child.pid, state="not_ready")]) == ["router is not ready"]
        assert not_ready([child], [before, ServiceRecord(pid=child.pid, state="ready")]) == []
    finally:
        await child.kill()
