"""The classification extension: an output's k largest values, each as "value:index" or "value:index:label"; pure."""

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from services.core.arrays import decode
from services.core.errors import InvalidRequestError
from services.core.tensor import BYTES, encode_bytes
from turnout.v1 import tensor_pb2

_NO_NUMBERS = {BYTES, "BOOL"}


def classified(tensor: tensor_pb2.Tensor, k: int, labels: Sequence[str], *, batches: bool) -> tensor_pb2.Tensor:
    """BYTES [rows, k], or [k] of a model without rows; k is cut to the number of classes.

    Values are written with six decimals, as Triton does; NaN comes last, and of equal values the first.
    Raises InvalidRequestError for an output that has no numbers.
    """
    shape = list(tensor.shape)
    rows = shape[0] if batches and shape else 1
    classes = prod(shape[1:] if batches and shape else shape)
    k = min(k, classes)
    values = _numbers(tensor).reshape(rows, classes)
    is_float = values.dtype.kind == "f"
    best = np.argsort(-values if is_float else ~values, axis=1, kind="stable")[:, :k]
    elements = [
        _text(value, index, labels, is_float=is_float).encode()
        for row, indices in zip(values, best.tolist(), strict=True)
        for value, index in zip(row[indices].tolist(), indices, strict=True)
    ]
    return tensor_pb2.Tensor(
        name=tensor.name, datatype=BYTES, shape=[rows, k] if batches else [k], data=encode_bytes(elements)
    )


def _numbers(tensor: tensor_pb2.Tensor) -> NDArray:
    if tensor.datatype in _NO_NUMBERS:
        raise InvalidRequestError(
            f"output {tensor.name!r} is {tensor.datatype}, which has no largest values: leave its classification out"
        )
    array = decode(tensor.datatype, tensor.shape, tensor.data)
    if tensor.datatype == "BF16":  # the upper half of an FP32
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array


def _text(value: float, index: int, labels: Sequence[str], *, is_float: bool) -> str:
    said = f"{value:f}:{index}" if is_float else f"{value}:{index}"
    return f"{said}:{labels[index]}" if index < len(labels) else said
