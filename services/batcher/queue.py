"""The waiting requests of one model version: bounded by rows and bytes, in buckets that may share a batch.

A request that leaves early (cancelled, expired) is marked and stops counting at once; its place goes when it comes to
the front, or when such places outnumber the living.
"""

from collections import deque
from collections.abc import Iterator

from services.batcher.request import DONE, LAUNCHED, WAITING, Pending

Shapes = tuple[tuple[int, ...], ...]
_KEPT_BUCKETS = 8  # empty ones beyond are forgotten
_DEAD_PLACES = 64


class Bucket:
    """Requests with equal names, datatypes and inner dimensions, in order of arrival."""

    __slots__ = ("inner", "members", "rows", "shadow")

    def __init__(self, inner: Shapes, *, shadow: bool) -> None:
        self.inner = inner  # of each input: its shape without rows (whole for models that do not batch)
        self.shadow = shadow
        self.members: deque[Pending] = deque()
        self.rows = 0

    def oldest(self) -> Pending | None:
        """The first one still waiting."""
        members = self.members
        while members and members[0].state != WAITING:
            members.popleft()
        return members[0] if members else None


class Queue:
    """All buckets of one model version, those of shadow requests apart."""

    __slots__ = ("_places", "_primary", "_shadow", "rows", "shadow_rows", "size")

    def __init__(self) -> None:
        self.rows = 0  # waiting, shadow ones included
        self.shadow_rows = 0
        self.size = 0  # bytes waiting
        self._places = 0
        self._primary: dict[Shapes, Bucket] = {}
        self._shadow: dict[Shapes, Bucket] = {}

    def bucket(self, inner: Shapes, *, shadow: bool) -> Bucket:
        """The bucket for requests of these shapes."""
        buckets = self._shadow if shadow else self._primary
        bucket = buckets.get(inner)
        if bucket is None:
            if len(buckets) >= _KEPT_BUCKETS:
                self._forget_empty(buckets)
            bucket = buckets[inner] = Bucket(inner, shadow=shadow)
        return bucket

    def put(self, pending: Pending) -> None:
        """Add at the end of its bucket."""
        bucket, cost = pending.bucket, pending.cost
        bucket.members.append(pending)
        bucket.rows += cost
        self.rows += cost
        self.size += pending.size
        if bucket.shadow:
            self.shadow_rows += cost

    def put_back(self, pending: Pending) -> None:
        """Return to the front what was taken but never ran."""
        pending.bucket = self.bucket(pending.bucket.inner, shadow=pending.bucket.shadow)
        pending.state = WAITING
        self.put(pending)
        pending.bucket.members.rotate(1)

    def drop(self, pending: Pending) -> None:
        """It does not wait any more: it stops counting now, its place is reused later."""
        self._uncount(pending.bucket, pending.cost, pending.size)
        self._places += 1
        if self._places > _DEAD_PLACES + self.rows:
            self._compact()

    def departing(self) -> list[Bucket]:
        """Buckets whose requests may leave now, the one waiting longest first; shadows only when nobody else waits."""
        buckets = self._shadow if self.rows == self.shadow_rows else self._primary
        if len(buckets) == 1:
            return list(buckets.values())
        fronts = [(front.arrival_ns, id(bucket), bucket) for bucket in buckets.values() if (front := bucket.oldest())]
        return [bucket for _, _, bucket in sorted(fronts)]

    def take(self, bucket: Bucket, count: int) -> list[Pending]:
        """The first `count` living requests of `bucket`, as one batch."""
        members = bucket.members
        taken: list[Pending] = []
        rows = size = 0
        while len(taken) < count:
            pending = members.popleft()
            if pending.state == WAITING:
                pending.state = LAUNCHED
                rows += pending.cost
                size += pending.size
                taken.append(pending)
        self._uncount(bucket, rows, size)
        return taken

    def pick(self, chosen: list[Pending]) -> None:
        """Take `chosen` ones of a bucket, wherever they stand, as one batch."""
        for pending in chosen:
            self.drop(pending)
            pending.state = LAUNCHED

    def youngest_shadow(self) -> Pending | None:
        """The shadow request that came last; the first to go when room is needed."""
        youngest: Pending | None = None
        for bucket in self._shadow.values():
            while bucket.members and bucket.members[-1].state == DONE:
                bucket.members.pop()
            if bucket.members and (youngest is None or bucket.members[-1].arrival_ns > youngest.arrival_ns):
                youngest = bucket.members[-1]
        return youngest

    def __iter__(self) -> Iterator[Pending]:
        for buckets in (self._primary, self._shadow):
            for bucket in buckets.values():
                for pending in bucket.members:
                    if pending.state == WAITING:
                        yield pending

    def _uncount(self, bucket: Bucket, cost: int, size: int) -> None:
        bucket.rows -= cost
        self.rows -= cost
        self.size -= size
        if bucket.shadow:
            self.shadow_rows -= cost

    def _compact(self) -> None:
        self._places = 0
        for buckets in (self._primary, self._shadow):
            for bucket in buckets.values():
                bucket.members = deque(pending for pending in bucket.members if pending.state == WAITING)

    @staticmethod
    def _forget_empty(buckets: dict[Shapes, Bucket]) -> None:
        for inner in [inner for inner, bucket in buckets.items() if not bucket.rows]:
            del buckets[inner]
