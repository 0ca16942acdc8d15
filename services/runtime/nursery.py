"""The children of this process: its workers, and what ended workers left behind, which is ended too.

Where this process adopts orphans, a descendant of a worker that left its session and lost its parents is below the
worker while that lives (workers adopt as well), and a child of this process after it: nothing gets away.
"""

import asyncio
import contextlib
import os
import signal
import time

import structlog

from services.chassis.process import adopt_orphans
from services.runtime.processes import Family

_LOOK_S = 1.0  # how old what is known of families may be
_ROUNDS, _PAUSE_S = 200, 0.01
_SWEEP_S = 5.0

log = structlog.get_logger()


class Nursery:
    """One a process. `adopts`: orphans below this process become its children, which all must be workers' then."""

    def __init__(self, *, adopts: bool = False) -> None:
        self.lock = asyncio.Lock()  # held while a worker starts: it is not yet known as one
        self._adopts = adopts
        self._workers: set[int] = set()
        self._family: Family | None = None
        self._family_s = float("-inf")
        if adopts:
            adopt_orphans()

    def add(self, worker: int) -> None:
        self._workers.add(worker)

    async def ended(self, worker: int) -> None:
        """A worker is gone: end what it left."""
        self._workers.discard(worker)
        await self.end_strays()

    def below(self, worker: int) -> list[int]:
        """Processes that a worker started, and those that they started; as of a second ago at most."""
        now_s = time.monotonic()
        if self._family is None or now_s - self._family_s >= _LOOK_S:
            self._family, self._family_s = Family(), now_s
        return self._family.below(worker)

    async def run(self) -> None:
        """End for ever what workers left behind while they live."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            await self.end_strays()

    async def end_strays(self) -> None:
        """Kill every child that is no worker, and what that leaves, until there is none."""
        if not self._adopts:
            return
        async with self.lock:
            for _ in range(_ROUNDS):
                strays = [pid for pid in Family().children(os.getpid()) if pid not in self._workers]
                if not strays:
                    return
                for pid in strays:
                    _kill(pid)
                await asyncio.sleep(_PAUSE_S)
            log.error("strays_not_ended", processes=len(strays))


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
