"""A few bytes shared by a worker and its supervisor: when the batch in progress began, how many are done, and a pulse.

The worker writes, the supervisor reads. Both clocks are CLOCK_MONOTONIC of one host.
"""

import fcntl
import mmap
import os

_FIXED_SIZE = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_BYTES = 24  # int64 began_ns (0 = idle), int64 batches, int64 pulse_ns (0 = does not serve yet)


class Stamp:
    """The mapped memory; either end."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, _BYTES)
        self._words = memoryview(self._map).cast("q")

    @staticmethod
    def create() -> int:
        """A new memory file for one worker; the caller owns the descriptor."""
        fd = os.memfd_create("turnout-stamp", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, _BYTES)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _FIXED_SIZE)  # a file that shrinks would kill whoever reads it mapped
        return fd

    def begin(self, now_ns: int) -> None:
        self._words[0] = now_ns

    def end(self, now_ns: int) -> None:
        self._words[2] = now_ns  # first: no batch could beat meanwhile
        self._words[0] = 0
        self._words[1] += 1

    def beat(self, now_ns: int) -> None:
        """Say that the worker's loop turns."""
        self._words[2] = now_ns

    def busy_ns(self, now_ns: int) -> int:
        """How long the batch in progress has run; 0 when there is none."""
        began: int = self._words[0]
        return max(0, now_ns - began) if began else 0

    def silent_ns(self, now_ns: int) -> int:
        """How long the loop has not turned while it ran no batch; 0 while it runs one, or does not serve yet."""
        pulse: int = self._words[2]
        return max(0, now_ns - pulse) if pulse and not self._words[0] else 0

    @property
    def batches(self) -> int:
        return int(self._words[1])

    def close(self) -> None:
        self._words.release()
        self._map.close()
