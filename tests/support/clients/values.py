"""The models of tests.support.echoes, and numbers and texts that are easily lost on the way, of every datatype."""

from collections.abc import Sequence

import ml_dtypes
import numpy as np

WIDTH = 3
BATCH_ROWS = 4  # a batch takes as many
MOST_ROWS = 6  # a request may have as many: more than a batch, so that some are cut and joined again
WITH_JSON = ("BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "FP32", "FP64", "BYTES")
DATATYPES = (*WITH_JSON, "FP16", "BF16")
# model -> datatypes of its inputs in_DATATYPE and outputs out_DATATYPE, each of [-1, WIDTH]
MODELS: dict[str, Sequence[str]] = {"every": DATATYPES, "plain": WITH_JSON, "spare": ("FP32",)}
_FLOATS = {"FP16": np.float16, "FP32": np.float32, "FP64": np.float64, "BF16": ml_dtypes.bfloat16}
_TEXTS = (b"ab", b"", "é".encode(), b"a\0", b"\0", b"a\0b\0\0", b"x" * 300)
_NO_TEXTS = (b"\xff\xfe", b"\x80", b"\xc3")


def tensor(datatype: str, rows: int, width: int, *, as_text: bool = False, finite: bool = False) -> np.ndarray:
    """[rows, width] of the datatype; `as_text`: BYTES that are UTF-8 only."""
    values = _values(datatype, as_text=as_text)
    if finite and datatype in _FLOATS:
        values = values[np.isfinite(values)]
    return np.resize(values, (rows, width)) if rows else np.empty((0, width), values.dtype)


def same(sent: np.ndarray, got: np.ndarray | None) -> bool:
    """Whether every bit came back; texts may have come back as str."""
    if got is None or sent.shape != got.shape:
        return False
    if sent.dtype == object:
        return list(sent.ravel()) == [text.encode() if isinstance(text, str) else text for text in got.ravel()]
    return sent.astype(got.dtype).tobytes() == got.tobytes()


def _values(datatype: str, *, as_text: bool) -> np.ndarray:
    if datatype == "BYTES":
        return np.array(_TEXTS if as_text else _TEXTS + _NO_TEXTS, dtype=object)
    if datatype == "BOOL":
        return np.array([True, False, True, True, False])
    if datatype in _FLOATS:
        return np.array([1.5, -0.0, np.inf, -np.inf, np.nan, 2.0, -3.25, 0.0], dtype=_FLOATS[datatype])
    kind = np.dtype(datatype.lower())
    least, most = np.iinfo(kind).min, np.iinfo(kind).max
    exact = [2**53 + 1] if most > 2**53 else []  # which no float holds
    return np.array([least, most, 0, 1, most - 1, *exact, 7], dtype=kind)
