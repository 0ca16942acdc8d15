"""The rules that other servers batch by, plainly written: what leaves, and when. Pure; `now` is an argument.

They see everything that waits for one model, in order of priority and then of arrival, whenever a slot of a worker is
free. All they decide is how many of the first ones leave together, and until when to wait otherwise.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol


class Waiting(Protocol):
    """What a rule knows of a request."""

    @property
    def rows(self) -> int: ...
    @property
    def arrival_ns(self) -> int: ...
    @property
    def shape(self) -> Any:
        """Equal for requests that may share a batch."""


class Leave(NamedTuple):
    """The first `count` requests leave now; or none, and the rule is asked again at `at_ns` or at the next arrival."""

    count: int
    at_ns: int = 0


Rule = Callable[[Iterable[Waiting], int], Leave]


@dataclass(frozen=True, slots=True)
class OneByOne:
    """No batching: one request a launch, in order of arrival."""

    def __call__(self, waiting: Iterable[Waiting], now_ns: int) -> Leave:  # noqa: ARG002 - a Rule's shape
        return Leave(1)


@dataclass(frozen=True, slots=True)
class FixedSize:
    """A batch of neighbours of one shape leaves when it is full, or when its oldest has waited for the delay."""

    most_rows: int = 64
    delay_ns: int = 5_000_000

    def __call__(self, waiting: Iterable[Waiting], now_ns: int) -> Leave:
        run = _run(waiting, self.most_rows)
        due_ns = run.oldest_ns + self.delay_ns
        return Leave(run.count) if run.is_full or now_ns >= due_ns else Leave(0, due_ns)


@dataclass(frozen=True, slots=True)
class TritonsRule:
    """Triton's dynamic batcher.

    The candidate grows along the queue while it has at most `most_rows`. A request of another shape ends it: what is
    there is sent at once, and nobody behind that request is looked at. It is sent when it has a preferred size or is
    full, when its oldest request has waited for the delay, and at once with neither delay nor preferred sizes.
    """

    most_rows: int = 64
    preferred_rows: tuple[int, ...] = ()
    delay_ns: int = 0

    def __call__(self, waiting: Iterable[Waiting], now_ns: int) -> Leave:
        run = _run(waiting, self.most_rows, self.preferred_rows)
        due_ns = run.oldest_ns + self.delay_ns
        if now_ns < due_ns and run.preferred:
            return Leave(run.preferred)
        if run.is_full or run.is_blocked or now_ns >= due_ns:
            return Leave(run.count)
        return Leave(0, due_ns)


class _Run(NamedTuple):
    """The first requests of one shape, up to a batch of them."""

    count: int
    oldest_ns: int
    is_full: bool  # nobody more fits
    is_blocked: bool  # the next one has another shape
    preferred: int  # how many of them have the largest preferred size in sight; 0 = none


def _run(waiting: Iterable[Waiting], most_rows: int, preferred_rows: tuple[int, ...] = ()) -> _Run:
    count = rows = preferred = oldest_ns = 0
    shape: Any = None
    for request in waiting:
        if count and request.shape != shape:
            return _Run(count, oldest_ns, False, True, preferred)
        if count and rows + request.rows > most_rows:
            return _Run(count, oldest_ns, True, False, preferred)
        oldest_ns = min(oldest_ns, request.arrival_ns) if count else request.arrival_ns
        shape = request.shape
        count += 1
        rows += request.rows
        if rows >= most_rows:
            return _Run(count, oldest_ns, True, False, preferred)
        if rows in preferred_rows:
            preferred = count
    return _Run(count, oldest_ns, False, False, preferred)


@lru_cache
def rule_of(name: str, most_rows: int) -> Rule:
    """A rule by its name, for a model whose batches have at most `most_rows`. Raises KeyError."""
    return {
        "single": OneByOne(),
        "fixed": FixedSize(min(most_rows, 64)),
        "triton": TritonsRule(most_rows),
        "triton-5ms": TritonsRule(most_rows, delay_ns=5_000_000),
    }[name]
