"""Keeps children alive: one that dies is said in one line and started again after a growing pause."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Self

from services.chassis.lifecycle import EXIT_BAD_CONFIG, EXIT_CANNOT_LISTEN
from services.cli.errors import CliError
from services.cli.processes import Child, describe_exit

_HOPELESS = {EXIT_BAD_CONFIG, EXIT_CANNOT_LISTEN}  # starting again would end the same way
_EARLY_DEATHS = 4  # in a row before everything was ready
_TRIM_LOGS_S = 5.0
_STOP_S = 10.0  # of one child; then it is killed


class Restarts:
    """How long to wait before a child is started again: longer after each death, from the start after a calm time."""

    def __init__(self, first_s: float = 0.5, most_s: float = 10.0, calm_s: float = 30.0) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._calm_s = calm_s
        self._deaths = 0

    def next_s(self, lived_s: float) -> float:
        """The pause after a life of `lived_s`."""
        if lived_s >= self._calm_s:
            self._deaths = 0
        self._deaths += 1
        return min(self._most_s, self._first_s * 2.0 ** min(self._deaths - 1, 10))


class Supervisor:
    """A context in which `children` run, started in order and stopped in reverse order.

    Before `settle()` a death that a new start does not mend is an error, which `failed` carries.
    """

    def __init__(self, children: Sequence[Child], say: Callable[[str], None]) -> None:
        self.children = list(children)
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._say = say
        self._settled = False
        self._keepers: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        for child in self.children:
            child.start()
        self._keepers = [asyncio.create_task(self._keep(child), name=f"keep-{child.name}") for child in self.children]
        self._keepers.append(asyncio.create_task(self._trim_logs(), name="trim-logs"))
        return self

    async def __aexit__(self, *_: object) -> None:
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        self.failed.cancel()
        for child in reversed(self.children):
            if not await child.stop(_STOP_S):
                self._say(f"{child.name} did not stop within {_STOP_S:g} s and was killed")

    def settle(self) -> None:
        """From now on every death is answered by a new start."""
        self._settled = True

    async def _keep(self, child: Child) -> None:
        restarts = Restarts()
        deaths = 0
        while True:
            code = await child.wait()
            deaths += 1
            if not self._settled and (code in _HOPELESS or deaths == _EARLY_DEATHS):
                self._fail(f"{child.name} cannot start: {child.last_words()}")
                return
            pause_s = restarts.next_s(time.monotonic() - child.started_at)
            words = f" ({child.last_words()})" if code > 0 else ""
            again = f"starting it again in {pause_s:g} s (log: {child.log}.1)"
            self._say(f"{child.name} {describe_exit(code)}{words}; {again}")
            await asyncio.sleep(pause_s)
            child.start()

    def _fail(self, message: str) -> None:
        if not self.failed.done():
            self.failed.set_exception(CliError(message))

    async def _trim_logs(self) -> None:
        while True:
            await asyncio.sleep(_TRIM_LOGS_S)
            for child in self.children:
                child.trim_log()
