"""A model runs on synthetic rows before it is said to be ready, and batches only once that is known to be harmless."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.core.batching_spec import Padding
from services.core.signature import Signature
from services.runtime.backends import Arrays, Run
from services.runtime.examples import repeated, row_bytes, two_rows
from services.runtime.faults import describe
from services.runtime.synthetic import synthetic, synthetic_inputs

_RELATIVE, _ABSOLUTE = 1e-4, 1e-6
_MAX_WARM_UP_BYTES = 256 << 20  # of one input at the largest batch size
# What free dimensions are tried as: not as many as there are rows, so that no two are taken for each other; the last
# ones for models that shrink what they are given.
_FREE = (3, 1, 32, 224)


class Checked(NamedTuple):
    """What examples, or synthetic rows, told of a model."""

    signature: Signature  # it batches only if rows 1 and 2 together give what each gives alone
    note: str  # why it does not, though its artifact says so
    free: int  # size of free dimensions at which it runs


class Warmed(NamedTuple):
    """What ran: batches of these sizes, and examples as they are; how many of those raised, and what the first."""

    sizes: list[int]
    requests: int = 0
    raised: int = 0
    reason: str = ""


def warm_up(
    run: Run,
    checked: Checked,
    sizes: Sequence[int],
    padding: Padding | None = None,
    examples: Sequence[Arrays] = (),
    most_s: float = 10.0,
) -> Warmed:
    """Run each of `sizes` rows (fewer where they would take too much memory), then every example, for `most_s` at most.

    Where there are examples their rows make the sizes up, else synthetic ones do. With lengths to fill up to, all but
    the first size have the longest. Raises what the model raises on synthetic rows.
    """
    until_s = time.monotonic() + most_s
    ran = []
    signature = checked.signature
    usable = examples if padding is None else ()
    for position, rows in enumerate(sizes if signature.batches else sizes[:1]):
        if time.monotonic() >= until_s or (usable and not signature.batches):
            break
        inputs = _repeated(usable[0], rows) if usable else _made_up(checked, rows, padding, is_first=not position)
        run(inputs)
        ran.append(_rows_of(signature, inputs))
    most_rows = max(sizes, default=1) if signature.batches else None
    return _run_each(run, examples, most_rows, until_s, ran)


def _run_each(run: Run, examples: Sequence[Arrays], most_rows: int | None, until_s: float, sizes: list[int]) -> Warmed:
    count = raised = 0
    reason = ""
    for example in examples:
        if time.monotonic() >= until_s:
            break
        try:
            run({name: array[:most_rows] for name, array in example.items()} if most_rows else example)
        except Exception as error:  # noqa: BLE001 - what one caller once sent may be refused
            raised, reason = raised + 1, reason or describe(error)
        else:
            count += 1
    return Warmed(sizes, count, raised, reason)


def _repeated(example: Arrays, rows: int) -> dict[str, NDArray]:
    return repeated(example, _bounded(rows, row_bytes(example)))


def _made_up(checked: Checked, rows: int, padding: Padding | None, *, is_first: bool) -> dict[str, NDArray]:
    signature, free = checked.signature, checked.free
    if not signature.batches:
        return synthetic_inputs(signature, None, 0, free, padding)
    longest = padding.sizes[-1] if padding is not None and padding.sizes and not is_first else free
    each = max((synthetic(spec, 1, 0, longest).nbytes for spec in signature.inputs), default=1)
    return synthetic_inputs(signature, _bounded(rows, each), 0, longest, padding)


def _rows_of(signature: Signature, inputs: Mapping[str, NDArray]) -> int:
    return len(next(iter(inputs.values()))) if signature.batches and inputs else 1


def checked(run: Run, signature: Signature, padding: Padding | None = None, examples: Sequence[Arrays] = ()) -> Checked:
    """The signature, batching only if rows 1 and 2 together give what each gives alone; else the reason it does not.

    The rows are two of `examples` that differ, or made up where there are none.
    """
    if not signature.batches:
        return Checked(signature, "", 1)
    reason = ""
    pair = two_rows(signature, examples) if padding is None else None
    if pair is not None:
        try:
            return _judged(signature, _difference(run, signature, pair), _FREE[1])
        except Exception as error:  # noqa: BLE001 - whatever the model raises, it runs unbatched then
            reason = _raised("examples", error)
    is_free = any(-1 in spec.shape[1:] for spec in signature.inputs)
    for free in _FREE if is_free else _FREE[1:2]:
        first, second = (synthetic_inputs(signature, 1, fill, free, padding) for fill in (0, 1))
        try:
            return _judged(signature, _difference(run, signature, (first, second)), free)
        except Exception as error:  # noqa: BLE001 - as above
            reason = reason or _raised("synthetic rows", error)
    return _judged(signature, reason, 1)


def _judged(signature: Signature, note: str, free: int) -> Checked:
    return Checked(replace(signature, batches=False) if note else signature, note, free)


def _raised(on: str, error: Exception) -> str:
    return f"it raised on {on}: {type(error).__name__}: {error}"[:300]


def _bounded(rows: int, each: int) -> int:
    """As many rows of `each` bytes as a warm-up may take memory for, at least one."""
    return max(1, min(rows, _MAX_WARM_UP_BYTES // max(1, each)))


def _difference(run: Run, signature: Signature, alone: tuple[Arrays, Arrays]) -> str:
    """What two rows together give that they do not give alone; empty = nothing. Raises what the model raises."""
    together = {spec.name: np.concatenate([row[spec.name] for row in alone]) for spec in signature.inputs}
    singles = [run(row) for row in alone]
    for name, answer in run(together).items():
        if answer.shape[:1] != (2,):
            return f"output {name!r} has shape {list(answer.shape)} for 2 rows"
        expected = [single[name] for single in singles]
        if any(part.shape != (1, *answer.shape[1:]) for part in expected):
            return f"output {name!r} of one row has shape {list(expected[0].shape)}, of two {list(answer.shape)}"
        if not alike(answer, np.concatenate(expected)):
            return f"output {name!r} of two rows differs from the answers to each alone"
    return ""


def alike(left: NDArray, right: NDArray) -> bool:
    """Whether answers of one shape are the same, up to what rounding does."""
    if left.dtype.kind == "f":
        return bool(np.allclose(left, right, rtol=_RELATIVE, atol=_ABSOLUTE, equal_nan=True))
    return bool(np.array_equal(left, right))
