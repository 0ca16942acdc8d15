"""The benchmark of workers measures real ones over their links, and says so in a file."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(180)
def test_a_framework_is_measured_beside_its_bare_calls(tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    command = [
        *(sys.executable, "-m", "loadtest.runtime", "--quick", "--only", "python", "--no-swaps"),
        *("--output", str(output)),
    ]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(output.read_text())["frameworks"]["python"]
    assert [call["rows"] for call in found["calls"]] == [1, 64]
    for call in found["calls"]:
        assert 0 < call["bare_us"] < call["call_us"] <= call["call_p99_us"], call
        assert call["overhead_us"] == pytest.approx(call["call_us"] - call["bare_us"])
        assert call["cpu_us"] > 0
    assert 0 < found["load_s"] + found["warm_s"] < found["ready_s"]
    assert 0 < found["pss_bytes"] <= found["rss_bytes"]
    assert "every overhead is within the aim" in done.stdout or "over the aim: python" in done.stdout
