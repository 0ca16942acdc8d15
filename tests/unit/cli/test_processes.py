import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.cli.errors import CliError
from services.cli.processes import Child, describe_exit
from services.cli.supervise import Restarts, Supervisor

ENOUGH_S = 20.0
STAY = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)


def child(folder: Path, code: str, name: str = "worker") -> Child:
    return Child(name, [sys.executable, "-c", code], dict(os.environ), folder / f"{name}.log")


async def said(each: Child, word: str) -> None:
    """Return once its log holds `word`."""
    async with asyncio.timeout(ENOUGH_S):
        while not each.log.exists() or word not in each.log.read_text():
            await asyncio.sleep(0.01)


@pytest.fixture
async def children(tmp_path: Path) -> AsyncIterator[list[Child]]:
    made = [child(tmp_path, STAY, name) for name in ("first", "second")]
    yield made
    for each in made:
        await each.kill()


async def test_a_child_is_stopped_by_its_first_signal(tmp_path: Path) -> None:
    worker = child(tmp_path, STAY)
    worker.start()
    await said(worker, "up")

    assert await worker.stop(ENOUGH_S)
    assert (worker.pid, await worker.wait()) == (0, -signal.SIGTERM)


async def test_a_child_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    worker = child(tmp_path, STUBBORN)
    worker.start()
    await said(worker, "up")

    assert not await worker.stop(0.05)
    assert await worker.wait() == -signal.SIGKILL


async def test_a_hanging_child_is_stopped_too(tmp_path: Path) -> None:
    worker = child(tmp_path, STAY)
    worker.start()
    worker.pause()

    assert await worker.stop(ENOUGH_S)


async def test_the_log_of_the_start_before_is_kept(tmp_path: Path) -> None:
    worker = child(tmp_path, "import os; print(os.getpid())")
    pids = []
    for _ in range(3):
        worker.start()
        pids.append(worker.pid)
        await worker.wait()

    assert worker.log.read_text().strip() == str(pids[2])
    assert (tmp_path / "worker.log.1").read_text().strip() == str(pids[1])
    assert worker.last_words() == str(pids[2])


async def test_a_log_past_its_bound_is_moved_while_the_child_writes_on(tmp_path: Path) -> None:
    go = tmp_path / "go"
    wait = f"while not os.path.exists({str(go)!r}): time.sleep(0.01)"
    worker = child(tmp_path, f"import os, time\nprint('x' * 1000, flush=True)\n{wait}\nprint('later')")
    worker.start()
    await said(worker, "x" * 1000)

    worker.trim_log(limit_bytes=500)
    go.touch()
    await worker.wait()

    assert worker.log.read_text() == "later\n"
    assert "x" * 1000 in (tmp_path / "worker.log.1").read_text()


async def test_a_dead_child_is_said_in_one_line_and_started_again(children: list[Child]) -> None:
    lines: list[str] = []
    heard = asyncio.Event()

    def say(line: str) -> None:
        lines.append(line)
        heard.set()

    async with Supervisor(children, say) as supervisor:
        supervisor.settle()
        before = children[0].pid
        children[0].signal(signal.SIGKILL)
        async with asyncio.timeout(ENOUGH_S):
            await heard.wait()
            while children[0].pid in (0, before):
                await asyncio.sleep(0.01)

    assert lines == [f"first was ended by SIGKILL; starting it again in 0.5 s (log: {children[0].log}.1)"]


async def test_leaving_stops_children_in_reverse_order(children: list[Child]) -> None:
    order: list[str] = []

    class Noted(Child):
        async def stop(self, timeout_s: float) -> bool:
            order.append(self.name)
            return await super().stop(timeout_s)

    noted = [Noted(each.name, each._command, each._environment, each.log) for each in children]
    async with Supervisor(noted, order.append):
        pass

    assert order == ["second", "first"]
    assert [each.pid for each in noted] == [0, 0]


async def test_a_child_that_cannot_start_is_an_error_with_its_own_words(tmp_path: Path) -> None:
    hopeless = child(tmp_path, "import sys; print('TURNOUT_X: unknown setting'); sys.exit(2)")
    async with Supervisor([hopeless], lambda _: None) as supervisor:
        async with asyncio.timeout(ENOUGH_S):
            with pytest.raises(CliError, match="worker cannot start: TURNOUT_X: unknown setting"):
                await supervisor.failed


async def test_a_child_that_keeps_dying_at_the_start_is_an_error_with_its_own_words(tmp_path: Path) -> None:
    lines: list[str] = []
    hopeless = child(tmp_path, "import nonsense")
    async with Supervisor([hopeless], lines.append) as supervisor:
        async with asyncio.timeout(ENOUGH_S):
            with pytest.raises(CliError, match="worker cannot start: ModuleNotFoundError: No module named 'nonsense'"):
                await supervisor.failed

    assert lines[0].startswith("worker ended with code 1 (ModuleNotFoundError: ")


def test_last_words_of_a_log_line_are_what_happened_and_why(tmp_path: Path) -> None:
    worker = child(tmp_path, "")
    worker.log.write_text('{"event": "service_failed", "error": "no disk", "level": "error"}\n\n')

    assert worker.last_words() == "service_failed: no disk"


def test_pauses_grow_up_to_a_bound_and_shrink_after_a_calm_time() -> None:
    restarts = Restarts(first_s=1, most_s=5, calm_s=30)

    pauses = [restarts.next_s(lived_s) for lived_s in (0, 0, 0, 0, 31, 0)]

    assert pauses == [1, 2, 4, 5, 1, 2]


def test_exit_codes_in_words() -> None:
    assert [describe_exit(code) for code in (3, -9, -64)] == [
        "ended with code 3",
        "was ended by SIGKILL",
        "was ended by SIGRTMAX",
    ]
