"""What the kernel says of the priorities of workers while they load, and after."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.runtime.priority import LONGEST_S, StandingBack
from tests.support.runtime_pod import LOADING, TIMEOUT_S, Pod

SOURCE = """
import os
import threading

GATE = os.environ["GATE"]
for _ in range(3):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
with open(GATE + ".reached", "w"):
    pass
with open(GATE) as gate:
    gate.readline()


class Model:
    inputs = {"x": ("FP32", [-1, 2])}
    outputs = {"y": ("FP64", [-1])}

    def predict(self, inputs):
        return {"y": inputs["x"].sum(axis=1).astype("float64")}
"""
LOWERS_AND_RAISES = "import os; n = os.nice(0); os.nice(5); l = os.nice(0); os.setpriority(0, 0, n); print(l - n)"
IS_GROUPED = Path("/proc/self/autogroup").exists()


def step() -> int:
    """How far behind this process one may go and come back; 0 where the kernel lets nobody come back."""
    done = subprocess.run([sys.executable, "-c", LOWERS_AND_RAISES], capture_output=True, text=True, check=False)
    return int(done.stdout or 0)


def standing(pid: int) -> set[int]:
    """How far its threads are behind this process."""
    found = set()
    for file in Path(f"/proc/{pid}/task").glob("*/stat"):
        found.add(int(file.read_text().rpartition(")")[2].split()[16]) - os.getpriority(os.PRIO_PROCESS, 0))
    return found


def count_of_threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def of_session(pid: int) -> int:
    """The same of its session, where the kernel groups sessions."""
    if not IS_GROUPED:
        return 0
    (nice,) = re.findall(r"nice (-?\d+)", Path(f"/proc/{pid}/autogroup").read_text())
    return int(nice)


class Gate:
    """Loads wait at it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        self._end = os.open(path, os.O_RDWR)

    async def reached(self) -> None:
        """A load waits at it now."""
        mark = self.path.with_name(f"{self.path.name}.reached")
        async with asyncio.timeout(TIMEOUT_S):
            while not mark.exists():
                await asyncio.sleep(0.02)
        mark.unlink()

    def let_through(self) -> None:
        os.write(self._end, b"\n")

    def close(self) -> None:
        os.close(self._end)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path / "gate")
    yield gate
    gate.close()


async def test_a_version_that_loads_beside_another_stands_back_until_it_is_ready(pod: Pod, gate: Gate) -> None:
    for version in ("1", "2"):
        (pod.models / "m" / version).mkdir(parents=True)
        (pod.models / "m" / version / "model.py").write_text(SOURCE)
    spec = {"trusted": True, "version_policy": {"specific": []}, "environment": {"GATE": str(gate.path)}}
    await pod.put("models/m", {**spec, "default_version": "1"})
    async with pod.running():
        await gate.reached()
        alone = standing((await pod.instance("m", "1", LOADING)).pid)
        gate.let_through()
        await pod.instance("m", "1")
        await pod.put("models/m", {**spec, "default_version": "2"})
        await gate.reached()
        pid = (await pod.instance("m", "2", LOADING)).pid
        beside, threads = standing(pid), count_of_threads(pid)
        session = of_session(pid)
        gate.let_through()
        await pod.instance("m", "2")
        ready, session_ready = standing(pid), of_session(pid)

    assert threads >= 4
    assert (alone, beside, ready) == ({0}, {step()}, {0})
    assert (session, session_ready) == (step() if IS_GROUPED else 0, 0)


async def test_nobody_stands_back_where_it_is_switched_off(pod: Pod, gate: Gate) -> None:
    for version in ("1", "2"):
        (pod.models / "m" / version).mkdir(parents=True)
        (pod.models / "m" / version / "model.py").write_text(SOURCE)
    spec = {"trusted": True, "version_policy": {"specific": ["1", "2"]}, "environment": {"GATE": str(gate.path)}}
    gate.let_through()
    await pod.put("models/m", {**spec, "version_policy": {"specific": ["1"]}})
    async with pod.running(load_nice="0"):
        await pod.instance("m", "1")
        await gate.reached()
        await pod.put("models/m", spec)
        await gate.reached()
        beside = standing((await pod.instance("m", "2", LOADING)).pid)

    assert beside == {0}


@pytest.fixture
def process() -> Iterator[int]:
    """One that does nothing, in a session of its own."""
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as process:
        yield process.pid
        process.kill()


async def test_a_load_that_stood_back_for_long_comes_forward(process: int) -> None:
    load = StandingBack(process, step(), lambda: True, load_timeout_s=120, now_s=100)
    await load.look(100 + LONGEST_S - 0.1)
    before = standing(process)
    await load.look(100 + LONGEST_S)

    assert (before, standing(process)) == ({step()}, {0})


async def test_a_load_comes_forward_at_half_its_time(process: int) -> None:
    load = StandingBack(process, step(), lambda: True, load_timeout_s=4, now_s=0)
    await load.look(2)

    assert standing(process) == {0}


async def test_a_load_comes_forward_when_what_served_is_gone(process: int) -> None:
    serving = [True]
    load = StandingBack(process, step(), lambda: bool(serving), load_timeout_s=120, now_s=0)
    await load.look(1)
    before = standing(process)
    serving.clear()
    await load.look(1)

    assert (before, standing(process)) == ({step()}, {0})
