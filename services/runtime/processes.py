"""Processes as the kernel tells of them: descendants, memory, open files. Reads /proc; what is gone counts nothing."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_MEMORY = re.compile(r"^(VmRSS|RssShmem):\s+(\d+) kB$", re.MULTILINE)
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)
_PROPORTIONAL = re.compile(r"^Pss_(?:Anon|File):\s+(\d+) kB$", re.MULTILINE)
_TELLS_OF_CHILDREN = (_PROC / "thread-self/children").exists()
_MOST = 4096  # descendants looked at


def resident_bytes(pid: int) -> int:
    """Resident memory but for what is shared with others by name; 0 when the process is gone."""
    found = dict(_MEMORY.findall(_read(_PROC / str(pid) / "status")))
    return (int(found.get("VmRSS", 0)) - int(found.get("RssShmem", 0))) << 10


def peak_bytes(pid: int) -> int:
    """The most resident memory that it ever had; 0 when the process is gone."""
    found = _PEAK.search(_read(_PROC / str(pid) / "status"))
    return int(found[1]) << 10 if found else 0


def proportional_bytes(pid: int) -> int:
    """The same, pages shared with its forks counted once among them. Slow: the kernel walks all pages."""
    rollup = _read(_PROC / str(pid) / "smaps_rollup")
    return sum(map(int, _PROPORTIONAL.findall(rollup))) << 10 if rollup else resident_bytes(pid)


def open_files(pid: int) -> int:
    """How many descriptors it holds; 0 when that cannot be seen."""
    folder = _PROC / str(pid) / "fd"
    try:
        return folder.stat().st_size or len(os.listdir(folder))  # noqa: PTH208 - older kernels give no size
    except OSError:
        return 0


class Family:
    """Who is whose child: as of now where the kernel tells of children, else as of when this was made."""

    def __init__(self, *, tells: bool = _TELLS_OF_CHILDREN) -> None:
        self._tells = tells
        self._children: dict[int, list[int]] = {}
        if not tells:
            for pid, parent in _parents():
                self._children.setdefault(parent, []).append(pid)

    def children(self, pid: int) -> list[int]:
        """Zombies included."""
        return list(_children(pid)) if self._tells else self._children.get(pid, [])

    def below(self, pid: int) -> list[int]:
        """Every descendant, nearest first."""
        found: list[int] = []
        generation = [pid]
        while generation and len(found) < _MOST:
            generation = [child for each in generation for child in self.children(each)]
            found += generation
        return found


def _children(pid: int) -> Iterator[int]:
    try:
        tasks = os.listdir(_PROC / str(pid) / "task")  # noqa: PTH208 - names are all that is needed
    except OSError:
        return
    for task in tasks:
        yield from map(int, _read(_PROC / str(pid) / "task" / task / "children").split())


def _parents() -> Iterator[tuple[int, int]]:
    for name in os.listdir(_PROC):  # noqa: PTH208 - a Path for each process would cost as much again
        if name.isdecimal():
            # pid (name) state ppid …: a name may have spaces and brackets in it
            _, _, rest = _read(_PROC / name / "stat").rpartition(")")
            if fields := rest.split(maxsplit=2):
                yield int(name), int(fields[1])


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
