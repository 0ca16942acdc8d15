"""Tensor data <-> numpy arrays, for the services that compute."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from services.core.tensor import BYTES, decode_bytes, encode_bytes

_DTYPES = {
    "BOOL": "?",
    "UINT8": "u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "INT8": "i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
}
NUMPY_DTYPE = {name: np.dtype(code) for name, code in _DTYPES.items()}
DATATYPE_OF = {dtype: name for name, dtype in NUMPY_DTYPE.items()}
_TEXT_KINDS = "OSTU"  # objects, fixed bytes, variable text, fixed text


def decode(datatype: str, shape: Sequence[int], data: bytes | memoryview) -> NDArray:
    """The array in `data`, without a copy (read-only) except for BYTES (object array of bytes).

    BF16 comes as its raw uint16 words: numpy has no such type.
    """
    if datatype == BYTES:
        elements = decode_bytes(data)
        array = np.empty(len(elements), dtype=object)
        array[:] = elements
        return array.reshape(shape)
    dtype = np.dtype("<u2") if datatype == "BF16" else NUMPY_DTYPE[datatype]
    return np.frombuffer(data, dtype=dtype).reshape(shape)


def encode(array: NDArray) -> tuple[str, bytes]:
    """(datatype, wire data) of an array. Strings and objects become BYTES (text as UTF-8).

    Raises ValueError for a dtype that no Open Inference datatype holds.
    """
    if array.dtype.kind in _TEXT_KINDS:
        elements = array.ravel().tolist()
        return BYTES, encode_bytes([e if type(e) is bytes else _as_bytes(e) for e in elements])
    dtype = array.dtype.newbyteorder("<") if array.dtype.byteorder == ">" else array.dtype
    datatype = DATATYPE_OF.get(dtype)
    if datatype is None:
        raise ValueError(f"dtype {array.dtype} has no Open Inference datatype; known are {', '.join(_DTYPES)} and text")
    return datatype, np.ascontiguousarray(array, dtype=dtype).tobytes()


def _as_bytes(element: object) -> bytes:
    if isinstance(element, bytes):
        return element
    if isinstance(element, str):
        return element.encode()
    raise ValueError(f"an element of type {type(element).__name__} in an object array is neither text nor bytes")
