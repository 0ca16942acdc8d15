"""A whole session: pods up, every point measured, what was found."""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadtest.batching import verdicts
from loadtest.batching.bed import OURS, Bed
from loadtest.batching.experiments import Curve, lone_pod, pods
from loadtest.batching.job import Job
from loadtest.batching.processes import uses
from loadtest.batching.verdicts import Verdict
from loadtest.workloads import write_repository

LONE, IDLE = "lone", "idle"
_SETTLE_S = 2.0  # before a mesh is called idle
_LONE_S = 1.5


@dataclass(slots=True)
class Findings:
    """Everything that was measured."""

    points: list[dict[str, Any]] = field(default_factory=list)
    lone: dict[str, dict[str, Any]] = field(default_factory=dict)
    idle: dict[str, dict[str, float]] = field(default_factory=dict)  # part -> percent of a core, wakes a second
    verdicts: list[Verdict] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        told = [verdict.as_json() for verdict in self.verdicts]
        return {"points": self.points, "lone": self.lone, "idle": self.idle, "verdicts": told}


Step = Callable[[str], None]  # told before each step what it is


def steps(curves: Sequence[Curve], extras: Sequence[str]) -> int:
    """How many steps `measure` will tell of."""
    return sum(len(list(curve.jobs(""))) + bool(curve.sustained_s) for curve in curves) + len(extras) + 1


async def measure(curves: Sequence[Curve], extras: Sequence[str], idle_s: float, step: Step) -> Findings:
    """All of it. Raises RuntimeError or AssertionError when a process fails; its logs are kept then."""
    folder = Path(tempfile.mkdtemp(prefix="turnout-bench-"))
    findings = Findings()
    try:
        async with Bed(folder) as bed:
            step("starting")
            await _start(bed, curves, lone=LONE in extras)
            if LONE in extras:
                step("one caller alone")
                await _lone(bed, findings)
            for curve in curves:
                await _curve(bed, curve, findings, step)
            if IDLE in extras:
                step(f"idle for {idle_s:g} s")
                await _idle(bed, findings, idle_s)
    except Exception as error:
        error.add_note(f"logs are in {folder / 'logs'}")
        raise
    shutil.rmtree(folder)
    return findings


async def _start(bed: Bed, curves: Sequence[Curve], *, lone: bool) -> None:
    plans = pods(curves)
    real = [plan.name for plan in plans if not plan.devices]
    if real:
        write_repository(bed.mesh.repository)
        for name in real:
            shutil.copytree(bed.mesh.repository / "ranker", bed.mesh.repository / f"ranker-{name}")
    await bed.add(*plans, *([lone_pod()] if lone else []))


async def _curve(bed: Bed, curve: Curve, findings: Findings, step: Step) -> None:
    repository = str(bed.mesh.repository)
    for rule, kind, rate, job in curve.jobs(repository):
        step(f"{curve.name}: {rule}, {kind}, {rate:,.0f}/s")
        outcome = await bed.measure(curve.pod(rule), job)
        head = {"curve": curve.name, "rule": rule, "kind": kind, "rate": rate, "deadline_ms": curve.deadline_ms}
        findings.points.append(head | outcome)
    if curve.sustained_s:
        step(f"{curve.name}: memory")
        findings.verdicts += await _memory(bed, curve)


async def _memory(bed: Bed, curve: Curve) -> list[Verdict]:
    """The highest rate twice more: what it needs is there after the first time."""
    last = [job for rule, _, _, job in curve.jobs(str(bed.mesh.repository)) if rule == OURS][-1]
    after = [(await bed.measure(curve.pod(OURS), last))["resident_bytes"] for _ in range(2)]
    return [verdicts.memory_flat(curve.name, *after)]


async def _lone(bed: Bed, findings: Findings) -> None:
    for model in ("lone", "lone-delayed"):
        job = Job(address="", model=model, warm_s=0.3, window_s=_LONE_S, deadline_ms=1000, timings=True)
        findings.lone[model] = await bed.measure("lone", job)
    findings.verdicts += verdicts.lone(findings.lone["lone"], findings.lone["lone-delayed"])


async def _idle(bed: Bed, findings: Findings, idle_s: float) -> None:
    await asyncio.sleep(_SETTLE_S)
    parts = {name: pids for name, pids in everything(bed).items() if name != "generator"}
    before = uses(parts)
    await asyncio.sleep(idle_s)
    after = uses(parts)
    for name in parts:
        use = after[name].since(before[name])
        findings.idle[name] = {"cpu_percent": use.cpu_ns / idle_s / 1e7, "wakes_s": use.wakes / idle_s}
    findings.verdicts.append(verdicts.idle({name: each["cpu_percent"] for name, each in findings.idle.items()}))


def everything(bed: Bed) -> Mapping[str, list[int]]:
    """Every process of ours: the mesh's own, and our pod's; those of the other rules are the same services."""
    found = {name: [bed.mesh.child(name).pid] for name in ("router", "feature-proxy", "shadow")}
    for name, pod in bed.pods.items():
        if pod.plan.rule == OURS:
            found[f"batcher of {name}"] = [pod.batcher.pid]
            if not pod.plan.devices:
                found[f"runtime of {name}"] = [pod.runtime.pid]
                found[f"worker of {name}"] = pod.parts()["worker"]
    return found


def judge(curves: Sequence[Curve], findings: Findings) -> None:
    """Hold the points against what is claimed."""
    judged: list[Verdict] = []
    for curve in curves:
        if curve.name == "shapes":
            judged.append(verdicts.times_triton(findings.points, curve.name))
        elif curve.sustained_s:
            judged += verdicts.overload(findings.points, curve.name)
            judged.append(verdicts.refusing(findings.points, curve.name))
        else:
            for kind in curve.kinds:
                judged.append(verdicts.times_single(findings.points, curve.name, kind))
                judged += verdicts.within_best(findings.points, curve.name, kind)
        if curve.is_real:
            judged.append(verdicts.beyond(findings.points, curve.name))
    findings.verdicts[:0] = judged
