"""What a worker's process is once it is confined, in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from services.chassis.config import BadConfigError
from services.runtime.config import RuntimeConfig
from services.runtime.hosting import hosting_of

SCRIPT = """
import json, os, resource, sys
from services.chassis.process import hide_memory
from services.runtime.confine import confine
from services.runtime.job import Job

hide_memory()  # as a runtime does; it holds for this process, and not for the one that is started from it
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

def attempt(action):
    try:
        return str(action())
    except OSError as error:
        return type(error).__name__

fields = json.loads(sys.argv[1])
confine(Job(id="w", model="m", version="1", digest="d", framework="onnx", file="f", socket="s", **fields))
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
print(json.dumps({
    "ids": [os.getuid(), os.geteuid(), os.getgid(), os.getegid(), os.getgroups()],
    "capabilities": [status[name].strip("0") for name in ("CapInh", "CapPrm", "CapEff", "CapBnd")][:3],
    "no_new_privs": status["NoNewPrivs"],
    "files": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
    "core": resource.getrlimit(resource.RLIMIT_CORE)[1],
    "cpus": sorted(os.sched_getaffinity(0)),
    "home": os.environ["HOME"],
    "stop_parent": attempt(lambda: os.kill(os.getppid(), 0)),
    "read_parent": attempt(lambda: len(open(f"/proc/{os.getppid()}/environ").read())),
    "become_root": attempt(lambda: os.setuid(0)) if os.getuid() else "",
}))
"""


def confined(**fields: Any) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(fields)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_worker_of_the_same_user_has_no_privileges_and_bounded_files() -> None:
    core = min(os.sched_getaffinity(0))
    found = confined(max_open_files=100, cpus=[core])

    assert found["ids"][0] == os.getuid()
    assert (found["capabilities"], found["no_new_privs"]) == (["", "", ""], "1")
    assert (found["files"], found["core"], found["cpus"]) == (164, 0, [core])
    assert found["read_parent"] == "PermissionError"


def test_a_worker_of_another_user_can_do_nothing_to_its_supervisor() -> None:
    if os.geteuid() != 0:
        with pytest.raises(BadConfigError, match="WORKER_USER: needs a runtime that runs as root"):
            hosting_of(RuntimeConfig(worker_user="65534"))
        return
    found = confined(user=64_000, group=64_001)

    assert found["ids"] == [64_000, 64_000, 64_001, 64_001, []]
    assert (found["capabilities"], found["no_new_privs"], found["home"]) == (["", "", ""], "1", "/")
    assert (found["stop_parent"], found["read_parent"], found["become_root"]) == ("PermissionError",) * 3


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"worker_group": "nogroup"}, "WORKER_GROUP: needs TURNOUT_RUNTIME_WORKER_USER"),
        ({"worker_user": "nobody-of-that-name"}, "WORKER_USER: "),
        ({"worker_user": "65534", "worker_group": "no-such-group"}, "WORKER_"),
    ],
)
def test_workers_of_a_user_that_cannot_be_are_refused_at_start(settings: dict[str, str], fault: str) -> None:
    with pytest.raises(BadConfigError, match=fault):
        hosting_of(RuntimeConfig.model_validate(settings))


def test_workers_that_could_not_read_their_artifacts_are_refused_at_start(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    config = RuntimeConfig(worker_user="64000", worker_group="64001", cache_dir=closed / "artifacts")

    with pytest.raises(BadConfigError, match="cannot enter" if os.geteuid() == 0 else "runs as root"):
        hosting_of(config)
