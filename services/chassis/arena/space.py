"""Which parts of a span are free: handed out best fit, merged with their neighbours when they come back. No I/O."""

from bisect import bisect_left, insort


class Space:
    """A span of `size` bytes from 0 on, of which some extents are taken.

    Best fit, since tensors of one model have one size: what one gave back fits the next exactly, and is still in the
    processor's caches. All steps are O(log n) in Python but for moves within a list of free extents.
    """

    __slots__ = ("_by_size", "_ends", "_free", "_taken", "size")

    def __init__(self) -> None:
        self.size = 0
        self._taken: dict[int, int] = {}  # start -> size
        self._free: dict[int, int] = {}  # start -> size
        self._ends: dict[int, int] = {}  # end of a free extent -> its start
        self._by_size: list[tuple[int, int]] = []  # (size, start) of the free extents, sorted

    @property
    def taken(self) -> int:
        """How many extents are out."""
        return len(self._taken)

    @property
    def free_extents(self) -> list[tuple[int, int]]:
        """(start, size) of each, in order."""
        return sorted(self._free.items())

    def grow(self, size: int, *, skip: int = 0) -> None:
        """Add `size` bytes at the end. The first `skip` are nobody's, so that no extent lies on both sides of them."""
        start, self.size = self.size + skip, self.size + size
        self._put(start, size - skip)

    def take(self, size: int) -> int | None:
        """The start of an extent of exactly `size` bytes, which is taken now; None when no free one is as large."""
        place = bisect_left(self._by_size, (size, 0))
        if place == len(self._by_size):
            return None
        found, start = self._by_size.pop(place)
        del self._free[start], self._ends[start + found]
        if found > size:
            self._add(start + size, found - size)
        self._taken[start] = size
        return start

    def give_back(self, start: int) -> None:
        """The extent that starts there is free again. Raises KeyError when none was taken there."""
        self._put(start, self._taken.pop(start))

    def _put(self, start: int, size: int) -> None:
        before, after = self._ends.get(start), self._free.get(start + size)
        if after is not None:
            self._remove(start + size, after)
            size += after
        if before is not None:
            size_before = self._free[before]
            self._remove(before, size_before)
            start, size = before, size + size_before
        self._add(start, size)

    def _add(self, start: int, size: int) -> None:
        self._free[start] = size
        self._ends[start + size] = start
        insort(self._by_size, (size, start))

    def _remove(self, start: int, size: int) -> None:
        del self._free[start], self._ends[start + size]
        del self._by_size[bisect_left(self._by_size, (size, start))]
