"""Looks at one worker: memory, time, files and processes against its model's limits, and whether it lives at all."""

import time
from typing import NamedTuple

from services.core.model_spec import Limits
from services.runtime.nursery import Nursery
from services.runtime.process import WorkerProcess
from services.runtime.processes import open_files, proportional_bytes, resident_bytes

_SHORTEST_S, _LONGEST_S = 0.05, 1.0  # between two looks
_LEAST_RATE = 512 << 20  # bytes a second that memory is expected to grow by at any moment
_LEAST_SILENCE_MS = 5000  # a busy machine is no reason to kill


class Failure(NamedTuple):
    """Why a life of the worker ended."""

    kind: str  # of a closed set, for metrics: see docs/isolation.md
    reason: str
    is_final: bool = False
    waits: bool = False  # for something elsewhere: it is tried again for as long as it takes
    ready_for_s: float = 0.0
    was_ready: bool = False


def pause_s(limits: Limits, used: int, growth: float) -> float:
    """Seconds until the next look, if `used` bytes of memory grow by `growth` a second: half of what is left."""
    pauses = [_LONGEST_S, limits.max_execution_ms / 4000]
    if limits.max_memory_bytes is not None:
        pauses.append((limits.max_memory_bytes - used) / (2 * max(growth, _LEAST_RATE)))
    return max(_SHORTEST_S, min(pauses))


class Watchdog:
    """Of one process of an instance. `memory_bytes` and `pause_s` are of the last look."""

    def __init__(self, worker: WorkerProcess, nursery: Nursery) -> None:
        self.memory_bytes = 0
        self.pause_s = _SHORTEST_S
        self._worker = worker
        self._nursery = nursery
        self._looked_s = time.monotonic()
        self._silences = 0  # looks in a row at a worker that is silent for too long

    def look(self, limits: Limits) -> Failure | None:
        """What the worker is to be killed for, if anything."""
        below = self._nursery.below(self._worker.pid)
        return (
            self._over_memory(limits, below)
            or self._over_time(limits)
            or self._over_counts(limits, below)
            or self._unreachable()
        )

    def _over_memory(self, limits: Limits, below: list[int]) -> Failure | None:
        limit = limits.max_memory_bytes
        family = [self._worker.pid, *below]
        used = sum(map(resident_bytes, family))
        if below and limit is not None and used > limit:  # forks share most pages: these were counted many times
            used = sum(map(proportional_bytes, family))
        now_s = time.monotonic()
        growth = (used - self.memory_bytes) / max(1e-3, now_s - self._looked_s) if self.memory_bytes else 0
        self.memory_bytes, self._looked_s = used, now_s
        self.pause_s = pause_s(limits, used, growth)
        if limit is None or used <= limit:
            return None
        among = f" in {len(family)} processes" if below else ""
        return Failure("memory", f"used {used} bytes of memory{among}, over limits.max_memory_bytes {limit}")

    def _over_time(self, limits: Limits) -> Failure | None:
        limit, worker = limits.max_execution_ms, self._worker
        busy_ms = worker.busy_ms()
        if busy_ms > limit:
            return Failure("execution", f"ran one batch for {busy_ms:.0f} ms, over limits.max_execution_ms {limit}")
        silent_ms = worker.silent_ms()
        self._silences = self._silences + 1 if silent_ms > max(limit, _LEAST_SILENCE_MS) else 0
        if self._silences > 1:  # at one look only, the whole host may have been frozen
            return Failure("silent", f"showed no sign of life for {silent_ms:.0f} ms between batches")
        return None

    def _over_counts(self, limits: Limits, below: list[int]) -> Failure | None:
        processes = 1 + len(below)
        if processes > limits.max_processes:
            return Failure("processes", f"has {processes} processes, over limits.max_processes {limits.max_processes}")
        files = open_files(self._worker.pid)
        if files > limits.max_open_files:
            return Failure("files", f"holds {files} open files, over limits.max_open_files {limits.max_open_files}")
        return None

    def _unreachable(self) -> Failure | None:
        return None if self._worker.is_reachable() else Failure("socket", "the socket that it listens on was removed")
