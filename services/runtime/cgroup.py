"""Limits that the kernel itself holds, where this process may make groups in a tree of cgroup v2."""

import asyncio
import contextlib
import os
import time
from pathlib import Path
from typing import Self

import structlog

from services.core.model_spec import Limits

_ROOT, _OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_LEAF = "turnout-runtime"  # where this process goes: groups with members may not pass controllers on
_CONTROLLERS = ("memory", "pids")
_TASKS_A_PROCESS = 256  # pids.max counts threads too, and is a backstop: the watchdog counts processes
_EMPTY_S, _PAUSE_S = 2.0, 0.005

log = structlog.get_logger()


class Cgroup:
    """The group of one worker."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def limit(self, limits: Limits) -> None:
        """Hold these from now on. Raises OSError."""
        memory = limits.max_memory_bytes
        self._write("memory.max", "max" if memory is None else str(memory))
        self._write("pids.max", str(limits.max_processes * _TASKS_A_PROCESS))
        with contextlib.suppress(OSError):  # kernels without swap have no such file
            self._write("memory.swap.max", "0")
        self._write("memory.oom.group", "1")

    def add(self, pid: int) -> None:
        """Raises OSError."""
        self._write("cgroup.procs", str(pid))

    @property
    def was_out_of_memory(self) -> bool:
        """Whether the kernel killed in it for want of memory."""
        try:
            lines = (self._folder / "memory.events").read_text().splitlines()
        except OSError:
            return False
        counts = dict(line.split() for line in lines)
        return int(counts.get("oom_kill", 0)) > 0

    async def end(self) -> None:
        """Kill whatever is in it, and remove it."""
        with contextlib.suppress(OSError):  # before Linux 5.14 there is no such file
            self._write("cgroup.kill", "1")
        until_s = time.monotonic() + _EMPTY_S
        while True:
            try:
                self._folder.rmdir()
            except FileNotFoundError:
                return
            except OSError as error:
                if time.monotonic() >= until_s:
                    log.warning("cgroup_not_removed", name=self._folder.name, reason=str(error))
                    return
                await asyncio.sleep(_PAUSE_S)
            else:
                return

    def _write(self, name: str, value: str) -> None:
        (self._folder / name).write_text(value)


class Cgroups:
    """A folder in which groups of workers can be made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def find(cls, root: Path = _ROOT, own: Path = _OWN) -> Self | None:
        """Our own group's, if it can be divided; None says why in the log."""
        try:
            folder = root / _path_in(own.read_text()).lstrip("/")
            _divide(folder)
        except (OSError, ValueError) as error:
            log.info("cgroups_not_used", reason=str(error))
            return None
        log.info("cgroups_used", folder=str(folder))
        return cls(folder)

    def make(self, name: str, limits: Limits) -> Cgroup:
        """A new group. Raises OSError."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        group = Cgroup(folder)
        try:
            group.limit(limits)
        except OSError:
            folder.rmdir()
            raise
        return group


def _path_in(text: str) -> str:
    """The group in the tree of cgroup v2, of /proc/self/cgroup."""
    for line in text.splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            return path
    raise ValueError("this host has no cgroup v2")


def _divide(folder: Path) -> None:
    """Have groups below `folder` get our controllers. Raises OSError or ValueError."""
    given = (folder / "cgroup.controllers").read_text().split()
    missing = [name for name in _CONTROLLERS if name not in given]
    if missing:
        raise ValueError(f"{folder} has no controller {', '.join(missing)}")
    passed_on = (folder / "cgroup.subtree_control").read_text().split()
    if all(name in passed_on for name in _CONTROLLERS):
        return
    members = (folder / "cgroup.procs").read_text().split()
    if members and members != [str(os.getpid())]:
        raise ValueError(f"{folder} holds other processes than this one")
    leaf = folder / _LEAF
    leaf.mkdir(exist_ok=True)
    (leaf / "cgroup.procs").write_text(str(os.getpid()))
    (folder / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in _CONTROLLERS))
