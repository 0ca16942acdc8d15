"""Runs graphs that have BF16 inputs or outputs: numpy has no such type, so they go by onnxruntime's own values."""

import ctypes
from collections.abc import Collection, Sequence
from math import prod
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from services.runtime.backends import Arrays

_BF16 = 16  # TensorProto.BFLOAT16


def run_with_bf16(
    session: Any, outputs: Sequence[str], inputs: Arrays, bf16: Collection[str]
) -> dict[str, NDArray[Any]]:
    """Every output; those named in `bf16`, and the inputs too, are arrays of uint16 words."""
    values = {name: value(array, is_bf16=name in bf16) for name, array in inputs.items()}
    answers = session.run_with_ort_values(list(outputs), values)
    return {
        name: _words(answer) if name in bf16 else answer.numpy() for name, answer in zip(outputs, answers, strict=True)
    }


def value(array: NDArray[Any], *, is_bf16: bool) -> Any:
    """An array as onnxruntime holds it; of words if `is_bf16`."""
    array = np.ascontiguousarray(array).reshape(array.shape)  # it makes a row of a scalar
    if is_bf16:
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, _BF16)
    return ort.OrtValue.ortvalue_from_numpy(array)


def _words(value: Any) -> NDArray[np.uint16]:
    shape = value.shape()
    count = prod(shape)
    if not count:
        return np.empty(shape, np.uint16)
    return np.frombuffer((ctypes.c_uint16 * count).from_address(value.data_ptr()), np.uint16).reshape(shape).copy()
