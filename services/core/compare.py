"""How one output of a candidate differs from what was served: pure, safe for any bytes, in bounded memory."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.core import arrays
from services.core.signature import Given
from services.core.tensor import check_data

# Two numbers agree when |served - candidate| <= ABS_TOLERANCE + rel x max(|served|, |candidate|). 1e-3 lets the same
# weights pass in another framework, precision or summation order, and stops what a caller could notice; numbers that
# carry fewer digits than that are given one and a half of their own steps.
ABS_TOLERANCE = 1e-6
REL_TOLERANCE = {"FP64": 1e-3, "FP32": 1e-3, "FP16": 1.5e-3, "BF16": 1.2e-2}

_LARGEST = sys.float_info.max
_BLOCK_ELEMENTS = 1 << 18  # compared at a time: temporaries stay near 10 MB however large the output
_RENDERED_ELEMENTS = 4
_RENDERED_CHARACTERS = 120

Kind = Literal["class", "score"]


class Example(NamedTuple):
    """The worst disagreement of one output: 1 for a class, the absolute difference for a score, inf if incomparable."""

    difference: float
    served: str
    candidate: str


@dataclass(frozen=True, slots=True)
class Difference:
    """One output of one request, compared. A row either agrees, differs or is incomparable.

    Differences are over the elements that are finite on both sides; relative to the larger magnitude, so within 0 to 2.
    """

    name: str
    kind: Kind
    rows: int
    agreeing_rows: int = 0
    incomparable_rows: int = 0
    elements: int = 0
    sum_abs: float = 0.0
    max_abs: float = 0.0
    sum_rel: float = 0.0
    max_rel: float = 0.0
    worst: Example | None = None  # None when every row agrees


class _Pair(NamedTuple):
    """Two arrays of [rows, width]."""

    served: NDArray
    candidate: NDArray


def kind_of(datatype: str) -> Kind:
    """Numbers that measure are compared by difference; everything else, integers too, for equality."""
    return "score" if datatype in REL_TOLERANCE else "class"


def compare(rows: int, served: Given, candidate: Given | None) -> Difference:
    """`served` against the candidate's output of the same name; None = the candidate gave no such output.

    Another datatype or shape, and data that does not fill its shape, make all rows incomparable. An output whose first
    dimension is not `rows` counts as one row.
    """
    kind = kind_of(served.datatype)
    fault = _fault(served, candidate)
    if candidate is None or fault is not None:
        worst = Example(float("inf"), _render_type(served), fault or "missing")
        return Difference(served.name, kind, rows, incomparable_rows=rows, worst=worst)
    if served.data == candidate.data:  # the usual case, and no reason to take 10^6 strings apart
        count = _rows_of(served, rows)
        elements = int(np.isfinite(_as_rows(served, rows)).sum()) if kind == "score" else 0
        return Difference(served.name, kind, count, agreeing_rows=count, elements=elements)
    pair = _Pair(_as_rows(served, rows), _as_rows(candidate, rows))
    if kind == "class":
        return _compare_classes(served.name, pair)
    return _compare_scores(served.name, pair, REL_TOLERANCE[served.datatype])


def _fault(served: Given, candidate: Given | None) -> str | None:
    """Why the two cannot be compared, as the rendering of the candidate's side."""
    if candidate is None:
        return "missing"
    if served.datatype != candidate.datatype or list(served.shape) != list(candidate.shape):
        return _render_type(candidate)
    for tensor in (served, candidate):
        try:
            check_data(tensor.datatype, tensor.shape, tensor.data)
        except ValueError as error:
            return _short(str(error))
    return None


def _rows_of(tensor: Given, rows: int) -> int:
    return rows if rows and tensor.shape and tensor.shape[0] == rows else 1


def _as_rows(tensor: Given, rows: int) -> NDArray:
    array = arrays.decode(tensor.datatype, tensor.shape, tensor.data)
    if tensor.datatype == "BF16":
        array = (array.astype("<u4") << 16).view("<f4")
    count = _rows_of(tensor, rows)
    return array.reshape(count, array.size // count)


def _compare_classes(name: str, pair: _Pair) -> Difference:
    rows, width = pair.served.shape
    differs = np.asarray(pair.served != pair.candidate, dtype=bool)
    agreeing = rows - int(np.count_nonzero(differs.any(axis=1)))
    worst = None
    if agreeing < rows:
        worst = _example(1.0, pair, *divmod(int(differs.argmax()), width))
    return Difference(name, "class", rows, agreeing, worst=worst)


@dataclass(slots=True)
class _Scores:
    """What is known after some blocks of a score output."""

    rows: int
    differing: NDArray = field(init=False)  # per row: an element differs by more than the tolerance
    incomparable: NDArray = field(init=False)  # per row: an element is not finite on one side only, or differently so
    elements: int = 0
    sum_abs: float = 0.0
    max_abs: float = 0.0
    sum_rel: float = 0.0
    max_rel: float = 0.0
    worst_at: tuple[int, int] | None = None  # of the largest difference over the tolerance
    worst: float = 0.0
    incomparable_at: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        self.differing = np.zeros(self.rows, dtype=bool)
        self.incomparable = np.zeros(self.rows, dtype=bool)

    def add(self, pair: _Pair, rel_tolerance: float, row: int, column: int) -> None:
        """Count the block whose first element lies at (row, column) of the output."""
        served, candidate = pair.served.astype(np.float64), pair.candidate.astype(np.float64)
        finite = np.isfinite(served) & np.isfinite(candidate)
        odd = ~finite & ~((served == candidate) | (np.isnan(served) & np.isnan(candidate)))
        served[~finite] = candidate[~finite] = 0.0
        difference = np.minimum(np.abs(served - candidate), _LARGEST)
        magnitude = np.maximum(np.abs(served), np.abs(candidate))
        relative = np.divide(difference, magnitude, out=np.zeros_like(difference), where=magnitude > 0)
        over = difference > ABS_TOLERANCE + rel_tolerance * magnitude
        rows = slice(row, row + len(served))
        self.differing[rows] |= over.any(axis=1)
        self.incomparable[rows] |= odd.any(axis=1)
        self.elements += int(finite.sum())
        self._sum(difference, relative)
        self._place(np.where(over, difference, 0.0), odd, row, column)

    def _sum(self, difference: NDArray, relative: NDArray) -> None:
        self.sum_abs = min(self.sum_abs + float(difference.sum()), _LARGEST)
        self.sum_rel += float(relative.sum())
        self.max_abs = max(self.max_abs, float(difference.max()))
        self.max_rel = max(self.max_rel, float(relative.max()))

    def _place(self, over: NDArray, odd: NDArray, row: int, column: int) -> None:
        width = over.shape[1]
        at = int(over.argmax())
        if over.flat[at] > self.worst:
            self.worst, self.worst_at = float(over.flat[at]), (row + at // width, column + at % width)
        if self.incomparable_at is None and odd.any():
            at = int(odd.argmax())
            self.incomparable_at = (row + at // width, column + at % width)

    def example(self, pair: _Pair) -> Example | None:
        if self.incomparable_at is not None:
            return _example(float("inf"), pair, *self.incomparable_at)
        return None if self.worst_at is None else _example(self.worst, pair, *self.worst_at)


def _compare_scores(name: str, pair: _Pair, rel_tolerance: float) -> Difference:
    rows, width = pair.served.shape
    scores = _Scores(rows)
    with np.errstate(all="ignore"):  # NaN and overflow are answers here, not accidents
        for at_rows, at_columns in _blocks(rows, width):
            block = _Pair(pair.served[at_rows, at_columns], pair.candidate[at_rows, at_columns])
            scores.add(block, rel_tolerance, at_rows.start, at_columns.start)
    incomparable = int(scores.incomparable.sum())
    agreeing = rows - int((scores.differing | scores.incomparable).sum())
    return Difference(
        name,
        "score",
        rows,
        agreeing_rows=agreeing,
        incomparable_rows=incomparable,
        elements=scores.elements,
        sum_abs=scores.sum_abs,
        max_abs=scores.max_abs,
        sum_rel=scores.sum_rel,
        max_rel=scores.max_rel,
        worst=scores.example(pair),
    )


def _blocks(rows: int, width: int) -> Iterator[tuple[slice, slice]]:
    """Slices that cover [rows, width] once, none of more than _BLOCK_ELEMENTS."""
    columns = max(1, min(width, _BLOCK_ELEMENTS))
    height = max(1, _BLOCK_ELEMENTS // columns)
    for row, column in product(range(0, rows, height), range(0, width, columns)):
        yield slice(row, row + height), slice(column, column + columns)


def _example(difference: float, pair: _Pair, row: int, column: int) -> Example:
    return Example(difference, _render(pair.served, row, column), _render(pair.candidate, row, column))


def _render(array: NDArray, row: int, column: int) -> str:
    """The whole row when it is short, else the element that differs, with its place."""
    width = array.shape[1]
    shown = array[row] if width <= _RENDERED_ELEMENTS else array[row, column : column + 1]
    values = ", ".join(_render_element(element) for element in shown)
    place = f"row {row}: " if len(array) > 1 else ""
    return _short(f"{place}{values}" if width <= _RENDERED_ELEMENTS else f"{place}[{column}] = {values}")


def _render_element(element: object) -> str:
    if isinstance(element, bytes):
        return repr(element[:_RENDERED_CHARACTERS].decode(errors="replace"))
    if isinstance(element, np.floating):
        return f"{float(element):.6g}"
    return str(element)


def _render_type(tensor: Given) -> str:
    return _short(f"{tensor.datatype}{list(tensor.shape)}")


def _short(text: str) -> str:
    return text if len(text) <= _RENDERED_CHARACTERS else text[: _RENDERED_CHARACTERS - 1] + "…"
