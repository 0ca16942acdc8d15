"""Shapes as a graph really has them: what it declares may be missing or a lie, and onnxruntime only warns."""

from collections.abc import Callable, Sequence
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from services.core.arrays import NUMPY_DTYPE
from services.core.signature import TensorSpec
from services.core.tensor import BYTES
from services.runtime.backends import Arrays

Run = Callable[[Arrays], dict[str, NDArray]]
Shape = tuple[int, ...]


def corrected(run: Run, inputs: Sequence[TensorSpec], declared: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """The outputs with the shapes that one and two made-up rows give, where those do not fit the declared ones.

    A graph that cannot answer such rows keeps what it declares.
    """
    counts_rows = bool(inputs) and all(spec.shape[:1] == (-1,) for spec in inputs)
    try:
        answers = [run({spec.name: zeros(spec, rows) for spec in inputs}) for rows in ((1, 2) if counts_rows else (1,))]
    except Exception:  # noqa: BLE001 - a made-up row need not be a valid one
        return tuple(declared)
    is_fixed = all(size >= 0 for spec in inputs for size in (spec.shape[1:] if counts_rows else spec.shape))
    return tuple(
        spec._replace(shape=_shape(spec.shape, [answer[spec.name].shape for answer in answers], is_fixed=is_fixed))
        for spec in declared
    )


def zeros(spec: TensorSpec, rows: int) -> NDArray:
    """An input of zeros: `rows` along a free first dimension, 1 along other free ones."""
    shape = [1 if size < 0 else size for size in spec.shape]
    if spec.shape[:1] == (-1,):
        shape[0] = rows
    if spec.datatype == BYTES:
        return np.full(shape, b"", dtype=object)
    return np.zeros(shape, np.dtype("<u2") if spec.datatype == "BF16" else NUMPY_DTYPE[spec.datatype])


def _shape(declared: Shape, seen: Sequence[Shape], *, is_fixed: bool) -> Shape:
    """`declared` if it fits each of `seen`, else what these have in common; `is_fixed`: inputs vary in rows only."""
    if all(_fits(declared, shape) for shape in seen):
        return declared
    ranks = {len(shape) for shape in seen}
    if len(ranks) > 1:
        return (-1,) * len(seen[0])
    sizes = [set(each) for each in zip_longest(*seen)]
    return tuple(each.pop() if is_fixed and len(each) == 1 else -1 for each in sizes)


def _fits(declared: Shape, shape: Shape) -> bool:
    return len(declared) == len(shape) and all(want in (-1, size) for want, size in zip(declared, shape, strict=True))
