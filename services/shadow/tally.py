"""What is known of each candidate so far: counts, sums, worst examples, in bounded memory. Pure: time is given."""

import heapq
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from services.core.compare import Difference, Example
from services.shadow.sketch import Sketch

OUTPUTS_PER_PAIR = 64  # output names a pair may have; further ones are not counted
HOLD_S = 30.0  # so long a digest that was just left does not come back: its last answers are still on their way
IDLE_S = 3600.0  # a pair that had nothing for so long makes room for a new one


class Pair(NamedTuple):
    """A candidate beside what served."""

    model: str
    served: str  # version
    candidate: str  # version


class Digests(NamedTuple):
    """Contents of the two artifacts; empty = not known."""

    served: str = ""
    candidate: str = ""


class Answer(NamedTuple):
    """One mirror whose candidate answered, compared."""

    request_id: str
    rows: int
    differences: Sequence[Difference]
    served_s: float  # the model's own time; 0 = not known
    candidate_s: float


class Worst(NamedTuple):
    """An example as kept: ordered by difference, then the newer."""

    difference: float
    at_s: float
    request_id: str
    example: Example


@dataclass(slots=True)
class OutputTally:
    """One output over all compared rows."""

    kind: str
    rows: int = 0
    agreeing_rows: int = 0
    incomparable_rows: int = 0
    elements: int = 0
    sum_abs: float = 0.0
    max_abs: float = 0.0
    sum_rel: float = 0.0
    max_rel: float = 0.0
    worst: list[Worst] = field(default_factory=list)  # a heap: the least of the kept ones first

    def add(self, found: Difference, request_id: str, at_s: float, keep: int) -> None:
        self.kind = found.kind
        self.rows += found.rows
        self.agreeing_rows += found.agreeing_rows
        self.incomparable_rows += found.incomparable_rows
        self.elements += found.elements
        self.sum_abs = min(self.sum_abs + found.sum_abs, sys.float_info.max)
        self.max_abs = max(self.max_abs, found.max_abs)
        self.sum_rel += found.sum_rel
        self.max_rel = max(self.max_rel, found.max_rel)
        if found.worst is None or keep == 0:
            return
        worst = Worst(found.worst.difference, at_s, request_id, found.worst)
        if len(self.worst) < keep:
            heapq.heappush(self.worst, worst)
        else:
            heapq.heappushpop(self.worst, worst)

    def agreement(self) -> float:
        """Share of rows that agree; 1 before the first."""
        return self.agreeing_rows / self.rows if self.rows else 1.0

    def mean_abs(self) -> float:
        return self.sum_abs / self.elements if self.elements else 0.0

    def mean_rel(self) -> float:
        return self.sum_rel / self.elements if self.elements else 0.0


@dataclass(slots=True)
class Counts:
    """Everything counted since `since_s`. mirrored = compared + errors + dropped + what still waits or runs."""

    since_s: float
    mirrored: int = 0
    compared: int = 0
    rows: int = 0
    errors: Counter[str] = field(default_factory=Counter)  # by gRPC status name
    dropped: Counter[str] = field(default_factory=Counter)  # by reason
    outputs: dict[str, OutputTally] = field(default_factory=dict)
    served: Sketch = field(default_factory=Sketch)
    candidate: Sketch = field(default_factory=Sketch)

    def pending(self) -> int:
        return self.mirrored - self.compared - self.errors.total() - self.dropped.total()


class Tally:
    """The counts of one pair; they begin anew when the content of either version changes."""

    def __init__(self, pair: Pair, now_s: float, worst_examples: int) -> None:
        self.pair = pair
        self.digests = Digests()
        self.counts = Counts(now_s)
        self.touched_s = now_s
        self._left: dict[str, float] = {}  # a digest that was replaced -> when it may come back
        self._worst_examples = worst_examples

    def arrived(self, now_s: float) -> None:
        self.touched_s = now_s
        self.counts.mirrored += 1

    def drop(self, reason: str) -> None:
        self.counts.dropped[reason] += 1

    def fail(self, code: str, digests: Digests, now_s: float) -> None:
        """The candidate answered with the status named `code`."""
        if self._admit(digests, now_s):
            self.counts.errors[code] += 1

    def compare(self, answer: Answer, digests: Digests, now_s: float) -> None:
        if not self._admit(digests, now_s):
            return
        counts = self.counts
        counts.compared += 1
        counts.rows += answer.rows
        if answer.served_s > 0 and answer.candidate_s > 0:  # both or none, so that the two describe the same requests
            counts.served.observe(answer.served_s)
            counts.candidate.observe(answer.candidate_s)
        for found in answer.differences:
            output = counts.outputs.get(found.name)
            if output is None:
                if len(counts.outputs) == OUTPUTS_PER_PAIR:
                    continue
                output = counts.outputs[found.name] = OutputTally(found.kind)
            output.add(found, answer.request_id, now_s, self._worst_examples)

    def _admit(self, digests: Digests, now_s: float) -> bool:
        """Whether an answer of these artifacts counts; a new artifact begins the counts anew.

        Versions are replaced pod by pod, so answers of the old content keep coming for a while: dropped, or each would
        begin the counts again.
        """
        if any(self._left.get(digest, now_s) > now_s for digest in digests):
            self.drop("old_digest")
            return False
        known = Digests(digests.served or self.digests.served, digests.candidate or self.digests.candidate)
        replaced = [old for old, new in zip(self.digests, known, strict=True) if old not in ("", new)]
        self.digests = known
        if replaced:
            self._left = {old: until for old, until in self._left.items() if until > now_s}
            self._left |= dict.fromkeys(replaced, now_s + HOLD_S)
            self.counts = Counts(now_s, mirrored=self.counts.pending())
        return True


class Tallies:
    """The tallies of all pairs, at most `limit`."""

    def __init__(self, limit: int, worst_examples: int) -> None:
        self._limit = limit
        self._worst_examples = worst_examples
        self._tallies: dict[Pair, Tally] = {}

    def __iter__(self) -> Iterator[Tally]:
        return iter([tally for _, tally in sorted(self._tallies.copy().items())])

    def of(self, pair: Pair, now_s: float) -> Tally | None:
        """The tally of a pair, begun if need be; None when there are too many and all are in use."""
        tally = self._tallies.get(pair)
        if tally is None and self._has_room(now_s):
            tally = self._tallies[pair] = Tally(pair, now_s, self._worst_examples)
        return tally

    def _has_room(self, now_s: float) -> bool:
        if len(self._tallies) < self._limit:
            return True
        oldest = min(self._tallies.values(), key=lambda tally: tally.touched_s)
        if now_s - oldest.touched_s < IDLE_S:
            return False
        del self._tallies[oldest.pair]
        return True
