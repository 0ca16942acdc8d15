"""The benchmark measures a real mesh, and says so in a file."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(shutil.which("h2load") is None, reason="h2load is not installed: apt install nghttp2-client")
@pytest.mark.timeout(180)
def test_a_workload_is_measured_with_right_answers_only(tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    command = [sys.executable, "-m", "loadtest.bench", "--only", "W4", "--seconds", "0.5", "--output", str(output)]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads(output.read_text())["workloads"]
    assert (row["workload"], row["concurrency"]) == ("W4", 1)
    assert row["requests"] >= 300
    assert 0 < row["p50_ms"] <= row["p99_ms"]
    assert set(row["cpu_us"]) == {"runtime-0", "worker-0", "batcher-0", "router"}
