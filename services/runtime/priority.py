"""How a worker that loads stands back behind those that serve, and how it comes forward again.

Priorities are of threads, and new threads inherit them. Where the kernel groups sessions (autogroup), a priority counts
only inside its session, which a worker has for itself: then that of its group is what counts, and both are set.
"""

import asyncio
import contextlib
import os
import re
import resource
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import structlog

from services.runtime.processes import Family
from turnout.v1 import runtime_pb2 as pb

LONGEST_S = 20.0  # behind others: where cores are never idle, a load takes three times as long at a nice value of 5
_LOWEST = 19
_CAP_SYS_NICE = 23
_CAPABILITIES = re.compile(r"^CapEff:\s+([0-9a-f]+)$", re.MULTILINE)
_ROUNDS = 10
_TRIES, _PAUSE_S = 30, 0.1  # who may not do everything may change a group ten times a second

log = structlog.get_logger()


def may_raise(status: str, limit: int, own: int, *, same_user: bool) -> bool:
    """Whether a process may put others that it has lowered back to `own`, its priority.

    `status` is its /proc/self/status, `limit` its RLIMIT_NICE, which helps with processes of its own user only.
    """
    found = _CAPABILITIES.search(status)
    if found and int(found[1], 16) >> _CAP_SYS_NICE & 1:
        return True
    return same_user and (limit == resource.RLIM_INFINITY or limit >= 20 - own)


def step_of(nice: int, *, same_user: bool) -> int:
    """How far this process lets workers stand back: `nice`, or 0 where it could not put them forward again."""
    status, own = Path("/proc/self/status").read_text(), os.getpriority(os.PRIO_PROCESS, 0)
    limit, _ = resource.getrlimit(resource.RLIMIT_NICE)
    step = min(nice, _LOWEST - own)
    return step if step > 0 and may_raise(status, limit, own, same_user=same_user) else 0


def is_spared(instance: pb.Instance, others: Iterable[pb.Instance], *, is_restart: bool) -> bool:
    """Whether callers have another to go to meanwhile: for one that was ready, another of its version."""
    return any(
        other.state == pb.READY and other.id != instance.id and other.model == instance.model
        and (other.version == instance.version or not is_restart)
        for other in others
    )  # fmt: skip


class StandingBack:
    """One worker's load. `look` is called now and then, `end` when it is over."""

    def __init__(self, pid: int, step: int, is_spared: Callable[[], bool], load_timeout_s: float, now_s: float) -> None:
        self._pid = pid
        self._own = os.getpriority(os.PRIO_PROCESS, 0)
        self._behind = self._own + step
        self._is_spared = is_spared
        self._until_s = now_s + min(LONGEST_S, load_timeout_s / 2)
        self._is_back = False
        if step and is_spared():
            self._step_back(step)

    async def look(self, now_s: float) -> None:
        """Come forward where it has stood back for long, or where callers wait for it now."""
        if self._is_back and not (now_s < self._until_s and self._is_spared()):
            await self.end()

    async def end(self) -> None:
        """Bring it forward, with every thread and process that it has started."""
        if not self._is_back:
            return
        self._is_back = False
        try:
            await asyncio.to_thread(self._come_forward)
        except OSError as error:
            log.warning("worker_stays_back", pid=self._pid, reason=str(error))

    def _step_back(self, step: int) -> None:
        self._is_back = True
        with contextlib.suppress(OSError):
            for thread in _threads(self._pid):
                os.setpriority(os.PRIO_PROCESS, thread, self._behind)
            _set_group(self._pid, step)

    def _come_forward(self) -> None:
        """Blocks, for seconds at most. Raises OSError."""
        self._raise_threads()
        for _ in range(_TRIES):
            try:
                _set_group(self._pid, 0)
            except BlockingIOError:
                time.sleep(_PAUSE_S)
            else:
                return
        raise TimeoutError("the kernel does not let its session come forward")

    def _raise_threads(self) -> None:
        for _ in range(_ROUNDS):  # a thread that starts another one meanwhile hands on what it had
            behind = [thread for each in (self._pid, *Family().below(self._pid)) for thread in _threads(each)
                      if _nice(thread) == self._behind]  # fmt: skip
            if not behind:
                return
            for thread in behind:
                with contextlib.suppress(ProcessLookupError):
                    os.setpriority(os.PRIO_PROCESS, thread, self._own)


def _threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208 - names are all that is needed
    except OSError:
        return []


def _nice(thread: int) -> int | None:
    try:
        return os.getpriority(os.PRIO_PROCESS, thread)
    except ProcessLookupError:
        return None


def _set_group(pid: int, nice: int) -> None:
    """Of the session of `pid`, where the kernel groups sessions. Raises OSError."""
    try:
        Path(f"/proc/{pid}/autogroup").write_text(str(nice))
    except (FileNotFoundError, ProcessLookupError):
        return  # a kernel without, or the process is gone
