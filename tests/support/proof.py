"""Proof in place of a pause: what a peer has read, and how long processes had no processor."""

import asyncio
import os
import threading
import time
from pathlib import Path

from ngh2.events import PingAcknowledged

from services.chassis.link import Link

TIMEOUT_S = 20.0
_TICK_S = 0.02


async def has_read(link: Link) -> None:
    """Return once the peer has read and handled whatever was sent on `link` before.

    A ping follows it on the same connection, and the peer answers at the end of the turn in which it read both.
    """
    http2, answered = link.protocol, asyncio.Event()
    usual = http2._other

    def look(event: object) -> None:
        usual(event)
        if type(event) is PingAcknowledged:
            answered.set()

    http2._other = look  # type: ignore[method-assign]
    try:
        http2._flush()
        http2._connection.ping()
        http2._pull()
        async with asyncio.timeout(TIMEOUT_S):
            await answered.wait()
    finally:
        del http2._other


class Starvation:
    """How long this process and others wanted a processor and got none, since this was made.

    What a bound on time must forgive on a busy machine, and all that it must forgive. In seconds; 0 where the kernel
    does not say.
    """

    def __init__(self, *pids: int) -> None:
        self._pids = (*pids, os.getpid())
        self._began_s = self._total_s()

    @property
    def seconds(self) -> float:
        return self._total_s() - self._began_s

    def _total_s(self) -> float:
        return max(sum(_waited_ns(pid) for pid in self._pids) / 1e9 + _stolen_s(), _pauses.seconds())


class _Pauses:
    """How much later than due a thread of this process woke up: of a machine that was stopped nothing else tells."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._thread = threading.Thread(target=self._watch, name="pauses", daemon=True)

    def seconds(self) -> float:
        if not self._thread.is_alive():
            self._thread.start()
        return self._seconds

    def _watch(self) -> None:
        before = time.monotonic()
        while True:
            time.sleep(_TICK_S)
            now = time.monotonic()
            self._seconds += max(0.0, now - before - 2 * _TICK_S)
            before = now


_pauses = _Pauses()


def _waited_ns(pid: int) -> int:
    """Time that the threads of a process were ready to run and did not."""
    waited = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            waited += int(path.read_text().split()[1])
        except (OSError, IndexError):
            continue  # the thread has just ended
    return waited


def _stolen_s() -> float:
    """Time that a virtual machine wanted a processor of its host and got none."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return int(fields[8]) / os.sysconf("SC_CLK_TCK")
