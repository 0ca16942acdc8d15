"""Values as TensorFlow Serving writes them in JSON <-> tensors: nested lists, {"b64": …} for bytes, exact integers."""

import base64
import binascii
import json
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from services.core.arrays import decode
from services.core.errors import InvalidRequestError
from services.core.signature import Given, TensorSpec
from services.core.tensor import BYTES, decode_bytes, encode_bytes
from services.router.rest.json_data import CODES, NULL, WORDS, with_tokens

_HALVES = ("FP16", "BF16")
_FLOATS = ("FP32", "FP64", *_HALVES)
_B64 = {"b64"}
_DOUBLE_BYTES = 8
_BYTES_SUFFIX = "_bytes"  # an output of such a name is bytes, not text


def is_b64(value: Any) -> bool:
    """Whether an object stands for bytes, not for named values."""
    return isinstance(value, dict) and value.keys() == _B64


def tensor(spec: TensorSpec, value: Any, *, has_words: bool) -> Given:
    """The tensor that `value`, nested lists or one element, is for `spec`. Raises InvalidRequestError.

    `has_words`: true or false may be among the values; Python takes them for numbers.
    """
    try:
        shape, flat = flatten(value)
        data = encode(spec.datatype, flat, has_words=has_words)
        return Given(spec.name, spec.datatype, _filled_up(shape, spec), data)
    except (ValueError, OverflowError) as error:
        raise InvalidRequestError(f"input {spec.name!r}: {error}") from None


def flatten(value: Any) -> tuple[list[int], list[Any]]:
    """Shape and elements of nested lists. Raises ValueError where they are ragged."""
    if type(value) is not list:
        return [], [value]
    shape, level = [len(value)], value
    while level and type(level[0]) is list:
        size = len(level[0])
        if set(map(type, level)) != {list} or set(map(len, level)) != {size}:
            raise ValueError(f"lists at depth {len(shape) + 1} differ in length, or stand beside values")
        inner: list[Any] = []
        for each in level:
            inner += each
        shape.append(size)
        level = inner
    return shape, level


def _filled_up(shape: list[int], spec: TensorSpec) -> list[int]:
    """The shape of values among which there is none: lists do not show what would be inside."""
    if shape and shape[-1] == 0 and len(shape) < len(spec.shape):
        return shape + [max(0, size) for size in spec.shape[len(shape) :]]
    return shape


def encode(datatype: str, flat: Sequence[Any], *, has_words: bool = True) -> bytes:
    """Elements as the data of a tensor. Raises ValueError with the one that is none."""
    if datatype == BYTES:
        return encode_bytes([element_bytes(element) for element in flat])
    if has_words and datatype != "BOOL" and bool in set(map(type, flat)):
        raise ValueError(f"{datatype} takes numbers, not true or false")
    if datatype in _HALVES:
        return _halves(datatype, flat)
    if datatype == "BOOL" and not all(type(element) in {bool, int} and 0 <= element <= 1 for element in flat):
        raise ValueError("BOOL takes true, false, 0 or 1")
    pattern = f"<{len(flat)}{CODES[datatype]}"
    try:
        return struct.pack(pattern, *flat)
    except (struct.error, OverflowError):
        if datatype in _FLOATS and any(type(element) is str for element in flat):
            return struct.pack(pattern, *_numbers(datatype, flat))
        raise ValueError(_fault(datatype, flat)) from None


def element_bytes(element: Any) -> bytes:
    """Text or {"b64": …} as bytes. Raises ValueError."""
    if type(element) is str:
        return element.encode()
    if isinstance(element, bytes):
        return element
    if is_b64(element) and isinstance(element["b64"], str):
        try:
            return base64.b64decode(element["b64"], validate=True)
        except binascii.Error as error:
            raise ValueError(f'{{"b64": …}} is no base64: {error}') from None
    raise ValueError(f'BYTES takes text or {{"b64": "…"}}, not {_shown(element)}')


def _numbers(datatype: str, flat: Sequence[Any]) -> list[Any]:
    """Elements with the words for what is not finite as numbers."""
    numbers = [WORDS.get(element, element) if type(element) is str else element for element in flat]
    if any(type(number) not in {int, float} for number in numbers):
        raise ValueError(_fault(datatype, numbers))
    return numbers


def _halves(datatype: str, flat: Sequence[Any]) -> bytes:
    wide = np.array(_numbers(datatype, flat), dtype=np.float32)
    if datatype == "BF16":
        words = wide.view(np.uint32)
        rounded = (words + (np.uint32(0x7FFF) + ((words >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(16)
        rounded[np.isnan(wide)] = 0x7FC0
        return rounded.astype("<u2").tobytes()
    with np.errstate(over="ignore"):
        narrow = wide.astype("<f2")
    if np.isinf(narrow).sum() != np.isinf(wide).sum():
        raise ValueError(f"a value is outside {datatype}")
    return narrow.tobytes()


def _fault(datatype: str, flat: Sequence[Any]) -> str:
    """Why elements are not of a datatype of numbers."""
    kinds = (int, float) if datatype in _FLOATS else (int,)
    what = "numbers" if datatype in _FLOATS else "whole numbers (1, not 1.0)"
    for element in flat:
        if type(element) is list:
            return "lists differ in depth"
        if type(element) not in kinds:
            return f"{datatype} takes {what}, not {_shown(element)}"
    return f"a value is outside {datatype}"


def _shown(element: Any) -> str:
    return json.dumps(element, default=str)[:40]


def array_of(output: Any) -> np.ndarray:
    """An output (turnout.v1.Tensor) as an array that JSON has a form for; BYTES as objects, text or {"b64": …}."""
    shape = list(output.shape)
    if output.datatype == "BF16":
        words = np.frombuffer(output.data, dtype="<u2").astype(np.uint32) << 16
        return words.view(np.float32).reshape(shape)
    if output.datatype != BYTES:
        return decode(output.datatype, shape, output.data)
    elements = decode_bytes(output.data)
    array = np.empty(len(elements), dtype=object)
    array[:] = _texts(output.name, elements)
    return array.reshape(shape)


def _texts(name: str, elements: list[bytes]) -> list[Any]:
    if not name.endswith(_BYTES_SUFFIX):
        try:
            return [element.decode() for element in elements]
        except UnicodeDecodeError:
            pass
    return [{"b64": base64.b64encode(element).decode()} for element in elements]


def dump(body: Any, arrays: Sequence[np.ndarray]) -> bytes:
    """JSON of a body whose numbers are in `arrays`; what is not finite as bare NaN and Infinity tokens."""
    text = orjson.dumps(body, default=_plain, option=orjson.OPT_SERIALIZE_NUMPY)
    if NULL not in text:
        return text
    strange = [array[~np.isfinite(array)] for array in arrays if array.dtype.kind == "f"]
    count = sum(map(len, strange))
    if not count:
        return text
    is_plain = text.count(NULL) == count  # each of them is a number, and no part of a text
    if is_plain and (len(arrays) == 1 or all(np.isnan(values).all() for values in strange)):
        return with_tokens(text, np.concatenate(strange))
    return json.dumps(body, default=_plain, separators=(",", ":")).encode()  # ten times slower


def _plain(value: Any) -> Any:
    """What the JSON writers have no form of their own for; floats as short as they are in their own precision."""
    if isinstance(value, np.ndarray | np.generic):
        is_short = value.dtype.kind == "f" and value.dtype.itemsize < _DOUBLE_BYTES
        return (value.astype(str).astype(float) if is_short else value).tolist()
    raise TypeError(type(value).__name__)
