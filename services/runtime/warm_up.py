"""Synthetic rows: a model is run before it is said to be ready, and batched only once that is known to be harmless."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from services.core.arrays import NUMPY_DTYPE
from services.core.signature import Signature, TensorSpec
from services.core.tensor import BYTES

Run = Callable[[Mapping[str, NDArray]], dict[str, NDArray]]
_RELATIVE, _ABSOLUTE = 1e-4, 1e-6
_MAX_WARM_UP_BYTES = 256 << 20  # of one input at the largest batch size


def synthetic(spec: TensorSpec, rows: int | None, fill: int) -> NDArray:
    """An array that fits `spec` with `rows` along a free first dimension; other free dimensions have size 1."""
    shape = [1 if size < 0 else size for size in spec.shape]
    if rows is not None and shape:
        shape[0] = rows
    if spec.datatype == BYTES:
        array = np.empty(shape, dtype=object)
        array[...] = str(fill).encode()
        return array
    dtype = np.dtype("<u2") if spec.datatype == "BF16" else NUMPY_DTYPE[spec.datatype]
    return np.full(shape, fill, dtype=dtype)


def warm_up(run: Run, signature: Signature, largest: int) -> None:
    """Run one row, then `largest` rows (fewer where they would take too much memory). Raises what the model raises."""
    sizes = [None] if not signature.batches else [1, _bounded(signature, largest)]
    for rows in sizes:
        run({spec.name: synthetic(spec, rows, 0) for spec in signature.inputs})


def checked(run: Run, signature: Signature) -> tuple[Signature, str]:
    """The signature, batching only if rows 1 and 2 together give what each gives alone; else the reason it does not."""
    if not signature.batches:
        return signature, ""
    reason = _difference(run, signature)
    return (replace(signature, batches=False), reason) if reason else (signature, "")


def _bounded(signature: Signature, largest: int) -> int:
    row_bytes = max((synthetic(spec, 1, 0).nbytes for spec in signature.inputs), default=1)
    return max(1, min(largest, _MAX_WARM_UP_BYTES // max(1, row_bytes)))


def _difference(run: Run, signature: Signature) -> str:
    alone = [{spec.name: synthetic(spec, 1, fill) for spec in signature.inputs} for fill in (0, 1)]
    together = {spec.name: np.concatenate([row[spec.name] for row in alone]) for spec in signature.inputs}
    try:
        singles = [run(row) for row in alone]
        both = run(together)
    except Exception as error:  # noqa: BLE001 - whatever the model raises, it runs unbatched then
        return f"it raised on synthetic rows: {type(error).__name__}: {error}"[:300]
    for name, answer in both.items():
        if answer.shape[:1] != (2,):
            return f"output {name!r} has shape {list(answer.shape)} for 2 rows"
        expected = [single[name] for single in singles]
        if any(part.shape != (1, *answer.shape[1:]) for part in expected):
            return f"output {name!r} of one row has shape {list(expected[0].shape)}, of two {list(answer.shape)}"
        if not _equal(answer, np.concatenate(expected)):
            return f"output {name!r} of two rows differs from the answers to each alone"
    return ""


def _equal(left: NDArray, right: NDArray) -> bool:
    if left.dtype.kind == "f":
        return bool(np.allclose(left, right, rtol=_RELATIVE, atol=_ABSOLUTE, equal_nan=True))
    return bool(np.array_equal(left, right))
