"""Outputs of a model as what classify and regress answer."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from services.core.arrays import decode
from services.core.errors import InvalidRequestError
from services.core.tensor import BYTES
from services.router.tfserving.json_values import dump

_CLASSES, _SCORES, _VALUES = "classes", "scores", "outputs"  # as TensorFlow's signatures name them
_FLOATS = {"FP32", "FP64", "FP16"}

Class = tuple[str, Any]  # label, score as numpy.float32


def classified(model: str, outputs: Sequence[Any]) -> list[list[Class]]:
    """Label and score of every class, for each row. Raises InvalidRequestError for outputs that are none.

    They are `classes` and `scores`, else the one output of floats with a row for each example.
    """
    named = {output.name: output for output in outputs}
    classes, scores = named.get(_CLASSES), named.get(_SCORES)
    if scores is None and classes is None:
        scores = _only(outputs, lambda output: output.datatype in _FLOATS and len(output.shape) == 2)
    if scores is None and classes is None:
        raise InvalidRequestError(
            f"model {model} does not classify: {_needs('classes or scores', outputs)}; ask predict"
        )
    labels = None if classes is None else _rows(decode(BYTES, list(classes.shape), classes.data), _text)
    values = None if scores is None else _rows(_numbers(scores), lambda score: score)
    if labels is None:
        labels = [[""] * len(row) for row in values or ()]
    if values is None:
        values = [[np.float32(0)] * len(row) for row in labels]
    if list(map(len, labels)) != list(map(len, values)):
        raise InvalidRequestError(f"model {model} gives other numbers of classes than of scores; ask predict")
    return [list(zip(*row, strict=True)) for row in zip(labels, values, strict=True)]


def regressed(model: str, outputs: Sequence[Any]) -> list[Any]:
    """One numpy.float32 for each row. Raises InvalidRequestError for outputs that are none.

    They are `outputs`, else the one output with one number a row.
    """
    output = next((output for output in outputs if output.name == _VALUES), None)
    if output is None:
        output = _only(outputs, lambda each: each.datatype in _FLOATS and list(each.shape[1:]) in ([], [1]))
    if output is None or output.datatype == BYTES or list(output.shape[1:]) not in ([], [1]):
        needs = _needs("one number a row", outputs)
        raise InvalidRequestError(f"model {model} does not regress: {needs}; ask predict")
    return list(_numbers(output).reshape(-1))


def write(found: list[Any]) -> bytes:
    """The REST answer of classify or regress."""
    scores = [each[1] for row in found for each in row] if found and isinstance(found[0], list) else found
    return dump({"results": found}, [np.array(scores, dtype=np.float32)])


def _only(outputs: Sequence[Any], fits: Any) -> Any:
    found = [output for output in outputs if output.shape and fits(output)]
    return found[0] if len(found) == 1 else None


def _numbers(output: Any) -> np.ndarray:
    return decode(output.datatype, list(output.shape), output.data).astype(np.float32)


def _rows(array: np.ndarray, value: Any) -> list[list[Any]]:
    return [[value(each) for each in row] for row in array.reshape(array.shape[0], -1)]


def _text(element: Any) -> str:
    return element.decode(errors="replace") if isinstance(element, bytes) else str(element)


def _needs(what: str, outputs: Sequence[Any]) -> str:
    given = ", ".join(f"{output.name} {output.datatype}{list(output.shape)}" for output in outputs)
    return f"it needs an output of {what}, and gives {given}"
