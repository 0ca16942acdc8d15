"""The batching benchmark measures a real mesh, rule beside rule, and says so in a file."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(180)
def test_two_rules_are_measured_with_right_answers_only(tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    command = [
        *(sys.executable, "-m", "loadtest.batching", "--only", "shapes", "lone", "--rules", "ours", "triton"),
        *("--rates", "100", "--seconds", "0.5", "--output", str(output)),
    ]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(output.read_text())
    assert [point["rule"] for point in results["points"]] == ["ours", "triton"]
    for point in results["points"]:
        assert point["counts"].get("ok", 0) > 0, point
        assert point["wrong"] == 0
        assert point["ms"]["p50"] > 5
        assert set(point["cpu_us"]) == {"generator", "router", "batcher", "worker"}
    alone = results["lone"]["lone"]
    assert alone["wrong"] == 0
    assert alone["queue_ms"]["p50"] < 1
    assert {verdict["holds"] for verdict in results["verdicts"]} <= {True, False, None}
