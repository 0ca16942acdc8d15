"""The search for the requests that make a batch raise: pure state, in bounded launches.

One half runs while the other is held back; then the half that holds the bad request is narrowed, by elimination where
its sibling succeeded, and what was held back goes in one launch. One bad request among n costs at most
ceil(log2 n) + 2 launches, any number of them 2 * ceil(log2 n) + 2.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from services.core.errors import INTERNAL

T = TypeVar("T")


class Failure(NamedTuple):
    """What a model raised."""

    code: int
    message: str


class Verdict(NamedTuple, Generic[T]):
    """A member that gets an error, and which."""

    member: T
    failure: Failure


class _Stage(Enum):
    FIRST_HALF = 1
    SECOND_HALF = 2  # runs when the first failed: both raising alike means the model, not a request
    NARROW = 3
    CONFIRM = 4  # one member that is bad by elimination
    HELD = 5


class Search(Generic[T]):
    """Ask `next` for a group to launch, say `succeeded` or `failed`, until it gives none; read `verdicts`.

    Members of a group that succeeded have been answered by then. `gone` tells of members nobody waits for any more.
    """

    def __init__(self, members: Sequence[T], failure: Failure, gone: Callable[[T], bool]) -> None:
        depth = (len(members) - 1).bit_length()
        self.launches = 0
        self.verdicts: list[Verdict[T]] = []
        self._most = 2 * depth + 2
        self._most_for_one = depth + 2
        self._failure = failure
        self._gone = gone
        self._stage = _Stage.FIRST_HALF
        self._bad: list[tuple[list[T], Failure]] = []  # groups that hold a bad member
        self._held: list[T] = []
        middle = len(members) // 2
        self._running, self._sibling = list(members[:middle]), list(members[middle:])
        self._running_failure = failure  # of the group that `running` and `sibling` were halves of
        self._first: tuple[list[T], Failure] | None = None

    @property
    def waiting(self) -> list[T]:
        """Members without a verdict; while a launch is under way some of its group may be among them."""
        first = self._first[0] if self._first else []
        halves = self._running if self._stage in {_Stage.FIRST_HALF, _Stage.SECOND_HALF} else []
        bad = (member for group, _ in self._bad for member in group)
        return [*halves, *first, *self._sibling, *self._held, *bad]

    def next(self, *, allowed: bool = True) -> list[T] | None:
        """The next group to launch; None when the search is over, also because it is not `allowed` another launch."""
        group = self._first_halves() or self._choose()
        if not group:
            return None
        if not allowed or self.launches >= self._most:
            self.give_up(group)
            return None
        self._running = group
        self.launches += 1
        return list(group)

    def give_up(self, group: Sequence[T] = ()) -> None:
        """Everyone left gets the error of the batch."""
        for members, failure in self._bad:
            self._condemn(members, failure)
        self._condemn([*group, *(self._first[0] if self._first else []), *self._sibling, *self._held], self._failure)
        self._bad, self._held, self._sibling, self._first = [], [], [], None
        self._running = []
        self._stage = _Stage.NARROW

    def succeeded(self) -> None:
        """The group that `next` gave ran well."""
        stage, self._stage = self._stage, _Stage.NARROW
        sibling, self._sibling = self._sibling, []
        if stage is _Stage.SECOND_HALF:
            self._take_first()
        elif stage in {_Stage.FIRST_HALF, _Stage.NARROW}:
            self._add_bad(sibling, self._running_failure, alone=False)

    def failed(self, failure: Failure) -> None:
        """The group that `next` gave raised."""
        stage, self._stage = self._stage, _Stage.NARROW
        group, sibling = self._running, self._sibling
        self._sibling = []
        if stage is _Stage.FIRST_HALF:
            self._first = (group, failure)
            self._running = sibling
            self._stage = _Stage.SECOND_HALF
        elif stage is _Stage.SECOND_HALF and failure.code == INTERNAL and self._first and self._first[1] == failure:
            self._condemn([*self._first[0], *group], failure)
            self._first = None
        else:
            self._held += sibling
            self._take_first()
            self._add_bad(group, failure, alone=True)

    # -- inside

    def _take_first(self) -> None:
        if self._first is not None:
            group, failure = self._first
            self._first = None
            self._add_bad(group, failure, alone=True)

    def _add_bad(self, group: list[T], failure: Failure, *, alone: bool) -> None:
        """`group` holds a bad member; `alone`: it failed by itself, else it follows from its sibling's success."""
        if len(group) == 1 and (alone or self.launches + bool(self._held) >= self._most_for_one):
            self._condemn(group, failure)
        elif group:
            self._bad.append((group, failure))

    def _first_halves(self) -> list[T]:
        if self._stage is _Stage.SECOND_HALF:
            live = self._live(self._running)
            if not live:
                self._stage = _Stage.NARROW
                self._take_first()
            return live
        if self._stage is _Stage.FIRST_HALF:
            everyone = [*self._running, *self._sibling]
            live = self._live(everyone)
            if len(live) == len(everyone):
                return self._running
            self._held, self._sibling = live, []  # the bad one may be the one that left
            self._stage = _Stage.NARROW
        return []

    def _choose(self) -> list[T]:
        while self._bad:
            group, failure = self._bad.pop()
            live = self._live(group)
            if len(live) < len(group):  # the bad one may be the one that left
                self._held += live
                continue
            middle = len(group) // 2
            self._stage = _Stage.NARROW if middle else _Stage.CONFIRM
            self._sibling = group[:middle] and group[middle:]
            self._running_failure = failure
            return group[:middle] or group
        self._stage = _Stage.HELD
        group, self._held = self._live(self._held), []
        return group

    def _live(self, group: list[T]) -> list[T]:
        return [member for member in group if not self._gone(member)]

    def _condemn(self, members: Sequence[T], failure: Failure) -> None:
        self.verdicts += [Verdict(member, failure) for member in members if not self._gone(member)]


class SearchBudget:
    """Launches for searches: a share of all launches of a version, and enough saved for one whole search."""

    __slots__ = ("_most", "_saved", "_share")

    def __init__(self, share: float = 0.1, most: float = 32.0) -> None:
        self._share = share
        self._most = most
        self._saved = most

    def earn(self) -> None:
        """One ordinary launch was made."""
        self._saved = min(self._most, self._saved + self._share)

    @property
    def is_enough(self) -> bool:
        """Whether one more launch for a search may be made."""
        return self._saved >= 1

    def spend(self) -> None:
        """A launch for a search was made."""
        self._saved -= 1
