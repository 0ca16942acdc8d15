"""`turnout up` as a person runs it: real processes, real data, on ports of its own."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.cli.plan import Place, Ports, plan
from services.cli.ports import addresses, is_free

UP_S = 240.0
TURNOUT = [sys.executable, "-m", "services.cli"]

pytestmark = pytest.mark.timeout(600)


def turnout(*arguments: str, timeout_s: float = UP_S) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*TURNOUT, *arguments], capture_output=True, text=True, timeout=timeout_s, check=False)


def free_offset() -> int:
    """A --port-offset at which every port of two pods is free."""
    place = Place(Path("/"), Path("/"), "", "")
    for start in range(10_000, 23_000, 500):
        offset = start + os.getpid() % 97
        at = Ports(offset)
        if all(is_free(address) for address in addresses(plan(place, at, 2), at.at(2379))):
            return offset
    raise AssertionError("no free ports")


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("up") / "data"


@pytest.fixture(scope="module")
def shown(data_dir: Path) -> subprocess.CompletedProcess[str]:
    """The demo, once, from nothing."""
    return turnout("up", "--demo-then-exit", "--data-dir", str(data_dir), "--port-offset", str(free_offset()))


@pytest.fixture(scope="module")
def mesh(data_dir: Path, shown: subprocess.CompletedProcess[str]) -> Iterator[list[str]]:
    """The options that name a mesh, which uses the data of the demo; `ensure_up` runs it."""
    where = ["--data-dir", str(data_dir)]
    yield where
    assert turnout("down", *where).returncode == 0


def ensure_up(where: list[str]) -> subprocess.CompletedProcess[str]:
    """Start the mesh in the background, unless the test before left it running."""
    if Path(where[1], "mesh.json").exists():
        return subprocess.CompletedProcess([], 0, "")
    started = turnout("up", "--detach", *where, "--port-offset", str(free_offset()))
    assert started.returncode == 0, started.stdout + started.stderr
    return started


def send(where: list[str], number: signal.Signals) -> None:
    """Signal `turnout up`, and return when it and all that it started have ended."""
    os.kill(json.loads(Path(where[1], "mesh.json").read_text())["pid"], number)
    deadline = time.monotonic() + 60
    while processes(where[1]):
        assert time.monotonic() < deadline, processes(where[1])
        time.sleep(0.1)


def processes(*words: str) -> list[int]:
    """Processes in whose command line or environment each of `words` is found."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        text = read(folder / "cmdline") + read(folder / "environ")
        if all(word.encode() in text for word in words):
            found.append(int(folder.name))
    return found


def lines_with(output: str, *words: str) -> list[str]:
    return [line for line in output.splitlines() if all(word in line for word in words)]


def test_the_demo_shows_predictions_split_shadow_and_stages(shown: subprocess.CompletedProcess[str]) -> None:
    assert shown.returncode == 0, shown.stdout + shown.stderr
    canary = next(line for line in lines_with(shown.stdout, "digits/2") if "%" in line).split()
    assert 30 <= int(canary[3]) <= 90  # 10% of 540 users
    assert float(canary[5].rstrip("%")) > 90
    assert lines_with(shown.stdout, "patient 9999", "NOT_FOUND", "tumor_features", "patient_id=9999")
    assert lines_with(shown.stdout, "Shadow: digits version 3")
    explained = next(iter(lines_with(shown.stdout, "explained"))).split()
    assert float(explained[2].rstrip("%")) >= 95


def test_it_leaves_nothing_running(data_dir: Path, shown: subprocess.CompletedProcess[str]) -> None:
    assert processes(str(data_dir)) == []


def test_commands_find_the_mesh_by_its_data_folder(data_dir: Path, mesh: list[str]) -> None:
    ensure_up(mesh)
    digit = ["predict", "digits", "--input", f"x=@{data_dir / 'demo' / 'digit.npy'}", "--json", *mesh]
    by_grpc, by_rest = (json.loads(turnout(*digit, option).stdout) for option in ("--grpc", "--rest"))
    models = json.loads(turnout("models", "--json", *mesh).stdout)
    unknown = turnout("predict", "tumor", "--param", "patient_id=9999", *mesh)
    second = turnout("up", *mesh)

    assert by_grpc["outputs"]["label"] == by_rest["outputs"]["label"]
    assert {row["state"] for row in models} == {"ready"}
    assert (unknown.returncode, unknown.stderr.count("\n")) == (1, 1)
    assert "tumor_features" in unknown.stderr
    assert (second.returncode, second.stderr.count("\n")) == (1, 1)
    assert "already" in second.stderr


def test_a_dead_child_is_said_and_comes_back(data_dir: Path, mesh: list[str]) -> None:
    ensure_up(mesh)
    log = data_dir / "logs" / "up.log"
    os.kill(processes(str(data_dir), "services.batcher")[0], signal.SIGKILL)

    deadline = time.monotonic() + 60
    code = 1
    while code or "batcher-0 was ended by SIGKILL" not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        code = turnout("predict", "tumor", "--param", "patient_id=1", *mesh).returncode


def test_ctrl_c_stops_all_of_it_and_the_next_start_is_quick_and_keeps_data(mesh: list[str]) -> None:
    ensure_up(mesh)
    changed = turnout("routes", "set", "digits", "--canary", "2=50", *mesh)
    assert "in force on 1 of 1 routers" in changed.stdout, changed.stderr

    send(mesh, signal.SIGINT)
    again = ensure_up(mesh)

    assert "Training" not in again.stdout
    routes = json.loads(turnout("routes", "get", "--json", *mesh).stdout)
    assert routes["digits"]["canary"] == [{"version": "2", "percent": 50.0, "at": 0.0}]


def test_children_die_with_a_parent_that_is_killed(mesh: list[str]) -> None:
    ensure_up(mesh)

    send(mesh, signal.SIGKILL)


def test_a_busy_port_is_said_in_one_line(tmp_path: Path) -> None:
    offset = free_offset()
    with socket.create_server(("127.0.0.1", 8001 + offset)):
        refused = turnout("up", "--data-dir", str(tmp_path / "data"), "--port-offset", str(offset))

    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert f"127.0.0.1:{8001 + offset}, wanted by router (grpc), is in use" in refused.stderr
    assert "--port-offset" in refused.stderr


def read(path: Path) -> bytes:
    """A file of /proc; empty when its process is gone or another user's."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
