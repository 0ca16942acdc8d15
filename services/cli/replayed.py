"""What came of requests that were played again, beside what was recorded of them."""

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from services.core.compare import Difference, compare
from services.core.signature import Given
from turnout.v1 import recorded_pb2, tensor_pb2

OK = "OK"
_PERCENTILES = (50, 90, 99)
_CODES = (
    OK, "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
    "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip


class Outcome(NamedTuple):
    """Of one request: its status by name, how long it took here, and its outputs."""

    status: str
    latency_ms: float
    outputs: Sequence[Given] = ()


class OutputTally:
    """How one output differs, over all requests."""

    def __init__(self) -> None:
        self.rows = self.agreeing = self.incomparable = 0
        self.max_abs = 0.0

    def add(self, found: Difference) -> None:
        self.rows += found.rows
        self.agreeing += found.agreeing_rows
        self.incomparable += found.incomparable_rows
        self.max_abs = max(self.max_abs, found.max_abs)


class Tally:
    """Counts outcomes. `is_comparing`: answers too, against those that were recorded."""

    def __init__(self, *, is_comparing: bool) -> None:
        self.statuses: Counter[str] = Counter()
        self.recorded: Counter[str] = Counter()
        self.newly_failed = 0  # were answered when they were recorded, and not now
        self.late = 0  # left after their time: there was no room for more at once
        self.outputs: dict[str, OutputTally] = {}
        self._is_comparing = is_comparing
        self._here_ms, self._then_ms = array("d"), array("d")

    def add(self, record: recorded_pb2.Recorded, outcome: Outcome) -> None:
        then = _CODES[record.code] if record.code < len(_CODES) else _CODES[2]
        self.statuses[outcome.status] += 1
        self.recorded[then] += 1
        if outcome.status != OK:
            self.newly_failed += then == OK
            return
        self._here_ms.append(outcome.latency_ms)
        if then == OK:
            self._then_ms.append(record.total_ns / 1e6)
            if self._is_comparing:
                self._compare(record, {given.name: given for given in outcome.outputs})

    @property
    def differing_rows(self) -> int:
        """Of all outputs; those that cannot be compared too."""
        return sum(each.rows - each.agreeing for each in self.outputs.values())

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "statuses": dict(self.statuses),
            "recorded_statuses": dict(self.recorded),
            "newly_failed": self.newly_failed,
            "late": self.late,
            "latency_ms": {"replayed": percentiles(self._here_ms), "recorded": percentiles(self._then_ms)},
            "outputs": {name: vars(each) for name, each in self.outputs.items()},
        }

    def _compare(self, record: recorded_pb2.Recorded, answered: Mapping[str, Given]) -> None:
        for output in record.outputs:
            tally = self.outputs.setdefault(output.name, OutputTally())
            tally.add(compare(record.rows, given_of(output), answered.get(output.name)))


def given_of(tensor: tensor_pb2.Tensor) -> Given:
    return Given(tensor.name, tensor.datatype, tuple(tensor.shape), tensor.data)


def percentiles(values_ms: Iterable[float]) -> dict[str, float]:
    """Empty when there are none."""
    values = np.fromiter(values_ms, np.float64)
    if not values.size:
        return {}
    return {f"p{each}": float(np.percentile(values, each)) for each in _PERCENTILES}
