"""The waiting requests of one model version: bounded by rows and bytes, in buckets that may share a batch.

A bucket is kept in the order in which it is served: priority levels first, the earliest deadline inside a level. A
request that leaves early (cancelled, expired) is marked and stops counting at once; its place goes when it comes to
the front, or when such places outnumber the living.
"""

from bisect import bisect_left, bisect_right, insort_right
from collections import deque
from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING

from services.batcher.policy import DELAYED, SHADOW_LEVEL
from services.batcher.request import LAUNCHED, WAITING, Pending
from services.batcher.service_time import ServiceTime

if TYPE_CHECKING:
    from services.batcher.intake import Intake

Shapes = tuple[tuple[int, ...], ...]
_KEPT_BUCKETS = 8  # empty ones beyond are forgotten
_DEAD_PLACES = 64
_RANK = attrgetter("rank")
_UNKNOWN = -1


class Bucket:
    """Requests with equal names, datatypes and inner dimensions, in the order in which they are served."""

    __slots__ = ("inner", "intake", "members", "rows", "service", "shadow", "since_ns")

    def __init__(self, inner: Shapes, intake: "Intake", service: ServiceTime, *, shadow: bool) -> None:
        self.inner = inner  # of each input: its shape without rows (whole for models that do not batch)
        self.intake = intake  # that read its members
        self.service = service  # how long its batches take
        self.shadow = shadow
        self.members: list[Pending] = []  # by rank
        self.rows = 0
        self.since_ns = 0  # nobody in it came before; _UNKNOWN = look

    def front(self) -> Pending | None:
        """The first one still waiting."""
        members = self.members
        dead = 0
        for pending in members:
            if pending.state == WAITING:
                break
            dead += 1
        if dead:
            del members[:dead]
        return members[0] if members else None

    def oldest_ns(self) -> int:
        """When the one came that waits longest, or earlier."""
        if self.since_ns == _UNKNOWN:
            self.since_ns = min([pending.arrival_ns for pending in self.members])
        return self.since_ns

    def rows_before(self, rank: int) -> float:
        """About how many rows are served before a newcomer of `rank`."""
        members = self.members
        if not members or members[-1].rank <= rank:
            return self.rows
        return self.rows * bisect_right(members, rank, key=_RANK) / len(members)

    def add(self, pending: Pending) -> None:
        members, rank = self.members, pending.rank
        if not self.rows or pending.arrival_ns < self.since_ns:  # the latter: it was here before, and is put back
            self.since_ns = pending.arrival_ns
        if not members or members[-1].rank <= rank:
            members.append(pending)
        else:
            insort_right(members, pending, key=_RANK)
        self.rows += pending.cost

    def move_back(self, pending: Pending) -> None:
        """Behind all others of its level."""
        at = bisect_left(self.members, pending.rank, key=_RANK)
        while self.members[at] is not pending:
            at += 1
        del self.members[at]
        pending.rank |= DELAYED
        insort_right(self.members, pending, key=_RANK)


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

    __slots__ = ("_places", "_primary", "_serial", "_shadow", "levels", "rows", "size")

    def __init__(self) -> None:
        self.rows = 0  # waiting, shadow ones included
        self.size = 0  # bytes waiting
        self.levels: dict[int, Level] = {}
        self._places = 0
        self._serial = 0
        self._primary: dict[object, Bucket] = {}
        self._shadow: dict[object, Bucket] = {}

    @property
    def primary_rows(self) -> int:
        shadow = self.levels.get(SHADOW_LEVEL)
        return self.rows - shadow.rows if shadow else self.rows

    def bucket(self, inner: Shapes, intake: "Intake", service: ServiceTime, *, shadow: bool) -> Bucket:
        """The bucket for requests of these shapes; `service` is what is known of all when it knows nothing itself."""
        buckets = self._shadow if shadow else self._primary
        bucket = buckets.get(inner)
        if bucket is None:
            if len(buckets) >= _KEPT_BUCKETS:
                self._forget_empty(buckets)
            if not intake.is_fixed:
                service = ServiceTime(service)
            bucket = buckets[inner] = Bucket(inner, intake, service, shadow=shadow)
        return bucket

    def close_buckets(self) -> None:
        """Nobody joins those who wait now: what comes is read otherwise."""
        self._serial += 1
        for buckets in (self._primary, self._shadow):
            waiting = [bucket for bucket in buckets.values() if bucket.rows]
            buckets.clear()
            buckets.update({(self._serial, number): bucket for number, bucket in enumerate(waiting)})

    def put(self, pending: Pending) -> None:
        """Add it where its rank says."""
        pending.bucket.add(pending)
        cost, size = pending.cost, pending.size
        self.rows += cost
        self.size += size
        if pending.level:
            level = self.levels.get(pending.level)
            if level is None:
                level = self.levels[pending.level] = Level()
            level.add(pending)

    def put_back(self, pending: Pending) -> None:
        """Return what was taken but never ran; its rank is what it was."""
        old = pending.bucket
        pending.bucket = self.bucket(old.inner, old.intake, old.service, shadow=old.shadow)
        if pending.bucket.intake is not old.intake:  # it was read otherwise than those who come now
            self._serial += 1
            buckets = self._shadow if old.shadow else self._primary
            buckets[self._serial, -1] = pending.bucket = Bucket(old.inner, old.intake, old.service, shadow=old.shadow)
        pending.state = WAITING
        self.put(pending)

    def drop(self, pending: Pending) -> None:
        """It does not wait any more: it stops counting now, its place is reused later."""
        self._uncount(pending)
        self._places += 1
        if self._places > _DEAD_PLACES + self.rows:
            self._compact()

    def departing(self, *, shadows: bool) -> list[Bucket]:
        """Buckets of primary requests (of `shadows` instead) that wait, the most urgent first."""
        buckets = self._shadow if shadows else self._primary
        if len(buckets) == 1:
            return list(buckets.values())
        fronts = [(front.rank, id(bucket), bucket) for bucket in buckets.values() if (front := bucket.front())]
        return [bucket for _, _, bucket in sorted(fronts)]

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
        bucket.rows -= rows
        self.rows -= rows
        self.size -= size
        if self.levels:
            self._uncount_levels(taken)
        bucket.since_ns = _UNKNOWN
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
        work_ns = 0.0
        for buckets in (self._primary, self._shadow):
            for bucket in buckets.values():
                if bucket.rows:
                    work_ns += bucket.rows * bucket.service.predict_ns(most_rows) / most_rows
        return work_ns

    def rows_before(self, rank: int) -> float:
        """About how many primary rows are served before a newcomer of `rank`."""
        return sum([bucket.rows_before(rank) for bucket in self._primary.values()])

    def __iter__(self) -> Iterator[Pending]:
        for buckets in (self._primary, self._shadow):
            for bucket in buckets.values():
                for pending in bucket.members:
                    if pending.state == WAITING:
                        yield pending

    def _uncount(self, pending: Pending) -> None:
        pending.bucket.rows -= pending.cost
        self.rows -= pending.cost
        self.size -= pending.size
        if pending.level:
            level = self.levels[pending.level]
            level.rows -= pending.cost
            level.size -= pending.size

    def _uncount_levels(self, taken: list[Pending]) -> None:
        for pending in taken:
            if pending.level:
                level = self.levels[pending.level]
                level.rows -= pending.cost
                level.size -= pending.size

    def _compact(self) -> None:
        self._places = 0
        for buckets in (self._primary, self._shadow):
            for bucket in buckets.values():
                bucket.members = [pending for pending in bucket.members if pending.state == WAITING]

    @staticmethod
    def _forget_empty(buckets: dict[object, Bucket]) -> None:
        for inner in [inner for inner, bucket in buckets.items() if not bucket.rows]:
            del buckets[inner]
