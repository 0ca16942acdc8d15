"""Whether a file of XGBoost is whole: its library may read on for ever in one that is cut off."""

import json
import struct
from typing import Any

_SIZES = dict(zip(b"iUIlLdDCTFZN", (1, 1, 2, 4, 8, 4, 8, 1, 0, 0, 0, 0), strict=True))
_COUNTS = {ord(kind): struct.Struct(code) for kind, code in zip("iUIlL", (">b", ">B", ">h", ">i", ">q"), strict=True)}
_MAP, _END_OF_MAP, _LIST, _END_OF_LIST, _STRING, _TYPE, _COUNT = b"{}[]S$#"
_OPEN = -1  # a list that ends with a mark, not after a count


def fault(content: bytes, suffix: str) -> str:
    """What is wrong with a model in JSON or UBJSON (`suffix`), empty when it can be read to its end."""
    try:
        if suffix == ".json":
            json.loads(content)
        else:
            _walk(content)
    except (UnicodeDecodeError, RecursionError):
        return "found what is no text"
    except (IndexError, KeyError):
        return f"found a file that is cut off at byte {len(content)}"
    except ValueError as error:
        return f"found a file that is broken: {error}"
    return ""


def _walk(data: bytes) -> None:
    """Pass over one UBJSON value (https://ubjson.org). Raises IndexError past the end, ValueError on what is none."""
    waiting: list[int | None] = []  # for each container: None = a map, else how many elements are to come
    at = _value(data, 0, waiting)
    while waiting:
        left = waiting[-1]
        if left is None:
            if data[at] == _END_OF_MAP:
                waiting.pop()
                at += 1
            else:
                at = _value(data, _past(data, *_count(data, at)), waiting)
        elif left == 0 or (left == _OPEN and data[at] == _END_OF_LIST):
            waiting.pop()
            at += left == _OPEN
        else:
            waiting[-1] = left if left == _OPEN else left - 1
            at = _value(data, at, waiting)


def _value(data: bytes, at: int, waiting: list[Any]) -> int:
    """Where the value at `at` ends; of a container, where its first element begins."""
    kind = data[at]
    at += 1
    if kind in _SIZES:
        return _past(data, _SIZES[kind], at)
    if kind == _STRING:
        return _past(data, *_count(data, at))
    if kind == _MAP:
        waiting.append(None)
        return at
    if kind != _LIST:
        raise ValueError(f"byte {kind:#x} at {at - 1} is no kind of value")
    if data[at] == _TYPE:
        size = _SIZES[data[at + 1]]
        count, at = _count(data, at + 3)
        return _past(data, count * size, at)
    if data[at] == _COUNT:
        count, at = _count(data, at + 1)
        waiting.append(count)
        return at
    waiting.append(_OPEN)
    return at


def _count(data: bytes, at: int) -> tuple[int, int]:
    """A length, and where what follows it begins."""
    form = _COUNTS.get(data[at])
    if form is None:
        raise ValueError(f"byte {data[at]:#x} at {at} is no kind of length")
    after = _past(data, form.size, at + 1)
    return form.unpack_from(data, at + 1)[0], after


def _past(data: bytes, size: int, at: int) -> int:
    if size < 0:
        raise ValueError(f"length {size} before byte {at}")
    if at + size > len(data):
        raise IndexError(at)
    return at + size
