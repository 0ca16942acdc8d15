"""The waiting requests of one model version: bounded by rows and bytes, in buckets that may share a batch.

A bucket is kept in the order in which it is served: priority levels first, the earliest deadline inside a level. A
request that leaves early (cancelled, expired) is marked and stops counting at once; its place goes when it comes to
the front, or when such places outnumber the living.
"""

from bisect import insort_right
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from services.batcher.buckets import RANK, Bucket, Buckets, Shapes
from services.batcher.policy import LEVEL_STEP, SHADOW_LEVEL
from services.batcher.request import LAUNCHED, WAITING, Pending
from services.batcher.service_time import ServiceTime

if TYPE_CHECKING:
    from services.batcher.intake import Intake

_DEAD_PLACES = 64


class Level:
    """What waits at one priority level."""

    __slots__ = ("_arrived", "rows", "size")

    def __init__(self) -> None:
        self.rows = 0
        self.size = 0
        self._arrived: deque[Pending] = deque()  # in order of arrival; some may have left

    def add(self, pending: Pending) -> None:
        self.rows += pending.cost
        self.size += pending.size
        self._arrived.append(pending)
        if len(self._arrived) > _DEAD_PLACES + 2 * self.rows:
            self._arrived = deque(each for each in self._arrived if each.state == WAITING)

    def remove(self, pending: Pending) -> None:
        """It does not wait any more."""
        self.rows -= pending.cost
        self.size -= pending.size
        if not self.rows:
            self._arrived.clear()  # else who was answered would be kept, with all its bytes, until others come

    def youngest(self) -> Pending | None:
        """The one still waiting that came last."""
        arrived = self._arrived
        while arrived and arrived[-1].state != WAITING:
            arrived.pop()
        return arrived[-1] if arrived else None


class Queue:
    """All buckets of one model version, those of shadow requests apart.

    Levels are counted for requests that have one (shadow ones do); a model without priorities has none.
    """

    __slots__ = ("_places", "_primary", "_shadow", "count", "levels", "rows", "size")

    def __init__(self) -> None:
        self.rows = 0  # waiting, shadow ones included
        self.size = 0  # bytes waiting
        self.count = 0  # requests waiting, parts of cut ones each
        self.levels: dict[int, Level] = {}
        self._places = 0
        self._primary = Buckets()
        self._shadow = Buckets()

    @property
    def primary_rows(self) -> int:
        shadow = self.levels.get(SHADOW_LEVEL)
        return self.rows - shadow.rows if shadow else self.rows

    def bucket(self, inner: Shapes, intake: "Intake", service: ServiceTime, *, shadow: bool) -> Bucket:
        """The bucket for requests of these shapes; `service` is what is known of all when it knows nothing itself."""
        buckets = self._shadow if shadow else self._primary
        key: object = (intake.name, inner) if intake.name else inner
        bucket = buckets.get(key)
        if bucket is None:
            if intake.name or not intake.is_fixed:
                service = ServiceTime(service)
            bucket = Bucket(inner, intake, service, shadow=shadow)
            buckets.keep(key, bucket)
        return bucket

    def close_buckets(self) -> None:
        """Nobody joins those who wait now: what comes is read otherwise."""
        self._primary.close()
        self._shadow.close()

    def forget_levels(self) -> None:
        """All who wait are alike from now on: else whoever comes would be served before those who had a level."""
        for bucket in self._primary:
            for pending in bucket.members:
                pending.rank -= pending.level * LEVEL_STEP
                pending.level = 0
            self._primary.sort(bucket)
        self.levels = {number: level for number, level in self.levels.items() if number == SHADOW_LEVEL}

    def put(self, pending: Pending) -> None:
        """Add it where its rank says."""
        bucket, cost, rank = pending.bucket, pending.cost, pending.rank
        members = bucket.members
        if not members or members[-1].rank <= rank:
            members.append(pending)
        else:
            insort_right(members, pending, key=RANK)
        if not bucket.rows or pending.arrival_ns < bucket.since_ns:  # the latter: it was here before, and is put back
            bucket.since_ns = pending.arrival_ns
        bucket.rows += cost
        if rank < bucket.listed:
            (self._shadow if bucket.shadow else self._primary).list(bucket, rank)
        self.rows += cost
        self.size += pending.size
        self.count += 1
        if pending.level:
            level = self.levels.get(pending.level)
            if level is None:
                level = self.levels[pending.level] = Level()
            level.add(pending)

    def put_back(self, pending: Pending, intake: "Intake") -> None:
        """Return what was taken but never ran; its rank is what it was. `intake` reads those who come now."""
        old = pending.bucket
        if old.intake is intake:
            pending.bucket = self.bucket(old.inner, intake, old.service, shadow=old.shadow)
        else:
            (self._shadow if old.shadow else self._primary).keep_apart(old)
        pending.state = WAITING
        self.put(pending)

    def drop(self, pending: Pending) -> None:
        """It does not wait any more: it stops counting now, its place is reused later."""
        self._uncount(pending)
        self._places += 1
        if self._places > _DEAD_PLACES + self.rows:
            self._compact()

    def departing(self, *, shadows: bool) -> Iterable[Bucket]:
        """Buckets of primary requests (of `shadows` instead) that wait, the most urgent first."""
        buckets = self._shadow if shadows else self._primary
        return [*buckets] if len(buckets) == 1 else buckets.departing()

    def take(self, bucket: Bucket, count: int) -> list[Pending]:
        """The first `count` living requests of `bucket`, as one batch."""
        members = bucket.members
        taken: list[Pending] = []
        rows = size = places = 0
        for pending in members:
            if len(taken) == count:
                break
            places += 1
            if pending.state == WAITING:
                pending.state = LAUNCHED
                rows += pending.cost
                size += pending.size
                taken.append(pending)
        del members[:places]
        bucket.took(rows)
        self.rows -= rows
        self.size -= size
        self.count -= count
        if self.levels:
            self._uncount_levels(taken)
        return taken

    def pick(self, chosen: list[Pending]) -> None:
        """Take `chosen` ones of a bucket, wherever they stand, as one batch."""
        for pending in chosen:
            self.drop(pending)
            pending.state = LAUNCHED

    def below(self, level: int) -> tuple[int, int]:
        """Rows and bytes that wait at levels below `level`: what a request of it may displace."""
        rows = size = 0
        for number, other in self.levels.items():
            if number > level:
                rows += other.rows
                size += other.size
        return rows, size

    def youngest_below(self, level: int) -> Pending | None:
        """Who came last at the lowest level below `level` where anybody waits: the first to go when room is needed."""
        for number in sorted(self.levels, reverse=True):
            if number <= level:
                break
            youngest = self.levels[number].youngest()
            if youngest is not None:
                return youngest
        return None

    def work_ns(self, most_rows: int) -> float:
        """How long all that waits takes one worker, in batches of `most_rows` rows."""
        if not self.rows:
            return 0.0
        work_ns = 0.0
        rows = 0
        for buckets in (self._primary, self._shadow):
            for bucket in buckets.some():
                rows += bucket.rows
                work_ns += bucket.rows * bucket.service.predict_ns(most_rows) / most_rows
        return work_ns * self.rows / rows if rows else 0.0

    def rows_before(self, rank: int) -> float:
        """About how many primary rows are served before a newcomer of `rank`."""
        before = 0.0
        rows = 0
        for bucket in self._primary.some():
            rows += bucket.rows
            before += bucket.rows_before(rank)
        return before * self.primary_rows / rows if rows else 0.0

    def __iter__(self) -> Iterator[Pending]:
        for buckets in (self._primary, self._shadow):
            for bucket in buckets:
                for pending in bucket.members:
                    if pending.state == WAITING:
                        yield pending

    def _uncount(self, pending: Pending) -> None:
        pending.bucket.rows -= pending.cost
        self.rows -= pending.cost
        self.size -= pending.size
        self.count -= 1
        if pending.level:
            self.levels[pending.level].remove(pending)

    def _uncount_levels(self, taken: list[Pending]) -> None:
        for pending in taken:
            if pending.level:
                self.levels[pending.level].remove(pending)

    def _compact(self) -> None:
        self._places = 0
        for buckets in (self._primary, self._shadow):
            for bucket in buckets:
                bucket.members = [pending for pending in bucket.members if pending.state == WAITING]
