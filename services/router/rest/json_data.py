"""The elements of a tensor in JSON <-> its bytes: nested or flat, exact integers, NaN and infinities."""

import base64
import itertools
import re
import struct
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from services.core.errors import InvalidRequestError
from services.core.tensor import BYTES, decode_bytes, encode_bytes

CODES = {
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
WORDS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_DTYPES = {name: np.dtype("?" if name == "BOOL" else "<" + code) for name, code in CODES.items()}
NULL = b"null"  # what the quick writer makes of numbers that are not finite
_TOKEN = re.compile(rb"NaN|Infinity")
_MOST_PLACES = 1 << 16  # of such tokens, with texts between them
_NUL = b"\0"  # never in JSON, so it can stand for what is
_BACKSLASH, _QUOTE, _MINUS = _NUL + b"b", _NUL + b"q", _NUL + b"m"


def loads(body: bytes | memoryview) -> Any:
    """JSON; bare NaN and Infinity tokens come as text, which stands for them too. Raises InvalidRequestError."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        data = bytes(body)
        if b"NaN" not in data and b"Infinity" not in data:
            raise InvalidRequestError(f"the body is not JSON: {str(error)[:200]}") from None
    try:
        return orjson.loads(_with_words(data))
    except orjson.JSONDecodeError as error:
        reason = str(error).partition(":")[0]  # without the place, which is another than its sender's
        raise InvalidRequestError(f"the body is not JSON, bare NaN and Infinity aside: {reason[:200]}") from None


def _with_words(data: bytes) -> bytes:
    """JSON with its bare tokens in quotes; a reader that knows them takes seconds for a large body.

    Raises InvalidRequestError where that many texts stand between them that it would take long here, too.
    """
    if _NUL in data:
        raise InvalidRequestError("the body is not JSON: it has a byte that is 0")
    data = data.replace(b"\\\\", _BACKSLASH).replace(b'\\"', _QUOTE)  # a quote is now the end of a text, or its start
    parts: list[bytes] = []
    at = 0  # outside of texts
    while (token := _TOKEN.search(data, at)) is not None:
        end = data.find(b'"', token.start())
        if data.count(b'"', at, token.start()) % 2:  # in a text
            end = end + 1 or len(data)
            parts.append(data[at:end])
        else:
            end = len(data) if end < 0 else end
            parts.append(_quoted(data[at:end]))
        at = end
        if len(parts) > _MOST_PLACES:
            raise InvalidRequestError(f'over {_MOST_PLACES} texts stand between bare NaN or Infinity: write them "NaN"')
    parts.append(data[at:])
    return b"".join(parts).replace(_QUOTE, b'\\"').replace(_BACKSLASH, b"\\\\")


def _quoted(tokens: bytes) -> bytes:
    """The same with quotes about what is not finite."""
    minus = tokens.replace(b"-Infinity", _MINUS).replace(b"Infinity", b'"Infinity"')
    return minus.replace(_MINUS, b'"-Infinity"').replace(b"NaN", b'"NaN"')


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
    code = CODES.get(datatype)
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
            numbers: list[Any] = [WORDS.get(e, e) if isinstance(e, str) else e for e in elements]
            return array(code, numbers).tobytes()
        wrong = next(element for element in elements if not isinstance(element, int))
        raise ValueError(f"{datatype} takes whole numbers, not {str(wrong)[:40]!r}") from None
    except OverflowError:
        raise ValueError(f"a value is outside the range of {datatype}") from None


def _bytes_element(element: Any, *, as_base64: bool) -> bytes:
    if not isinstance(element, str):
        raise TypeError(f"BYTES takes text, not {str(element)[:40]!r}")
    return base64.b64decode(element, validate=True) if as_base64 else element.encode()


def numbers(name: str, datatype: str, data: bytes | memoryview) -> bytes:
    """A JSON list of all elements but those of BYTES; floats in the shortest form that reads back the same.

    Raises InvalidRequestError for a datatype without a form in JSON, ValueError for data that is cut off.
    """
    dtype = _DTYPES.get(datatype)
    if dtype is None:
        raise InvalidRequestError(f"output {name!r} is {datatype}, which has no JSON form: ask for it as binary data")
    values = np.frombuffer(bytes(data), dtype)
    text = orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)
    if datatype in _FLOATS and NULL in text:
        return with_tokens(text, values[~np.isfinite(values)])
    return text


def with_tokens(text: bytes, strange: np.ndarray) -> bytes:
    """JSON of numbers in which `strange`, in their order, stand where it has null."""
    if np.isnan(strange).all():
        return text.replace(NULL, b"NaN")
    words = [b"NaN" if value != value else b"Infinity" if value > 0 else b"-Infinity" for value in strange.tolist()]  # noqa: PLR0124
    return b"".join(itertools.chain.from_iterable(zip(text.split(NULL), [*words, b""], strict=True)))


def texts(data: bytes | memoryview) -> tuple[Sequence[str], bool]:
    """The elements of BYTES, and whether they are in base64, as they are where one is not UTF-8."""
    elements = decode_bytes(data)
    try:
        return [element.decode() for element in elements], False
    except UnicodeDecodeError:
        return [base64.b64encode(element).decode() for element in elements], True
