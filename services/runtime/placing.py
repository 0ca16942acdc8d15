"""Where an instance runs: which GPU it sees, which processor cores it keeps to, how many threads it has."""

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, Self

from services.core.model_spec import Instances
from services.runtime.backends import Device

_DEVICES, _NODES, _CGROUPS = Path("/dev"), Path("/sys/devices/system/node"), Path("/sys/fs/cgroup")
_VISIBLE = "CUDA_VISIBLE_DEVICES"


class Host(NamedTuple):
    """What of the host this process may use."""

    gpus: tuple[str, ...]  # numbers or UUIDs, as CUDA_VISIBLE_DEVICES names them
    cpus: frozenset[int]
    nodes: Mapping[int, frozenset[int]]  # NUMA node -> its cores, as far as they are ours
    cores: float  # as many as may be busy at once

    @classmethod
    def look(cls, environ: Mapping[str, str] = os.environ) -> Self:
        cpus = frozenset(os.sched_getaffinity(0))
        quotas = [float(len(cpus)), *_quotas(_CGROUPS)]
        return cls(visible_gpus(_DEVICES, environ), cpus, numa_nodes(_NODES, cpus), min(quotas))


class Place(NamedTuple):
    """Of one instance; `fault` says why there is none."""

    device: Device = "cpu"
    visible_gpus: str | None = None  # None = as they are
    cpus: tuple[int, ...] = ()  # empty = all
    fault: str = ""


def place(instances: Instances, number: int, host: Host) -> Place:
    """The place of instance `number` of a version: GPUs that are named go round."""
    cpus: tuple[int, ...] = ()
    if instances.numa_node is not None:
        if not host.nodes.get(instances.numa_node):
            known = ", ".join(map(str, sorted(host.nodes))) or "none"
            return Place(fault=f"instances.numa_node is {instances.numa_node}; NUMA nodes of this pod: {known}")
        cpus = tuple(sorted(host.nodes[instances.numa_node]))
    if instances.kind == "cpu" or (instances.kind == "auto" and not (host.gpus or instances.gpus)):
        return Place("cpu", "", cpus)
    if not host.gpus:
        asked = "names gpus" if instances.gpus else "asks for kind gpu"
        return Place(fault=f"instances {asked}, and this pod sees no GPU")
    device: Device = "auto" if instances.kind == "auto" and not instances.gpus else "cuda"
    if not instances.gpus:
        return Place(device, None, cpus)
    gpu = str(instances.gpus[number % len(instances.gpus)])
    if gpu.isdecimal():
        if int(gpu) >= len(host.gpus):
            return Place(fault=f"instances.gpus names {gpu}; this pod sees {len(host.gpus)}, numbered from 0")
        gpu = host.gpus[int(gpu)]  # numbers count what this process sees, as in any program that it would start
    return Place(device, gpu, cpus)


def share(cores: float, instances: int) -> int:
    """Threads of each of so many instances, one core being left to the batcher, so that all can run at once."""
    return max(1, math.floor(cores - 1) // max(1, instances))


def visible_gpus(devices: Path, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The NVIDIA GPUs that a program started from here would see."""
    found = sum(path.name.removeprefix("nvidia").isdecimal() for path in devices.glob("nvidia*"))
    if not found or _VISIBLE not in environ:
        return tuple(map(str, range(found)))
    gpus = []
    for entry in environ[_VISIBLE].split(","):
        gpu = entry.strip()
        if not gpu or gpu.startswith("-"):
            break  # CUDA reads no further
        gpus.append(gpu)
    return tuple(gpus)


def numa_nodes(folder: Path, cpus: frozenset[int]) -> dict[int, frozenset[int]]:
    """Node -> those of its cores that are among `cpus`; empty where the kernel tells of no nodes."""
    nodes = {}
    for path in folder.glob("node[0-9]*/cpulist"):
        number = path.parent.name.removeprefix("node")
        if number.isdecimal():
            nodes[int(number)] = frozenset(parse_list(path.read_text())) & cpus
    return nodes


def parse_list(text: str) -> list[int]:
    """The numbers in a kernel's list like "0-3,8"."""
    numbers: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first:
            numbers += range(int(first), int(last or first) + 1)
    return numbers


def quota(text: str) -> float | None:
    """Cores that cgroup v2's cpu.max allows; None = as many as there are."""
    limit, _, period = text.strip().partition(" ")
    return None if limit == "max" else int(limit) / int(period or 100_000)


def _quotas(folder: Path) -> Iterable[float]:
    """What containers set: seen at the root of their own cgroup tree, v2 or v1."""
    try:
        found = quota((folder / "cpu.max").read_text())
    except (OSError, ValueError):
        try:
            limit = int((folder / "cpu" / "cpu.cfs_quota_us").read_text())
            period = int((folder / "cpu" / "cpu.cfs_period_us").read_text())
        except (OSError, ValueError):
            return []
        found = limit / period if limit > 0 else None
    return [] if found is None else [found]
