"""Models that misbehave in every way, beside one that does not: each alone pays for it."""

import asyncio
import json
import re
import secrets
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import rogue
from tests.support.mischief import Mischief
from tests.support.runtime_pod import READY, Batcher, Pod, output
from tests.support.service_process import started

LIMITS = {
    "max_memory_bytes": 320 << 20, "max_open_files": 128, "max_processes": 8, "max_execution_ms": 30_000,
    "max_tensor_bytes": 1 << 20,
}  # fmt: skip
DIES = [
    [
        (rogue.LEAK, r"used \d+ bytes of memory, over limits.max_memory_bytes 335544320"),
        (rogue.ABORT, "its process was killed by SIGABRT"),
        (rogue.OPEN_FILES, r"holds \d+ open files, over limits.max_open_files 128"),
    ],
    [
        (rogue.FORK, r"has \d+ processes, over limits.max_processes 8"),
        (rogue.VANISH_AND_ABORT, "its process was killed by SIGABRT"),
        (rogue.EXIT, "its process exited with status 3"),
    ],
    [
        (rogue.CRASH, "its process was killed by SIGSEGV"),
        (rogue.STAMP, r"ran one batch for \d{10,} ms, over limits.max_execution_ms 30000"),
        (rogue.UNLINK, "the socket that it listens on was removed"),
    ],
]


def save(pod: Pod, model: str, source: str) -> None:
    folder = pod.models / model / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(source)


def marked(mark: str) -> set[int]:
    """Processes that were started with this in their environment, their forks too."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes() and "Z" not in _state(path.parent):
                found.add(int(path.parent.name))
        except OSError:
            continue
    return found


def _state(process: Path) -> str:
    return (process / "stat").read_text().rpartition(")")[2].split()[0]


def resident_bytes(pid: int) -> int:
    (resident,) = re.findall(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(resident) << 10


class Rogue:
    """One model of tests/support/rogue.py in a pod; `mark` is in the environment of its processes."""

    def __init__(self, pod: Pod, number: int) -> None:
        self.pod = pod
        self.model = f"rogue-{number}"
        self.mark = secrets.token_hex(8)
        save(pod, self.model, rogue.SOURCE)

    async def put(self, **limits: int) -> None:
        spec = {"trusted": True, "default_version": "1", "environment": {"MARK": self.mark}}
        await self.pod.put(f"models/{self.model}", {**spec, "limits": LIMITS | limits})

    async def die_of(self, action: int) -> str:
        """Have it do that; why its process ended, once another is ready and nothing is left of the first."""
        first = await self.pod.instance(self.model, "1")
        failures = len(self._failures())
        async with Batcher(first) as batcher:
            lost = await batcher.send((action, 0))
            await self.pod.until("a failure", lambda: len(self._failures()) > failures)
            await asyncio.wait({lost})
            lost.exception()  # some died with their batch, some after it
            await batcher.lost.wait()
        again = await self.pod.until("another process", lambda: self._ready_but(first.pid))
        assert marked(self.mark) == {again.pid}
        return str(self._failures()[-1]["reason"])

    def _failures(self) -> list[dict[str, Any]]:
        return [each for each in self.pod.process.events()
                if each["event"] == "worker_failed" and each["model"] == self.model]  # fmt: skip

    def _ready_but(self, pid: int) -> object:
        found = self.pod.find(self.model, "1", READY)
        return found if found and found.pid not in (0, pid) else None


@pytest.fixture
async def calls(pod: Pod) -> AsyncIterator[list[object]]:
    """Answers of a well-behaved model `calm`, which is called all the time from when it is ready."""
    pod.save("calm", "1", Mischief())
    await pod.put("models/calm", {"trusted": True, "default_version": "1"})
    answers: list[object] = []

    async def call() -> None:
        async with Batcher(await pod.instance("calm", "1")) as batcher:
            while True:
                try:
                    answers.append(output(await batcher.run((1, 2)), "y").tolist())
                except (AssertionError, ConnectionError, TimeoutError) as error:
                    answers.append(error)
                await asyncio.sleep(0.01)

    task = asyncio.create_task(call())
    yield answers
    task.cancel()
    await asyncio.wait({task})


@pytest.mark.timeout(180)
async def test_a_model_that_dies_of_itself_takes_nothing_with_it(pod: Pod, calls: list[object]) -> None:
    rogues = [Rogue(pod, number) for number in range(len(DIES))]
    for each in rogues:
        await each.put()
    async with pod.running():
        calm = await pod.instance("calm", "1")
        for each in rogues:
            await pod.instance(each.model, "1")
        before = resident_bytes(pod.process.pid)
        await asyncio.gather(*[_die(each, ways) for each, ways in zip(rogues, DIES, strict=True)])
        grown = resident_bytes(pod.process.pid) - before
        still = pod.find("calm", "1")
        answered = list(calls)
        await _stopped(pod)

    assert still is not None
    assert (still.pid, still.state) == (calm.pid, READY)
    assert len(answered) > 10
    assert [answer for answer in answered if answer != [3.0]] == []
    assert grown < 32 << 20
    assert [marked(each.mark) for each in rogues] == [set()] * len(rogues)


async def _stopped(pod: Pod) -> None:
    pod.process.signal(signal.SIGTERM)
    assert await pod.process.exit_code() == 0


async def _die(each: Rogue, ways: list[tuple[int, str]]) -> None:
    for action, expected in ways:
        reason = await each.die_of(action)
        assert re.fullmatch(expected, reason), reason


@pytest.mark.timeout(120)
async def test_a_model_that_only_tries_is_not_even_restarted(pod: Pod) -> None:
    mild = Rogue(pod, 0)
    await mild.put(max_processes=64)
    async with pod.running():
        first = await pod.instance(mild.model, "1")
        before = resident_bytes(pod.process.pid)
        async with Batcher(first) as batcher:
            quit_ = await batcher.run((rogue.SYS_EXIT, 0))
            fallen = await batcher.run((rogue.THREADS, 0))
            written = await batcher.run((rogue.WRITE, 0))
            shouted = await batcher.run((rogue.SHOUT, 0))
            daemon = int(output(await batcher.run((rogue.VANISH, 0)), "y")[0])
            large = await batcher.run(*[(1.0, 2.0)] * (1 << 17 | 1))
            fine = await batcher.run((1, 2))
        grown = resident_bytes(pod.process.pid) - before
        last = await pod.instance(mild.model, "1")
        alive = marked(mild.mark)
        await _stopped(pod)

    assert (quit_.code, quit_.message) == (13, "SystemExit: 3")
    assert output(fallen, "y").tolist() == [rogue.THREADS]
    assert output(written, "y")[0] >= 3  # no inherited file can be cut off
    assert output(shouted, "y").tolist() == [rogue.SHOUT]
    assert (large.code, large.executed) == (8, 0)
    assert large.message == "input 'x' of a batch takes 1048584 bytes, over limits.max_tensor_bytes 1048576"
    assert output(fine, "y").tolist() == [3]
    assert (last.pid, last.restarts) == (first.pid, 0)
    assert grown < 32 << 20
    assert alive == {first.pid, daemon}
    assert marked(mild.mark) == set()  # the daemon had left its session and its parents


async def test_a_worker_has_no_secrets_no_privileges_and_three_files(pod: Pod) -> None:
    save(pod, "probe", rogue.PROBE)
    spec = {"trusted": True, "default_version": "1", "environment": {"MODE": "fast"}, "limits": {"max_open_files": 200}}
    await pod.put("models/probe", spec)
    pod.settings |= {
        "AWS_SECRET_ACCESS_KEY": "s1", "SOME_DATABASE": "s2", "CUDA_API_TOKEN": "s3", "http_proxy": "http://u:s4@h",
        "LICENCE_FILE": "kept", "FEATURE_A": "kept",
    }  # fmt: skip
    async with (
        pod.running(worker_environment="LICENCE_FILE, FEATURE_*"),
        Batcher(await pod.instance("probe", "1")) as batcher,
    ):
        found = json.loads(output(await batcher.run((1, 2)), "y")[0])

    environ = found["environ"]
    assert [name for name, value in environ.items() if re.search(r"s[1-4]\b", value)] == []
    assert [name for name in environ if name.startswith("TURNOUT_")] == []
    assert (environ["LICENCE_FILE"], environ["FEATURE_A"], environ["MODE"]) == ("kept", "kept", "fast")
    assert environ["CUDA_VISIBLE_DEVICES"] == ""
    standard = {found["files"][number] for number in "012"}
    inherited = sorted(re.sub(r"\d+", "N", name) for name in set(found["files"].values()) - standard)
    assert inherited == ["/memfd:turnout-stamp (deleted)", "socket:[N]", "socket:[N]"]
    assert (found["no_new_privs"], found["capabilities"]) == ("1", "0" * 16)
    assert (found["core"], found["open"], found["umask"]) == ([0, 0], [264, 264], 0o077)
    assert found["parents_environ"] == "PermissionError"


async def test_a_pod_whose_workers_could_not_run_says_so_at_start(pod: Pod) -> None:
    """This user, or the way to this interpreter, is closed to a user of number 64000 and a group of 64001."""
    closed = pod.models.parent / "closed"
    closed.mkdir(mode=0o700)
    settings = pod.settings | {
        "TURNOUT_RUNTIME_WORKER_USER": "64000",
        "TURNOUT_RUNTIME_WORKER_GROUP": "64001",
        "TURNOUT_RUNTIME_CACHE_DIR": str(closed / "artifacts"),
    }
    async with started("services.runtime", settings) as process:
        assert await process.exit_code() == 2

    assert re.search("WORKER_USER: needs a runtime that runs as root|group 64001 cannot enter", process.lines[-1])
