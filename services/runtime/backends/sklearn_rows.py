"""What an estimator of scikit-learn takes: one matrix, one text a row, or a tensor for each column of a table."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer
from sklearn.pipeline import Pipeline

from services.core.signature import TensorSpec
from services.core.tensor import BYTES
from services.runtime.backends import Arrays, BadArtifactError
from services.runtime.backends.texts import text_array

INPUT = "x"
_TEXT_TAKERS = (CountVectorizer, HashingVectorizer)


class Rows(Protocol):
    """From tensors to the estimator's own kind of input."""

    @property
    def specs(self) -> tuple[TensorSpec, ...]: ...

    def of(self, inputs: Arrays) -> Any: ...

    def example(self) -> Arrays | None:
        """One row that the estimator should take; None when nothing is known about it."""

    def examples(self) -> list[Arrays]:
        """Rows of what it has learnt, which made-up ones would not be; may be none."""


class Matrix:
    """Rows of numbers (or of text, where every column is a category), columns in the order of `feature_names_in_`."""

    def __init__(self, features: int, datatype: str, example: Any, other: Any = None) -> None:
        self.specs = (TensorSpec(INPUT, datatype, (-1, features)),)
        self.needs_doubles = False  # some estimators cannot mix them with rows of FP32
        self._is_text = datatype == BYTES
        self._example = example
        self._other = other  # another row of what is known, where only that is taken

    def of(self, inputs: Arrays) -> NDArray[Any]:
        rows = inputs[INPUT]
        if self._is_text:
            return text_array(INPUT, rows)
        return rows.astype(np.float64) if self.needs_doubles else rows

    def example(self) -> Arrays | None:
        return None if self._example is None else {INPUT: self._example}

    def examples(self) -> list[Arrays]:
        return [] if self._other is None else [{INPUT: self._example}, {INPUT: self._other}]


class Texts:
    """One text a row, for a pipeline that begins with a vectorizer."""

    specs = (TensorSpec(INPUT, BYTES, (-1,)),)

    def of(self, inputs: Arrays) -> NDArray[Any]:
        return text_array(INPUT, inputs[INPUT])

    def example(self) -> Arrays | None:
        return self.examples()[0]

    def examples(self) -> list[Arrays]:
        return [{INPUT: np.array([text], dtype=object)} for text in (b"a text", b"another, longer text")]


class Columns:
    """A tensor [n] for each column that the estimator knows by name: BYTES for categories and text, else FP64."""

    def __init__(self, artifact: Path, names: Sequence[str], table: ColumnTransformer) -> None:
        try:
            import pandas as pd  # noqa: PLC0415 - only such estimators need it
        except ImportError:
            raise BadArtifactError(
                f"{artifact.name} takes its columns by name and so needs pandas, which this pod has not installed"
            ) from None
        self._frame = pd.DataFrame
        self._example, self._other = (
            {names[index]: np.array([value]) for index, value in sorted(_examples(table, which).items())}
            for which in (0, -1)
        )
        text = {name for name, value in self._example.items() if value.dtype.kind == "U"}
        self._text = text
        self.specs = tuple(TensorSpec(name, BYTES if name in text else "FP64", (-1,)) for name in self._example)

    def of(self, inputs: Arrays) -> Any:
        text = self._text
        return self._frame(
            {name: text_array(name, inputs[name]) if name in text else inputs[name] for name in self._example},
            copy=False,
        )

    def example(self) -> Arrays | None:
        return self._tensors(self._example)

    def examples(self) -> list[Arrays]:
        return [self._tensors(each) for each in (self._example, self._other)]

    def _tensors(self, row: dict[str, NDArray[Any]]) -> Arrays:
        return {
            name: np.array([str(value[0]).encode()], dtype=object) if name in self._text else value.astype(np.float64)
            for name, value in row.items()
        }


def rows_of(artifact: Path, estimator: Any, *, doubles: bool) -> Rows:
    """How `estimator` takes its rows. Raises BadArtifactError."""
    first = _first_step(estimator)
    if isinstance(first, _TEXT_TAKERS):
        return Texts()
    names = getattr(estimator, "feature_names_in_", None)
    if names is not None and isinstance(first, ColumnTransformer) and _goes_by_name(first):
        return Columns(artifact, [str(name) for name in names], first)
    features = getattr(estimator, "n_features_in_", -1)
    categories = getattr(first, "categories_", None)
    if isinstance(categories, list) and len(categories) == features:
        return _of_categories(artifact, categories, doubles=doubles)
    datatype = "FP64" if doubles else "FP32"
    zeros = np.zeros((1, features), np.float64 if doubles else np.float32) if features > 0 else None
    return Matrix(features, datatype, zeros)


def _of_categories(artifact: Path, categories: list[NDArray[Any]], *, doubles: bool) -> Matrix:
    """A matrix whose columns all are categories."""
    known, others = ([_known(column, which) for column in categories] for which in (0, -1))
    texts = sum(isinstance(value, str) for value in known)
    if 0 < texts < len(known):
        raise BadArtifactError(
            f"{artifact.name}: expected columns of one kind, found {texts} of text and {len(known) - texts} of numbers:"
            " train it on a DataFrame with a ColumnTransformer that names its columns"
        )
    if texts:
        rows = (np.array([[str(value).encode() for value in row]], dtype=object) for row in (known, others))
        return Matrix(len(known), BYTES, *rows)
    dtype = np.float64 if doubles else np.float32
    return Matrix(len(known), "FP64" if doubles else "FP32", *(np.array([row], dtype) for row in (known, others)))


def _first_step(estimator: Any) -> Any:
    """What sees the rows first: inside searches and pipelines."""
    while True:
        if hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif isinstance(estimator, Pipeline):
            steps = [step for _, step in estimator.steps if step not in (None, "passthrough")]
            if not steps:
                return None
            estimator = steps[0]
        else:
            return estimator


def _goes_by_name(table: ColumnTransformer) -> bool:
    return any(
        isinstance(columns, str) or (isinstance(columns, list) and any(isinstance(name, str) for name in columns))
        for _, _, columns in table.transformers_
    )


def _examples(table: ColumnTransformer, which: int) -> dict[int, Any]:
    """A value for each column that `table` uses: text where it takes text, else a number; 0 = the first known."""
    examples: dict[int, Any] = {}
    for name, step, _ in table.transformers_:
        if step == "drop":
            continue
        first = _first_step(step)
        for position, index in enumerate(table._transformer_to_input_indices[name]):  # noqa: SLF001 - nowhere public
            value = _example(first, position, which)
            examples[index] = value if isinstance(value, str) else examples.get(index, value)
    return examples


def _example(first: Any, position: int, which: int) -> Any:
    if isinstance(first, _TEXT_TAKERS):
        return "another text" if which else "a text"
    for attribute in ("categories_", "statistics_"):  # of encoders, of imputers
        learned = getattr(first, attribute, None)
        if learned is not None and position < len(learned):
            return _known(np.atleast_1d(learned[position]), which)
    return float(-which)


def _known(values: NDArray[Any], which: int) -> Any:
    """The first of `values` that a tensor can hold; the last of them when `which` is -1."""
    known = [value for value in values.tolist() if isinstance(value, str | bool | int | float)]
    return known[which] if known else 0.0
