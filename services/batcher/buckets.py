"""Requests that may share a batch, and which of them leave first however many kinds there are."""

from bisect import bisect_left, bisect_right, insort_right
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING

from services.batcher.policy import DELAYED
from services.batcher.request import WAITING, Pending
from services.batcher.service_time import ServiceTime

if TYPE_CHECKING:
    from services.batcher.intake import Intake

Shapes = tuple[tuple[int, ...], ...]
NOWHERE = 1 << 100  # above every rank
_KEPT = 8  # empty ones beyond are forgotten
LOOKED_AT = 32  # of those that wait; what all take is guessed from so many
RANK = attrgetter("rank")
_UNKNOWN = -1


class Bucket:
    """Requests for one signature with equal inner dimensions, in the order in which they are served."""

    __slots__ = ("inner", "intake", "listed", "members", "rows", "service", "shadow", "since_ns")

    def __init__(self, inner: Shapes, intake: "Intake", service: ServiceTime, *, shadow: bool) -> None:
        self.inner = inner  # of each input: its shape without rows (whole for models that do not batch)
        self.intake = intake  # that read its members
        self.service = service  # how long its batches take
        self.shadow = shadow
        self.members: list[Pending] = []  # by rank
        self.rows = 0
        self.since_ns = 0  # nobody in it came before; _UNKNOWN = look
        self.listed = NOWHERE  # the rank for which it stands in the list of those that wait

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

    def took(self, rows: int) -> None:
        """`rows` have left."""
        self.rows -= rows
        self.since_ns = _UNKNOWN

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
        return self.rows * bisect_right(members, rank, key=RANK) / len(members)

    def move_back(self, pending: Pending) -> None:
        """Behind all others of its level."""
        at = bisect_left(self.members, pending.rank, key=RANK)
        while self.members[at] is not pending:
            at += 1
        del self.members[at]
        pending.rank |= DELAYED
        insort_right(self.members, pending, key=RANK)


class Buckets:
    """The buckets of one model version by shapes, and by signature where one was named; closed ones by a number."""

    __slots__ = ("_by_key", "_forget_at", "_serial", "_urgent")

    def __init__(self) -> None:
        self._by_key: dict[object, Bucket] = {}
        self._urgent: list[tuple[int, int, Bucket]] = []  # heap; each that waits stands in it for its front's or less
        self._serial = 0
        self._forget_at = _KEPT

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Bucket]:
        return iter(self._by_key.values())

    def get(self, key: object) -> Bucket | None:
        return self._by_key.get(key)

    def keep(self, key: object, bucket: Bucket) -> None:
        """Have a new bucket; now and then the empty ones are forgotten."""
        by_key = self._by_key
        if len(by_key) >= self._forget_at:
            for empty in [name for name, other in by_key.items() if not other.rows]:
                del by_key[empty]
            self._forget_at = max(_KEPT, 2 * len(by_key))
        by_key[key] = bucket

    def close(self) -> None:
        """Nobody joins those who wait now."""
        waiting = [bucket for bucket in self if bucket.rows]
        self._by_key.clear()
        for bucket in waiting:
            self._serial += 1
            self._by_key[self._serial] = bucket

    def keep_apart(self, bucket: Bucket) -> None:
        """Have a bucket that nobody joins, once."""
        if any(other is bucket for other in self):
            return
        self._serial += 1
        self.keep(self._serial, bucket)

    def list(self, bucket: Bucket, rank: int) -> None:
        """`bucket` has one of `rank` to launch; to be called when that is below its place in the list."""
        bucket.listed = rank
        self._serial += 1  # so that buckets are never compared
        heappush(self._urgent, (rank, self._serial, bucket))

    def sort(self, bucket: Bucket) -> None:
        """The ranks in `bucket` are others now."""
        bucket.members.sort(key=RANK)
        front = bucket.front()
        if front is not None and front.rank < bucket.listed:
            self.list(bucket, front.rank)

    def departing(self) -> Iterator[Bucket]:
        """Those with requests that wait, the most urgent first; what is done with one shows after the next is asked."""
        urgent, seen = self._urgent, list[Bucket]()
        try:
            while urgent:
                rank, _, bucket = heappop(urgent)
                if rank != bucket.listed:
                    continue  # it stands there again, for a more urgent one
                bucket.listed = NOWHERE
                front = bucket.front()
                if front is None:
                    continue
                if front.rank > rank:
                    self.list(bucket, front.rank)
                    continue
                seen.append(bucket)
                yield bucket
        finally:
            for bucket in seen:
                front = bucket.front()
                if front is not None and front.rank < bucket.listed:
                    self.list(bucket, front.rank)

    def some(self) -> Iterator[Bucket]:
        """A few of those that wait; all, if they are few."""
        return islice((bucket for bucket in self if bucket.rows), LOOKED_AT)
