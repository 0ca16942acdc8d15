"""The sequences of one model version: who has a place, who waits for one, whose request is next. Pure state.

A sequence has a place, a row of the batch of one worker, from its start until it is over; its requests run one after
the other. Sequences without a place wait, in order, until one is free.
"""

from collections.abc import Hashable, Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Generic, Protocol, TypeVar

from services.batcher.policy import FOREVER_NS

T = TypeVar("T")
Id = int | str

REASONS = ("end", "idle", "cancelled", "link", "worker", "failed", "restarted")
END, IDLE, CANCELLED, LINK, WORKER, FAILED, RESTARTED = range(len(REASONS))
_WHY = (
    "its last request said sequence_end",
    "it sent nothing for too long",
    "one of its requests was cancelled or came too late",
    "the link to who sent it was lost",
    "the process that held its state is gone",
    "one of its requests failed",
    "it was begun anew",
)
_numbers = count(1)  # of this process: what a worker keeps under one is never mistaken
_REMEMBERED = 4096  # sequences that are over, so that later requests are told why


class Home(Protocol):
    """A worker, as a sequence sees it. Compared by identity."""

    accepting: bool  # takes new sequences
    over: list[int]  # numbers of sequences whose state it may forget, and was not told of


class Sequence(Generic[T]):
    """One sequence, from its start until it is over."""

    __slots__ = ("has_state", "host", "id", "is_over", "is_running", "number", "owner", "reason", "row", "waiting")

    def __init__(self, name: Id, number: int) -> None:
        self.id = name
        self.number = number  # never used again
        self.owner: Hashable = None  # who sent its latest request
        self.host: Host[T] | None = None  # where its place is
        self.row = -1
        self.waiting: list[T] = []  # requests, in order
        self.is_running = False  # one of them is with the worker
        self.has_state = False  # there, since it started
        self.reason: int | None = None  # why it is over once all that waits is done; None = it goes on
        self.is_over = False


class Host(Generic[T]):
    """A worker with places for `capacity` sequences."""

    __slots__ = ("_free", "capacity", "home", "over", "ready", "seated")

    def __init__(self, home: Home, capacity: int) -> None:
        self.home = home
        self.over = home.over
        self.capacity = capacity
        self.seated: dict[int, Sequence[T]] = {}  # by row
        self.ready: dict[Sequence[T], int] = {}  # may run, in order; since when
        self._free = list(range(capacity))

    @property
    def free(self) -> int:
        return len(self._free)

    def seat(self, sequence: Sequence[T]) -> None:
        sequence.host, sequence.row = self, heappop(self._free)
        self.seated[sequence.row] = sequence

    def unseat(self, sequence: Sequence[T]) -> None:
        del self.seated[sequence.row]
        self.ready.pop(sequence, None)
        heappush(self._free, sequence.row)
        if sequence.has_state:
            self.over.append(sequence.number)
        sequence.host, sequence.row = None, -1


class Sequences(Generic[T]):
    """All of one model version. `T` is a request, about which nothing is known here."""

    def __init__(self, idle_ns: int) -> None:
        self.idle_ns = idle_ns  # silence that ends a sequence
        self.hosts: dict[Home, Host[T]] = {}
        self.backlog: dict[Sequence[T], None] = {}  # without a place, in order
        self.ended = [0] * len(REASONS)
        self._active: dict[Id, Sequence[T]] = {}  # those that take further requests
        self._all: dict[int, Sequence[T]] = {}
        self._idle: dict[Sequence[T], int] = {}  # since when nothing waits or runs, the longest first
        self._past: dict[Id, int] = {}  # why the last one of that id was over

    def __len__(self) -> int:
        """Sequences that have a place or wait for one."""
        return len(self._all)

    def __iter__(self) -> Iterator[Sequence[T]]:
        return iter(self._all.values())

    def find(self, name: Id) -> Sequence[T] | None:
        """The sequence that a request without a start is part of."""
        return self._active.get(name)

    def why_over(self, name: Id) -> str:
        """Why there is no sequence of that id."""
        reason = self._past.get(name)
        return "it did not start here" if reason is None else _WHY[reason]

    # -- requests

    def add(self, name: Id, request: T, owner: Hashable, now_ns: int, *, start: bool, end: bool) -> Sequence[T]:
        """Take a request in. One with a start begins the sequence anew; for others, `find` must know it."""
        sequence = self._begin(name, now_ns) if start else self._active[name]
        sequence.owner = owner
        sequence.waiting.append(request)
        self._idle.pop(sequence, None)
        if end:
            self._close(sequence, END)
        if sequence.host is None:
            self.backlog[sequence] = None
            self.promote(now_ns)
        elif len(sequence.waiting) == 1 and not sequence.is_running:
            sequence.host.ready[sequence] = now_ns
        return sequence

    def take(self, sequence: Sequence[T]) -> tuple[T, bool, bool]:
        """The next request of a sequence that is ready goes to its worker; whether it starts there, and ends."""
        if sequence.host is None:
            raise ValueError(f"sequence {sequence.id!r} has no place")
        del sequence.host.ready[sequence]
        request = sequence.waiting.pop(0)
        sequence.is_running = True
        starts = not sequence.has_state
        ends = sequence.reason == END and not sequence.waiting
        sequence.has_state = not ends
        return request, starts, ends

    def landed(self, sequence: Sequence[T], now_ns: int) -> None:
        """The request with the worker is done, however it went."""
        sequence.is_running = False
        if sequence.is_over or sequence.host is None:
            return
        if sequence.waiting:
            sequence.host.ready[sequence] = now_ns
        elif sequence.reason is not None:
            self.end(sequence, sequence.reason, now_ns)
        else:
            self._idle[sequence] = now_ns

    # -- ends

    def end(self, sequence: Sequence[T], reason: int, now_ns: int) -> list[T]:
        """The sequence is over now; the requests that waited. Its place goes to who waits for one."""
        if sequence.is_over:
            return []
        self._close(sequence, reason)
        sequence.is_over = True
        self.ended[reason] += 1
        del self._all[sequence.number]
        self._idle.pop(sequence, None)
        waiting, sequence.waiting = sequence.waiting, []
        if sequence.host is None:
            self.backlog.pop(sequence, None)
        else:
            sequence.host.unseat(sequence)
            self.promote(now_ns)
        return waiting

    def expire(self, now_ns: int) -> int:
        """End those that were silent for too long. How many."""
        ended = 0
        while self._idle:
            sequence, since_ns = next(iter(self._idle.items()))
            if since_ns + self.idle_ns > now_ns:
                break
            self.end(sequence, IDLE, now_ns)
            ended += 1
        return ended

    @property
    def expiry_ns(self) -> int:
        """When the next one will have been silent for too long."""
        since_ns = next(iter(self._idle.values()), FOREVER_NS)
        return since_ns + self.idle_ns if since_ns < FOREVER_NS else FOREVER_NS

    def end_of(self, owner: Hashable, now_ns: int) -> list[T]:
        """Who sent them is gone; the requests that waited."""
        gone = [sequence for sequence in self._all.values() if sequence.owner == owner]
        return [request for sequence in gone for request in self.end(sequence, LINK, now_ns)]

    # -- workers

    def open(self, home: Home, capacity: int, now_ns: int) -> Host[T]:
        """A worker takes sequences from now on."""
        host = self.hosts[home] = Host(home, capacity)
        self.promote(now_ns)
        return host

    def close(self, home: Home, now_ns: int) -> list[T]:
        """A worker is gone, and with it its sequences; the requests that waited."""
        host = self.hosts.pop(home, None)
        if host is None:
            return []
        seated = list(host.seated.values())
        return [request for sequence in seated for request in self.end(sequence, WORKER, now_ns)]

    def promote(self, now_ns: int) -> None:
        """Give free places to those who wait for one, on the worker that has the most."""
        while self.backlog:
            open_ = [host for host in self.hosts.values() if host.free and host.home.accepting]
            if not open_:
                return
            host = max(open_, key=lambda each: each.free / each.capacity)
            sequence = next(iter(self.backlog))
            del self.backlog[sequence]
            host.seat(sequence)
            host.ready[sequence] = now_ns

    # -- inside

    def _begin(self, name: Id, now_ns: int) -> Sequence[T]:
        old = self._active.get(name)
        if old is not None:
            self._close(old, RESTARTED)
            if not old.waiting and not old.is_running:
                self.end(old, RESTARTED, now_ns)
        number = next(_numbers)
        sequence = self._active[name] = self._all[number] = Sequence(name, number)
        return sequence

    def _close(self, sequence: Sequence[T], reason: int) -> None:
        """Nobody joins it any more."""
        sequence.reason = reason if sequence.reason is None else sequence.reason
        if self._active.get(sequence.id) is sequence:
            del self._active[sequence.id]
            self._past.pop(sequence.id, None)
            self._past[sequence.id] = reason
            if len(self._past) > _REMEMBERED:
                del self._past[next(iter(self._past))]
