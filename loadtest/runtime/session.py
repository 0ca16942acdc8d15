"""The measurements: calls in turns with the bare framework, loads, memory, swaps."""

import asyncio
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np

from loadtest.batching.processes import use_of
from loadtest.runtime.bed import Bare, Caller, bare_calls, memory_of, sizes
from loadtest.runtime.cases import Case
from services.chassis.etcd import EtcdProcess
from services.core import arrays
from services.runtime.environment import environment
from tests.support.lone_worker import LoneWorker, lone_worker
from tests.support.runtime_pod import Pod
from turnout.v1 import link_pb2 as pb

AIM_US, AIM_SHARE = 150.0, 0.1  # what a call of a worker may cost beyond the bare call
_ALIKE = {"rtol": 1e-4, "atol": 1e-5}
_IDLE_S = 1.0
_ONE_THREAD = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1", "TQDM_DISABLE": "1"}


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and how often."""

    rows: tuple[int, ...] = (1, 8, 64)
    rounds: int = 20
    round_s: float = 0.12
    swaps: int = 3


QUICK = Plan(rows=(1, 64), rounds=3, round_s=0.1, swaps=1)
Say = Callable[[str], None]


async def measure(cases: Sequence[Case], plan: Plan, folder: Path, say: Say) -> dict[str, Any]:
    """All figures, by framework."""
    found: dict[str, Any] = {}
    files: dict[str, Path] = {}
    environ = environment(os.environ, 1) | _ONE_THREAD
    for case in cases:
        place = folder / case.framework
        place.mkdir(parents=True)
        say(f"{case.framework}: load")
        async with bare_calls(case, place, environ) as (bare, file):
            files[case.framework] = file
            found[case.framework] = {"what": case.what, **await _worker(case, bare, file, plan, say)}
    if plan.swaps:
        for case in cases:
            say(f"{case.framework}: swap")
            found[case.framework]["swap_s"] = await _swaps(case, files[case.framework], plan.swaps)
    return found


async def _worker(case: Case, bare: Bare, file: Path, plan: Plan, say: Say) -> dict[str, Any]:
    began = time.perf_counter()
    async with lone_worker(case.framework, file, warm_up_sizes=(1, max(plan.rows)), **case.fields) as worker:
        ready_s = time.perf_counter() - began
        used = use_of([worker.process.pid])
        await asyncio.sleep(_IDLE_S)
        memory = memory_of(worker.process.pid)
        async with Caller(worker) as caller:
            await _check(case, caller)
            calls = []
            for rows in plan.rows:
                say(f"{case.framework}: {rows} rows")
                calls.append(await _calls(case, bare, worker, caller, rows, plan))
        said = _loaded(worker)
    return {
        "ready_s": ready_s,
        "ready_cpu_s": used.cpu_ns / 1e9,
        "load_s": said["load_s"],
        "warm_s": said["total_s"] - said["load_s"],
        "pss_bytes": memory.pss_bytes,
        "rss_bytes": memory.rss_bytes,
        "batches": worker.signature.batches,
        "calls": calls,
    }


def _loaded(worker: LoneWorker) -> dict[str, float]:
    """What the worker logged of its load."""
    return next(json.loads(line) for line in worker.words.lines if '"event": "loaded"' in line)


async def _calls(case: Case, bare: Bare, worker: LoneWorker, caller: Caller, rows: int, plan: Plan) -> dict[str, Any]:
    """The median call of the quietest round of each kind; they take turns, so that both meet what else goes on."""
    inputs, size = sizes(case.inputs(rows))
    ours, theirs, cpu, compute = [], [], [], []
    for _ in range(plan.rounds):
        theirs.append(await bare.measure(rows, plan.round_s))
        before, times, inside = use_of([worker.process.pid]), [], []
        end = time.perf_counter() + plan.round_s
        while time.perf_counter() < end:
            at = time.perf_counter_ns()
            reply = await caller.call(inputs, rows, size)
            times.append(time.perf_counter_ns() - at)
            inside.append(reply.total_ns)
        ours.append(times)
        compute.append(median(inside))
        cpu.append((use_of([worker.process.pid]).cpu_ns - before.cpu_ns) / len(times))
    call_us = min(median(times) for times in ours) / 1e3
    bare_us = min(median(part["ns"]) for part in theirs) / 1e3
    return {
        "rows": rows,
        "bare_us": bare_us,
        "hot_us": min(median(part["hot_ns"]) for part in theirs) / 1e3,
        "call_us": call_us,
        "call_p99_us": min(quantiles(times, n=100)[-1] for times in ours) / 1e3,
        "backend_us": min(compute) / 1e3,
        "overhead_us": call_us - bare_us,
        "aim_us": AIM_US + AIM_SHARE * bare_us,
        "cpu_us": min(cpu) / 1e3,
        "bare_cpu_us": min(part["cpu_ns"] / len(part["ns"]) for part in theirs) / 1e3,
    }


async def _check(case: Case, caller: Caller) -> None:
    """Only right answers count: rows together are answered as each alone. RuntimeError if they are not."""
    count = 5
    inputs = case.inputs(count)
    together = _outputs(await caller.call(*_request(inputs)))
    for row in range(count):
        alone = _outputs(await caller.call(*_request({name: array[row : row + 1] for name, array in inputs.items()})))
        for name, array in alone.items():
            same = np.allclose if array.dtype.kind == "f" else lambda a, b, **_: np.array_equal(a, b)
            if not same(array[0], together[name][row], **_ALIKE):
                raise RuntimeError(f"{case.framework}: output {name!r} of row {row} is another one in a batch")


def _request(inputs: dict[str, Any]) -> tuple[Any, int, int]:
    sent, size = sizes(inputs)
    return sent, len(next(iter(inputs.values()))), size


def _outputs(reply: pb.Reply) -> dict[str, np.ndarray]:
    return {each.name: arrays.decode(each.datatype, each.shape, each.data) for each in reply.outputs}


async def _swaps(case: Case, file: Path, count: int) -> list[float]:
    """Seconds from new content in the repository until it serves and the old worker is gone, in a whole runtime."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as name:
        folder = Path(name)
        async with EtcdProcess(folder / "etcd", fsync=False) as etcd:
            pod = Pod(folder, etcd)
            try:
                return await _swap_in(pod, case, file, count)
            finally:
                await pod.close()


async def _swap_in(pod: Pod, case: Case, file: Path, count: int) -> list[float]:
    version = pod.models / "m" / "1"
    shutil.copytree(file.parent, version)
    await pod.put("models/m", {"batching": {"max_batch_size": 64}, **case.spec})
    times = []
    async with pod.running():
        digest = (await pod.instance("m", "1")).digest
        for number in range(count):
            incoming = version.with_name("incoming")
            shutil.copytree(file.parent, incoming)
            (incoming / "NOTES.md").write_text(f"copy {number}\n")
            began = time.perf_counter()
            version.rename(version.with_name("outgoing"))
            incoming.rename(version)
            await pod.until("the new content alone", lambda old=digest: _is_swapped(pod, old))
            times.append(time.perf_counter() - began)
            shutil.rmtree(version.with_name("outgoing"))
            digest = (await pod.instance("m", "1")).digest
    return times


def _is_swapped(pod: Pod, old: str) -> bool:
    instance = pod.find("m", "1")
    digests = {each.digest for each in pod.state.instances}
    return instance is not None and old not in digests and pod.find("m", "1", 2) is not None
