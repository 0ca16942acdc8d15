"""Rows made up from a signature, to run a model on before anybody calls it."""

import numpy as np
from numpy.typing import NDArray

from services.core.arrays import NUMPY_DTYPE
from services.core.batching_spec import Padding
from services.core.element import element
from services.core.signature import Signature, TensorSpec
from services.core.tensor import BYTES


def synthetic(spec: TensorSpec, rows: int | None, fill: float, free: int = 1) -> NDArray:
    """An array that fits `spec` with `rows` along a free first dimension; other free dimensions have size `free`."""
    shape = [free if size < 0 else size for size in spec.shape]
    if rows is not None and shape:
        shape[0] = rows
    if spec.datatype == BYTES:
        array = np.empty(shape, dtype=object)
        array[...] = str(fill).encode()
        return array
    return np.full(shape, fill, dtype=numpy_dtype(spec))


def numpy_dtype(spec: TensorSpec) -> np.dtype:
    """What numbers of `spec` are in arrays: BF16 comes as its raw words."""
    return np.dtype("<u2") if spec.datatype == "BF16" else NUMPY_DTYPE[spec.datatype]


def synthetic_inputs(
    signature: Signature, rows: int | None, fill: float, free: int, padding: Padding | None = None
) -> dict[str, NDArray]:
    """All inputs, each as `synthetic` gives it. Where `padding` has the mesh tell what is real, all of it is."""
    inputs = {spec.name: synthetic(spec, rows, fill, free) for spec in signature.inputs}
    if padding is not None:
        inputs |= told(padding, signature, rows or 1, free, free)
    return inputs


def told(padding: Padding, signature: Signature, rows: int, length: int, padded: int) -> dict[str, NDArray]:
    """The inputs that tell of `rows` rows of `length`, filled up to `padded`."""
    inputs: dict[str, NDArray] = {}
    for spec in signature.inputs:
        if spec.name == padding.mask:
            mask = np.zeros((rows, padded), numpy_dtype(spec))
            mask[:, :length] = number(spec, 1)
            inputs[spec.name] = mask
        elif spec.name == padding.length:
            inputs[spec.name] = np.full([rows, 1][: len(spec.shape)], number(spec, length), numpy_dtype(spec))
    return inputs


def number(spec: TensorSpec, value: float) -> NDArray:
    """`value` as an element of `spec`: an array without dimensions."""
    return np.frombuffer(element(spec.datatype, value), numpy_dtype(spec)).reshape(())
