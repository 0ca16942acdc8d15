"""A model runs on synthetic rows before it is said to be ready, and batches only once that is known to be harmless."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.core.batching_spec import Padding
from services.core.signature import Signature
from services.runtime.synthetic import synthetic, synthetic_inputs

Run = Callable[[Mapping[str, NDArray]], dict[str, NDArray]]
_RELATIVE, _ABSOLUTE = 1e-4, 1e-6
_MAX_WARM_UP_BYTES = 256 << 20  # of one input at the largest batch size
# What free dimensions are tried as: not as many as there are rows, so that no two are taken for each other; the last
# ones for models that shrink what they are given.
_FREE = (3, 1, 32, 224)


class Checked(NamedTuple):
    """What synthetic rows told of a model."""

    signature: Signature  # it batches only if rows 1 and 2 together give what each gives alone
    note: str  # why it does not, though its artifact says so
    free: int  # size of free dimensions at which it runs


def warm_up(run: Run, checked: Checked, largest: int, padding: Padding | None = None) -> None:
    """Run one row, then `largest` rows (fewer where they would take too much memory). Raises what the model raises.

    With lengths to fill up to, the `largest` rows have the longest.
    """
    signature, free = checked.signature, checked.free
    run(synthetic_inputs(signature, 1 if signature.batches else None, 0, free, padding))
    if signature.batches:
        longest = padding.sizes[-1] if padding is not None and padding.sizes else free
        run(synthetic_inputs(signature, _bounded(signature, largest, longest), 0, longest, padding))


def checked(run: Run, signature: Signature, padding: Padding | None = None) -> Checked:
    """The signature, batching only if rows 1 and 2 together give what each gives alone; else the reason it does not."""
    if not signature.batches:
        return Checked(signature, "", 1)
    reason = ""
    is_free = any(-1 in spec.shape[1:] for spec in signature.inputs)
    for free in _FREE if is_free else _FREE[1:2]:
        try:
            difference = _difference(run, signature, free, padding)
        except Exception as error:  # noqa: BLE001 - whatever the model raises, it runs unbatched then
            reason = reason or f"it raised on synthetic rows: {type(error).__name__}: {error}"[:300]
            continue
        return Checked(replace(signature, batches=False) if difference else signature, difference, free)
    return Checked(replace(signature, batches=False), reason, 1)


def _bounded(signature: Signature, largest: int, free: int) -> int:
    row_bytes = max((synthetic(spec, 1, 0, free).nbytes for spec in signature.inputs), default=1)
    return max(1, min(largest, _MAX_WARM_UP_BYTES // max(1, row_bytes)))


def _difference(run: Run, signature: Signature, free: int, padding: Padding | None) -> str:
    """What two rows together give that they do not give alone; empty = nothing. Raises what the model raises."""
    alone = [synthetic_inputs(signature, 1, fill, free, padding) for fill in (0, 1)]
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
