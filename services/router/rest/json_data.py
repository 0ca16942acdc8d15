"""The elements of a tensor in JSON <-> its bytes: nested or flat, exact integers, NaN and infinities."""

import base64
import itertools
import json
import struct
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from services.core.errors import InvalidRequestError
from services.core.tensor import BYTES, decode_bytes, encode_bytes

_CODES = {
    "BOOL": "b",
    "INT8": "b",
    "INT16": "h",
    "INT32": "i",
    "INT64": "q",
    "UINT8": "B",
    "UINT16": "H",
    "UINT32": "I",
    "UINT64": "Q",
    "FP32": "f",
    "FP64": "d",
}
_FLOATS = {"FP32", "FP64"}
_WORDS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_DTYPES = {name: np.dtype("?" if name == "BOOL" else "<" + code) for name, code in _CODES.items()}
_NULL = b"null"  # what the quick writer makes of numbers that are not finite


def loads(body: bytes | memoryview) -> Any:
    """JSON, bare NaN and Infinity tokens included. Raises InvalidRequestError."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        data = bytes(body)
        if b"NaN" not in data and b"Infinity" not in data:  # only for these the slow reader is worth its time
            raise InvalidRequestError(f"the body is not JSON: {str(error)[:200]}") from None
    try:
        value = json.loads(data)
        json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair is no text
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the body is not JSON: {str(error)[:200]}") from None
    return value


def flatten(data: Any, rank: int) -> list[Any]:
    """Nested lists, at most `rank` deep, as one flat list. Raises ValueError."""
    flat: list[Any] = data if isinstance(data, list) else [data]
    for _ in range(max(rank, 1) - 1):
        if not flat or not isinstance(flat[0], list):
            break
        if not all(type(part) is list for part in flat):
            raise ValueError("data is nested to different depths")
        flat = list(itertools.chain.from_iterable(flat))
    return flat


def encode(datatype: str, elements: list[Any], *, as_base64: bool = False) -> bytes:
    """The bytes of a tensor's elements. Raises ValueError or TypeError for one that does not fit."""
    if datatype == BYTES:
        return encode_bytes([_bytes_element(element, as_base64=as_base64) for element in elements])
    code = _CODES.get(datatype)
    if code is None:
        raise ValueError(f"{datatype} has no JSON form: send it as binary data")
    if datatype == "BOOL" and not all(type(element) in {bool, int} and 0 <= element <= 1 for element in elements):
        raise ValueError("BOOL takes true, false, 0 or 1")
    try:
        return struct.pack(f"<{len(elements)}{code}", *elements)  # twice as fast as an array
    except (struct.error, OverflowError):
        return _encode_with_care(datatype, code, elements)


def _encode_with_care(datatype: str, code: str, elements: list[Any]) -> bytes:
    """The same where an element is not the usual, or not right; then with what is wrong."""
    try:
        return array(code, elements).tobytes()
    except TypeError:
        if datatype in _FLOATS:
            numbers: list[Any] = [_WORDS.get(e, e) if isinstance(e, str) else e for e in elements]
            return array(code, numbers).tobytes()
        wrong = next(element for element in elements if not isinstance(element, int))
        raise ValueError(f"{datatype} takes whole numbers, not {str(wrong)[:40]!r}") from None
    except OverflowError:
        raise ValueError(f"a value is outside the range of {datatype}") from None


def _bytes_element(element: Any, *, as_base64: bool) -> bytes:
    if not isinstance(element, str):
        raise TypeError(f"BYTES takes text, not {str(element)[:40]!r}")
    return base64.b64decode(element, validate=True) if as_base64 else element.encode()


def has_form(datatype: str) -> bool:
    """Whether JSON can hold elements of it."""
    return datatype in _CODES or datatype == BYTES


def numbers(name: str, datatype: str, data: bytes | memoryview) -> bytes:
    """A JSON list of all elements but those of BYTES; floats in the shortest form that reads back the same.

    Raises InvalidRequestError for a datatype without a form in JSON, ValueError for data that is cut off.
    """
    dtype = _DTYPES.get(datatype)
    if dtype is None:
        raise InvalidRequestError(f"output {name!r} is {datatype}, which has no JSON form: ask for it as binary data")
    values = np.frombuffer(bytes(data), dtype)
    text = orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)
    if datatype in _FLOATS and _NULL in text:
        return json.dumps([_shortest(value) for value in values], separators=(",", ":")).encode()
    return text


def _shortest(value: np.floating[Any]) -> float:
    return float(str(value))


def texts(data: bytes | memoryview) -> tuple[Sequence[str], bool]:
    """The elements of BYTES, and whether they are in base64, as they are where one is not UTF-8."""
    elements = decode_bytes(data)
    try:
        return [element.decode() for element in elements], False
    except UnicodeDecodeError:
        return [base64.b64encode(element).decode() for element in elements], True
