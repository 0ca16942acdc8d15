"""What an estimator of scikit-learn gives: each method that it has is an output or two."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from services.core.arrays import DATATYPE_OF, NUMPY_DTYPE
from services.core.signature import TensorSpec
from services.core.tensor import BYTES
from services.runtime.backends import BadArtifactError, Options, refuse_unknown
from services.runtime.backends.labels import LABEL, PROBABILITIES, VALUE, as_labels, label_spec

DECISIONS, TRANSFORMED = "decision_function", "transform"


class _Part(NamedTuple):
    """One method's outputs, and how they look as far as that is known before it was asked."""

    answer: Callable[[Any], dict[str, NDArray[Any]]]
    specs: tuple[TensorSpec, ...]


class Answers:
    """`label` and `probabilities` of a classifier, `y` of what else predicts, `transform` of what only transforms.

    Options.outputs may have `decision_function` and `transform` given on request, where the estimator has them. A
    classifier of several labels has a column of `label` for each, and `probabilities_0`, `probabilities_1`, … where it
    gives them apart.
    """

    def __init__(self, artifact: Path, estimator: Any, options: Options) -> None:
        self._artifact = artifact
        self._estimator = estimator
        self._before, self._last = _steps(estimator)
        self._float = np.float64 if options.doubles else np.float32
        self._floats = "FP64" if options.doubles else "FP32"
        self._by_argmax = False
        self._label_dtype: np.dtype = np.dtype(object)
        usual = self._usual()
        also = {
            DECISIONS: _Part(self._decisions, (TensorSpec(DECISIONS, self._floats, (-1,)),)),
            TRANSFORMED: self._transform(),
        }
        possible = [name for name, part in also.items() if part != usual and callable(getattr(estimator, name, None))]
        refuse_unknown(artifact, options.outputs, possible)
        self._parts = [usual, *(also[name] for name in options.outputs)]
        self._on_request = options.outputs

    def of(self, rows: Any, outputs: Collection[str]) -> dict[str, NDArray[Any]]:
        """`outputs` at least."""
        wanted = [name in outputs for name in self._on_request]
        answers = self._parts[0].answer(rows) if sum(wanted) < len(outputs) else {}
        for part, is_wanted in zip(self._parts[1:], wanted, strict=True):
            if is_wanted:
                answers.update(part.answer(rows))
        return answers

    def specs(self, example: Any) -> tuple[TensorSpec, ...]:
        """The outputs as `example`, one row, has them; as far as is known when there is none or it has no answer."""
        known = tuple(spec for part in self._parts for spec in part.specs)
        try:
            if example is not None:
                answers = self.of(example, [spec.name for spec in known])
                return tuple(_spec(name, array) for name, array in answers.items())
            if type(self._estimator).__module__.startswith("sklearn."):
                check_is_fitted(self._estimator)
        except NotFittedError as error:
            raise BadArtifactError(
                f"{self._artifact.name}: expected a fitted estimator, found a {_name(self._estimator)} that never was"
            ) from error
        except Exception:  # noqa: BLE001 - a made-up row need not be a valid one
            return known
        return known

    def _usual(self) -> _Part:
        estimator = self._estimator
        if not callable(getattr(estimator, "predict", None)):
            if callable(getattr(estimator, "transform", None)):
                return self._transform()
            raise BadArtifactError(
                f"{self._artifact.name}: expected an object with predict or transform, found a {_name(estimator)}"
            )
        if not hasattr(estimator, "classes_"):
            return _Part(self._value, (TensorSpec(VALUE, self._floats, (-1,)),))
        label, probabilities = self._class_specs()
        if not hasattr(estimator, "predict_proba"):
            return _Part(self._label, (label,))
        # A forest's predict is exactly this; asking it twice would double its cost.
        predict = getattr(type(self._last), "predict", None)
        is_forest = getattr(predict, "__qualname__", "") == "ForestClassifier.predict"
        self._by_argmax = is_forest and not isinstance(estimator.classes_, list)
        return _Part(self._label_and_probabilities, (label, *probabilities))

    def _class_specs(self) -> tuple[TensorSpec, list[TensorSpec]]:
        classes = self._estimator.classes_
        several = [np.asarray(each) for each in (classes if isinstance(classes, list) else [classes])]
        for each in several:
            others = {type(name).__name__ for name in each.tolist() if not isinstance(name, str)}
            if each.dtype.kind == "O" and others:
                found = ", ".join(sorted(others))
                raise BadArtifactError(
                    f"{self._artifact.name}: expected classes that are all numbers or all text, found objects: {found}"
                )
        label = label_spec(np.concatenate(several))
        self._label_dtype = NUMPY_DTYPE.get(label.datatype, self._label_dtype)
        if not isinstance(classes, list):
            return label, [TensorSpec(PROBABILITIES, self._floats, (-1, len(classes)))]
        return label._replace(shape=(-1, len(several))), [
            TensorSpec(f"{PROBABILITIES}_{number}", self._floats, (-1, len(each)))
            for number, each in enumerate(several)
        ]

    def _transform(self) -> _Part:
        return _Part(self._transformed, (TensorSpec(TRANSFORMED, self._floats, (-1, -1)),))

    def _value(self, rows: Any) -> dict[str, NDArray[Any]]:
        return {VALUE: np.asarray(self._estimator.predict(rows), dtype=self._float)}

    def _label(self, rows: Any) -> dict[str, NDArray[Any]]:
        return {LABEL: np.asarray(self._estimator.predict(rows)).astype(self._label_dtype)}

    def _label_and_probabilities(self, rows: Any) -> dict[str, NDArray[Any]]:
        if self._before is not None:
            rows = self._before.transform(rows)
        probabilities = self._last.predict_proba(rows)
        if self._by_argmax:
            predicted = self._last.classes_.take(np.argmax(probabilities, axis=1))
        else:
            predicted = np.asarray(self._last.predict(rows))
        answers = {LABEL: predicted.astype(self._label_dtype)}
        if isinstance(probabilities, list):
            for number, one in enumerate(probabilities):
                answers[f"{PROBABILITIES}_{number}"] = np.asarray(one, dtype=self._float)
        else:
            answers[PROBABILITIES] = np.asarray(probabilities, dtype=self._float)
        return answers

    def _decisions(self, rows: Any) -> dict[str, NDArray[Any]]:
        return {DECISIONS: np.asarray(self._estimator.decision_function(rows), dtype=self._float)}

    def _transformed(self, rows: Any) -> dict[str, NDArray[Any]]:
        transformed = self._estimator.transform(rows)
        if hasattr(transformed, "toarray"):
            transformed = transformed.toarray()
        array = np.asarray(transformed)
        return {TRANSFORMED: array.astype(self._float) if array.dtype.kind == "f" else as_labels(array)}


def _steps(estimator: Any) -> tuple[Any, Any]:
    """What a pipeline does before its last step, and that step: two answers of it need the former once."""
    if type(estimator) is Pipeline and len(estimator.steps) > 1:
        return estimator[:-1], estimator.steps[-1][1]
    return None, estimator


def _spec(name: str, array: NDArray[Any]) -> TensorSpec:
    return TensorSpec(name, DATATYPE_OF.get(array.dtype, BYTES), (-1, *array.shape[1:]))


def _name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
