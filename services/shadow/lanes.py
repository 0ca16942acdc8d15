"""What waits and runs per candidate: bounded in count and bytes, and no candidate crowds out the others."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from services.core.names import ModelVersion
from services.shadow.tally import Tally
from turnout.v1 import shadow_pb2 as pb

_OVERHEAD_BYTES = 1024  # of one held mirror beside its tensors


@dataclass(slots=True, eq=False)
class Job:
    """One mirror from its arrival until it is settled: compared, failed or dropped."""

    mirror: pb.Mirror
    tally: Tally
    size_bytes: int
    arrived_at: float  # monotonic

    @property
    def candidate(self) -> ModelVersion:
        return ModelVersion(self.mirror.model, self.mirror.candidate_version)


@dataclass(slots=True, eq=False)
class Lane:
    """One candidate version."""

    waiting: deque[Job] = field(default_factory=deque)
    running: int = 0
    held_bytes: int = 0


class Room(NamedTuple):
    """Bounds over all lanes."""

    jobs: int
    size_bytes: int


class Lanes:
    """Jobs held, by candidate. When full, the candidate that holds the most bytes gives way.

    `on_evicted` hears of each job that gave way.
    """

    def __init__(self, room: Room, on_evicted: Callable[[Job], None]) -> None:
        self.jobs = 0
        self.size_bytes = 0
        self._room = room
        self._on_evicted = on_evicted
        self._lanes: dict[ModelVersion, Lane] = {}

    def __iter__(self) -> Iterator[Lane]:
        return iter(list(self._lanes.values()))

    def add(self, mirror: pb.Mirror, tally: Tally, now: float) -> Lane | None:
        """The lane that now holds a copy of `mirror`; None when there is no room.

        A copy, because a mirror keeps the whole frame alive that it came in.
        """
        size = 2 * mirror.ByteSize() + _OVERHEAD_BYTES  # it becomes a request and gets an answer like its own
        key = ModelVersion(mirror.model, mirror.candidate_version)
        lane = self._lanes.get(key) or Lane()
        if not self._make_room(lane.held_bytes + size, size):
            return None
        copy = pb.Mirror()
        copy.CopyFrom(mirror)
        lane.waiting.append(Job(copy, tally, size, now))
        self._lanes[key] = lane
        self._count(lane, 1, size)
        return lane

    def remove(self, job: Job) -> None:
        """Let go of a job that no lane has waiting any more."""
        lane = self._lanes[job.candidate]
        self._count(lane, -1, -job.size_bytes)
        if lane.held_bytes == 0:
            del self._lanes[job.candidate]

    def _count(self, lane: Lane, jobs: int, size_bytes: int) -> None:
        self.jobs += jobs
        self.size_bytes += size_bytes
        lane.held_bytes += size_bytes

    def _fits(self, size: int) -> bool:
        return self.jobs < self._room.jobs and self.size_bytes + size <= self._room.size_bytes

    def _make_room(self, share: int, size: int) -> bool:
        """Whether `size` bytes fit, if need be after eviction from lanes that hold more than `share`."""
        while not self._fits(size):
            largest = max(self._lanes.values(), key=lambda lane: lane.held_bytes, default=None)
            if largest is None or not largest.waiting or largest.held_bytes <= share:
                return False
            job = largest.waiting.pop()
            self.remove(job)
            self._on_evicted(job)
        return True
