"""The mesh that everything is measured through: etcd, a router and a pod for each rule, all real processes.

A pod is a batcher with that rule and, beside it, a synthetic device or a real runtime. Callers choose the rule by the
model's name: MODEL-POD.
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import aiohttp

from loadtest.batching.job import Job
from loadtest.batching.processes import uses
from loadtest.batching.worker import Device
from loadtest.mesh_stats import children
from services.cli.processes import Child
from services.core import keys
from services.core.registry import ServiceRecord
from tests.support.mesh import Mesh, until

OURS = "ours"
_STOP_S = 10.0
_ANSWER_S = 60.0  # beyond what a job takes
_MESH = ("feature-proxy", "shadow", "router")
_LAUNCHES = re.compile(r'^turnout_batcher_batch_rows_(sum|count)\{.*model="([^"]+)".*\} ([0-9.e+]+)$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PodPlan:
    """One pod: whose rule, and what it serves."""

    name: str
    rule: str = OURS
    slots: int = 2
    devices: tuple[Device, ...] = ()  # synthetic models; () = a real runtime
    specs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # model -> its `batching`


class Pod:
    """A pod's processes."""

    def __init__(self, plan: PodPlan, mesh: Mesh, run: Path) -> None:
        self.plan = plan
        place = run / plan.name
        common = {
            "ETCD_ENDPOINTS": mesh.etcd.endpoint,
            "METRICS_ADDRESS": "127.0.0.1:0",
            "PARENT_DEATH": "true",
            "DRAIN_S": "2",
            "RUN_DIR": str(place),
        }
        batcher = {
            **common,
            "DATA_DIR": str(mesh.folder / "state" / f"batcher-{plan.name}"),
            "LINK_ADDRESS": "127.0.0.1:0",
            "POD": plan.name,
        }
        module = ["services.batcher"] if plan.rule == OURS else ["loadtest.batching.rule_batcher", "--rule", plan.rule]
        logs = mesh.folder / "logs"
        self.batcher = _child(f"batcher-{plan.name}", module, _environment("BATCHER", batcher), logs)
        if plan.devices:
            arguments = ["--run-dir", str(place), "--slots", str(plan.slots), "--parent", str(os.getpid())]
            for device in plan.devices:
                arguments += ["--model", device._replace(model=f"{device.model}-{plan.name}").text()]
            self.runtime = _child(f"device-{plan.name}", ["loadtest.batching.worker", *arguments], {}, logs)
        else:
            runtime = {
                **common,
                "DATA_DIR": str(mesh.folder / "state" / f"runtime-{plan.name}"),
                "REPOSITORY": mesh.repository.absolute().as_uri(),
                "POOL": plan.name,
            }
            self.runtime = _child(f"runtime-{plan.name}", ["services.runtime"], _environment("RUNTIME", runtime), logs)

    @property
    def models(self) -> list[str]:
        return [f"{model}-{self.plan.name}" for model in self.plan.specs]

    def parts(self) -> dict[str, list[int]]:
        """Part -> its pids."""
        workers = [self.runtime.pid] if self.plan.devices else children(self.runtime.pid)
        return {"batcher": [self.batcher.pid], "worker": workers}

    async def stop(self) -> None:
        await self.batcher.stop(_STOP_S)
        await self.runtime.stop(_STOP_S)


class Bed:
    """The mesh, its pods and the generator."""

    def __init__(self, folder: Path) -> None:
        self.mesh = Mesh(folder, only=_MESH)
        self.pods: dict[str, Pod] = {}
        self._run = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))
        self._address = ""
        self._generator: asyncio.subprocess.Process

    async def __aenter__(self) -> Self:
        try:
            await self.mesh.__aenter__()
            self._address = await self.mesh.listening("router", "grpc")
            self._generator = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "loadtest.batching.generator"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=1 << 20,
            )
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if hasattr(self, "_generator"):
            with contextlib.suppress(ProcessLookupError):
                self._generator.terminate()
            await self._generator.wait()
        for pod in self.pods.values():
            await pod.stop()
        await self.mesh.close()
        shutil.rmtree(self._run, ignore_errors=True)

    async def add(self, *plans: PodPlan) -> None:
        """Start pods, and return when all their models can be called."""
        for plan in plans:
            pod = self.pods[plan.name] = Pod(plan, self.mesh, self._run)
            for model, batching in plan.specs.items():
                spec = {"default_version": "1", "placement": {"pool": plan.name}, "batching": batching}
                await self.mesh.put(f"models/{model}-{plan.name}", spec)
            pod.runtime.start()
            pod.batcher.start()
        for plan in plans:
            for model in self.pods[plan.name].models:
                await self.mesh.serving(model, "1")

    async def remove(self, *names: str) -> None:
        for name in names:
            await self.pods.pop(name).stop()

    def parts(self, pod: str) -> dict[str, list[int]]:
        """Part -> pids of what serves a pod's models, the generator apart."""
        router = self.mesh.child("router").pid
        return {"generator": [self._generator.pid], "router": [router], **self.pods[pod].parts()}

    async def measure(self, pod: str, job: Job) -> dict[str, Any]:
        """Run `job` (its model without the pod's name, its address filled in here); its outcome, and its costs."""
        job = replace(job, address=self._address, model=f"{job.model}-{pod}")
        before, launches = uses(self.parts(pod)), await self._launches(pod, job.model)
        outcome = await self._ask(job)
        after, launched = uses(self.parts(pod)), await self._launches(pod, job.model)
        batches = launched[1] - launches[1]
        outcome["batch_rows"] = (launched[0] - launches[0]) / batches if batches else 0.0
        requests = max(1.0, job.rate * (job.warm_s + job.window_s))
        outcome["cpu_us"] = {part: (after[part].cpu_ns - before[part].cpu_ns) / 1e3 / requests for part in after}
        outcome["resident_bytes"] = {part: use.resident_bytes for part, use in after.items()}
        return outcome

    async def _ask(self, job: Job) -> dict[str, Any]:
        stdin, stdout = self._generator.stdin, self._generator.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the generator has no pipes")
        stdin.write(job.line().encode())
        async with asyncio.timeout(job.warm_s + job.window_s + job.deadline_ms / 1e3 + _ANSWER_S):
            line = await stdout.readline()
        if not line:
            raise RuntimeError(f"the generator has ended; its words are above. Logs: {self.mesh.folder / 'logs'}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{job.model} at {job.rate:g}/s: {answer['error']}")
        return answer

    async def _launches(self, pod: str, model: str) -> tuple[float, float]:
        """Rows and batches launched so far for a model."""
        address = await until(f"batcher-{pod} has a record", lambda: self._metrics(pod))
        async with aiohttp.ClientSession() as client, client.get(f"http://{address}/metrics") as response:
            text = await response.text()
        found = {what: float(value) for what, name, value in _LAUNCHES.findall(text) if name == model}
        return found.get("sum", 0.0), found.get("count", 0.0)

    async def _metrics(self, pod: str) -> str | None:
        listing = await self.mesh.client.list(f"{keys.SERVICES}batcher/")
        records = [ServiceRecord.parse(entry.value) for entry in listing.entries.values()]
        return next((record.metrics for record in records if record.pid == self.pods[pod].batcher.pid), None)


def _child(name: str, module: Sequence[str], environment: Mapping[str, str], logs: Path) -> Child:
    return Child(name, [sys.executable, "-m", *module], {**os.environ, **environment}, logs / f"{name}.log")


def _environment(service: str, settings: Mapping[str, str]) -> dict[str, str]:
    return {f"TURNOUT_{service}_{name}": value for name, value in settings.items()}
