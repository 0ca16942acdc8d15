"""What the kernel says of processes: processor time to the nanosecond, wake-ups, memory."""

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

_PAGE_BYTES = 4096


class Use(NamedTuple):
    """What processes have used so far; of all their threads."""

    cpu_ns: int
    wakes: int  # times that a thread slept and was woken
    resident_bytes: int

    def since(self, before: "Use") -> "Use":
        return Use(self.cpu_ns - before.cpu_ns, self.wakes - before.wakes, self.resident_bytes - before.resident_bytes)


def use_of(pids: Iterable[int]) -> Use:
    """The sum over `pids`."""
    cpu_ns = wakes = pages = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        for task in Path(f"/proc/{pid}/task").glob("*"):
            with contextlib.suppress(OSError):  # a thread that has just ended
                cpu_ns += int((task / "schedstat").read_text().split()[0])
                wakes += _voluntary_switches((task / "status").read_text())
    return Use(cpu_ns, wakes, pages * _PAGE_BYTES)


def uses(parts: Mapping[str, list[int]]) -> dict[str, Use]:
    return {name: use_of(pids) for name, pids in parts.items()}


def _voluntary_switches(status: str) -> int:
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("voluntary_ctxt_switches"))
