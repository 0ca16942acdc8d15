"""What a mesh says of itself while it is loaded: processor time from /proc, counters from /metrics."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import aiohttp

from tests.support.mesh import Mesh

_OK = re.compile(r"^turnout_requests_total\{(.*)\} ([0-9.e+]+)$", re.MULTILINE)
_TICKS = os.sysconf("SC_CLK_TCK")


def processes(mesh: Mesh) -> dict[str, list[int]]:
    """Part -> its pids; a runtime's workers count as a part of their own."""
    parts: dict[str, list[int]] = {}
    for name in mesh.names():
        pid = mesh.child(name).pid
        if pid:
            parts[name] = [pid]
            workers = children(pid)
            if workers:
                parts[name.replace("runtime", "worker")] = workers
    return parts


def cpu_seconds(parts: Mapping[str, list[int]]) -> dict[str, float]:
    """User and system time of each part so far."""
    return {name: sum(_cpu(pid) for pid in pids) for name, pids in parts.items()}


async def ok_count(metrics: str, model: str) -> int:
    """Requests of a model that the router answered OK."""
    async with aiohttp.ClientSession() as client, client.get(f"http://{metrics}/metrics") as response:
        text = await response.text()
    return sum(
        int(float(value))
        for labels, value in _OK.findall(text)
        if f'model="{model}"' in labels and 'code="0"' in labels
    )


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def children(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if int(fields[1]) == pid:
            found.append(int(path.parent.name))
    return sorted(found)
