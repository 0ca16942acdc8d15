"""Inputs that a model really takes, of its backend or recorded: what made-up rows mean to it nobody knows."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.core.batching_spec import Padding
from services.core.signature import Signature, TensorSpec
from services.core.tensor import BYTES
from services.runtime.backends import Arrays, Backend
from services.runtime.faults import describe
from services.runtime.synthetic import numpy_dtype, synthetic, told

_MOST_BYTES = 64 << 20  # of all that are kept: a worker may be short of memory
_MOST_ROWS = 256  # that are looked at for two that differ
_TEXT_KINDS = "OSU"


class Examples(NamedTuple):
    """Those that fit the signature; how many do not, and why the first of them does not."""

    fitting: tuple[Arrays, ...] = ()
    left_out: int = 0
    reason: str = ""

    def and_then(self, more: "Examples") -> "Examples":
        return Examples(self.fitting + more.fitting, self.left_out + more.left_out, self.reason or more.reason)


def of_backend(backend: Backend, signature: Signature, most: int, name: str = "") -> Examples:
    """At most `most` of what a backend shows, if it shows any. `name`: of a signature that is not the usual one."""
    examples = getattr(backend, "examples", None)
    if not callable(examples):
        return Examples()
    return gathered(signature, examples(name) if name else examples(), most)


def gathered(
    signature: Signature,
    source: Iterable[Arrays],
    most: int,
    filled: frozenset[str] = frozenset(),
    padding: Padding | None = None,
) -> Examples:
    """The first `most` of `source`, whatever is wrong with it. Inputs that the mesh fills in may be missing."""
    fitting: list[Arrays] = []
    left_out, reason, size = 0, "", 0
    try:
        for inputs in islice(source, most):
            whole = _with_filled(signature, inputs, filled, padding)
            fault = misfit(signature, whole)
            if fault:
                left_out, reason = left_out + 1, reason or fault
                continue
            size += sum(array.nbytes for array in whole.values())
            if size > _MOST_BYTES:
                break
            fitting.append(whole)
    except Exception as error:  # noqa: BLE001 - examples are of use, none are needed
        left_out, reason = left_out + 1, reason or describe(error)
    return Examples(tuple(fitting), left_out, reason)


def misfit(signature: Signature, inputs: Arrays) -> str:
    """Why `inputs` are none of a model with `signature`; empty = they are, and have a row at least."""
    names = [spec.name for spec in signature.inputs]
    if inputs.keys() != set(names):
        return f"found inputs {', '.join(inputs) or 'none'}; expected {', '.join(names)}"
    for spec in signature.inputs:
        array = inputs[spec.name]
        if not _is_of(spec, array):
            return f"input {spec.name!r} is {array.dtype}{list(array.shape)}; expected {spec}"
    if signature.batches:
        counts = {len(inputs[name]) for name in names}
        if len(counts) != 1 or counts == {0}:
            return f"its inputs have {', '.join(map(str, sorted(counts)))} rows"
    return ""


def two_rows(signature: Signature, examples: Iterable[Arrays]) -> tuple[Arrays, Arrays] | None:
    """Two different rows of one shape, as requests of one row each: what tells whether rows depend on each other."""
    first: Arrays | None = None
    for row in islice(_rows(signature, examples), _MOST_ROWS):
        if first is None:
            first = row
        elif _shapes(row) == _shapes(first) and any(not _equal(row[name], first[name]) for name in row):
            return first, row
    return None


def repeated(example: Arrays, rows: int) -> dict[str, NDArray]:
    """`rows` rows: those of `example`, again and again."""
    return {name: array[np.arange(rows) % len(array)] for name, array in example.items()}


def row_bytes(example: Arrays) -> int:
    """Of the largest input."""
    return max((array.nbytes // len(array) for array in example.values()), default=1)


def _rows(signature: Signature, examples: Iterable[Arrays]) -> Iterator[Arrays]:
    for example in examples:
        count = len(example[signature.inputs[0].name]) if signature.inputs else 0
        for row in range(count):
            yield {name: array[row : row + 1] for name, array in example.items()}


def _with_filled(
    signature: Signature, inputs: Arrays, filled: frozenset[str], padding: Padding | None
) -> dict[str, NDArray]:
    whole = dict(inputs)
    first = next((whole[name] for name in (padding.inputs if padding is not None else whole) if name in whole), None)
    if not filled or first is None or first.ndim < 1 + (padding is not None):
        return whole
    rows = len(first) if signature.batches else None
    missing = [spec for spec in signature.inputs if spec.name in filled and spec.name not in whole]
    whole |= {spec.name: synthetic(spec, rows, 0) for spec in missing}
    if padding is not None:
        length = first.shape[1]
        whole |= told(padding, signature, rows or 1, length, length)
    return whole


def _is_of(spec: TensorSpec, array: NDArray) -> bool:
    fits = array.dtype.kind in _TEXT_KINDS if spec.datatype == BYTES else array.dtype == numpy_dtype(spec)
    sizes = zip(spec.shape, array.shape, strict=False)
    return fits and len(spec.shape) == array.ndim and all(want in (-1, size) for want, size in sizes)


def _shapes(row: Arrays) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in row.items()}


def _equal(left: NDArray, right: NDArray) -> bool:
    return np.array_equal(left, right, equal_nan=left.dtype.kind == "f")
