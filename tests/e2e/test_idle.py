"""A mesh with nothing to tell: idle it costs next to nothing, and under load its logs stay clean."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from loadtest.mesh_stats import processes
from tests.support import numbered
from tests.support.mesh import Mesh
from tests.support.mesh_probes import QUICK, errors, noise, serve
from tests.support.swift_caller import Call, SwiftCaller
from tests.support.traffic import MODEL_INFER, Traffic, mixed

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

WATCHED_S = 6.0
MOST_CPU = 0.01  # of one processor, keepalives included. Measured is a quarter; a timer of 1 ms would be hundredths
MOST_WAKES = 15  # of its event loop a second: heartbeat, keepalives, lease
NAMES = ("runtime-0", "batcher-0", "router")
SPEC = {"batching": {"max_queue_delay_microseconds": 500, "default_timeout_microseconds": 100_000}}


class Effort(NamedTuple):
    """What a process did in a second."""

    cpu: float  # share of one processor
    wakes: float


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mesh]:
    async with Mesh(tmp_path_factory.mktemp("idle"), only=NAMES, settings=QUICK) as mesh:
        await serve(mesh, "numbers", 1, spec=SPEC)
        async with Traffic(await mesh.listening("router", "grpc"), mixed("numbers")) as traffic:
            await traffic.clean()
        yield mesh


async def test_an_idle_process_hardly_wakes_and_takes_no_processor(mesh: Mesh) -> None:
    pids = {f"{name}/{number}": pid for name, each in processes(mesh).items() for number, pid in enumerate(each)}
    # A scan of the repository is the runtime's work, not the path of a request.
    watched = {name: pid for name, pid in pids.items() if not name.startswith("runtime")}
    before = {name: _so_far(pid) for name, pid in watched.items()}
    await asyncio.sleep(WATCHED_S)
    after = {name: _so_far(pid) for name, pid in watched.items()}

    efforts = {
        name: Effort(*((later - earlier) / WATCHED_S for earlier, later in zip(before[name], after[name], strict=True)))
        for name in watched
    }
    assert len(efforts) == 3
    assert {name: effort for name, effort in efforts.items() if effort.cpu > MOST_CPU} == {}
    assert {name: effort for name, effort in efforts.items() if effort.wakes > MOST_WAKES} == {}


async def test_logs_hold_log_lines_and_no_errors_under_load(mesh: Mesh) -> None:
    answers: list[bytes | None] = []
    payload = numbered.request("numbers", [1.0, 2.0]).SerializeToString()
    async with SwiftCaller(
        await mesh.listening("router", "grpc"), MODEL_INFER, lambda _: Call(payload, answers.append)
    ) as caller:
        await caller.answered(5000)

    assert len(answers) == 5000
    assert None not in answers
    assert errors(mesh, *NAMES) + noise(mesh, *NAMES) == []


def _so_far(pid: int) -> Effort:
    """Seconds of processor time of all its threads, and how often its event loop went to sleep."""
    tasks = Path(f"/proc/{pid}/task")
    cpu_ns = sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir())
    status = (tasks / str(pid) / "status").read_text()
    return Effort(cpu_ns / 1e9, int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0]))
