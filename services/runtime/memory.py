"""How much memory a new process may still take: what the host has to spare, within every control group around us."""

import re
from pathlib import Path

_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
_AVAILABLE = re.compile(r"^MemAvailable:\s+(\d+) kB$", re.MULTILINE)
_INACTIVE = re.compile(r"^inactive_file (\d+)$", re.MULTILINE)
_UNKNOWN = 1 << 62


def free_bytes(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int:
    """Bytes that can be had without anything being killed for them; a very large number where nobody says."""
    free = _UNKNOWN
    if found := _AVAILABLE.search(_read(proc / "meminfo")):
        free = int(found[1]) << 10
    return min([free, *(_left(group) for group in _groups(proc, cgroups))])


def in_words(size: int) -> str:
    """1.2 GiB, 340 MiB."""
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{max(0, size) >> 20} MiB"


def _groups(proc: Path, cgroups: Path) -> list[Path]:
    """Our own group and all above it (version 2 of control groups)."""
    own = next((line[3:] for line in _read(proc / "self" / "cgroup").splitlines() if line.startswith("0::")), "/")
    folder = cgroups / own.strip("/")
    return [folder, *(above for above in folder.parents if above.is_relative_to(cgroups))]


def _left(group: Path) -> int:
    """What a group may still take: pages of files that nobody used lately make room."""
    limit = _read(group / "memory.max").strip()
    if not limit.isdecimal():
        return _UNKNOWN
    inactive = _INACTIVE.search(_read(group / "memory.stat"))
    used = int(_read(group / "memory.current").strip() or 0) - (int(inactive[1]) if inactive else 0)
    return int(limit) - used


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
