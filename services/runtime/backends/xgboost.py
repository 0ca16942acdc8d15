"""XGBoost models from JSON or UBJSON."""

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import xgboost
from numpy.typing import NDArray

from services.core.signature import Signature, TensorSpec
from services.runtime.backends import Arrays, BadArtifactError, Options, refuse_unknown
from services.runtime.backends.labels import CONTRIBUTIONS, LABEL, LEAF, MARGIN, PROBABILITIES, VALUE, no_rows
from services.runtime.backends.xgboost_files import fault

_INPUT = "x"
_HALF = np.float32(0.5)
_ALSO = (MARGIN, LEAF, CONTRIBUTIONS)


class Model:
    """One booster: input `x`; outputs `label` and `probabilities` like a classifier of scikit-learn, or `y`.

    NaN is a missing value; a categorical column has its codes as whole numbers. Options.outputs may have `margin`
    (scores before the objective's link), `leaf` (INT64, for each tree; not of gblinear) and `contributions` (to the
    margin, for each feature and last the bias) given on request: each is a prediction of its own, and the last is slow.
    """

    def __init__(self) -> None:
        self._booster: Any = None
        self._rounds = (0, 0)
        self._predict: Callable[[NDArray], NDArray] = self._in_place
        self._outputs: Callable[[NDArray], dict[str, NDArray]] = _value
        self._margins = False
        self._also: tuple[str, ...] = ()
        self._specs: tuple[TensorSpec, ...] = ()

    def load(self, artifact: Path, options: Options) -> Signature:
        booster = _read(artifact, options)
        self._booster = booster
        self._rounds = _rounds(booster)
        learner = json.loads(booster.save_config())["learner"]
        is_linear = learner["gradient_booster"].get("name") == "gblinear"
        if is_linear:
            self._predict = self._by_matrix  # gblinear has no prediction in place
        refuse_unknown(artifact, options.outputs, [name for name in _ALSO if not (is_linear and name == LEAF)])
        objective = learner["objective"]["name"]
        classes = int(learner["learner_model_param"]["num_class"])
        features = booster.num_features()
        outputs = self._choose(objective, classes, features)
        self._also = options.outputs
        if self._also:
            zeros = np.zeros((1, features), np.float32)
            outputs += tuple(_spec(name, array) for name, array in self._more(zeros, self._also).items())
        self._specs = outputs
        inputs = (TensorSpec(_INPUT, "FP32", (-1, features)),)
        return Signature(inputs, outputs, batches=True, platform="xgboost", on_request=self._also)

    def run(self, inputs: Arrays) -> dict[str, NDArray]:
        return self.run_only(inputs, [spec.name for spec in self._specs])

    def run_only(self, inputs: Arrays, outputs: Collection[str]) -> dict[str, NDArray]:
        rows = inputs[_INPUT]
        if not len(rows):
            return no_rows(self._specs)
        also = [name for name in self._also if name in outputs]
        answers = self._outputs(self._predict(rows)) if len(also) < len(outputs) else {}
        if also:
            answers.update(self._more(rows, also))
        return answers

    def unload(self) -> None:
        self._booster = None

    def _choose(self, objective: str, classes: int, features: int) -> tuple[TensorSpec, ...]:
        label = TensorSpec(LABEL, "INT64", (-1,))
        if objective in {"multi:softprob", "multi:softmax"}:
            self._margins = objective == "multi:softmax"  # it answers labels; margins have the probabilities
            self._outputs = _of_margins if self._margins else _of_probabilities
            return (label, TensorSpec(PROBABILITIES, "FP32", (-1, classes)))
        answer = self._predict(np.zeros((1, features), np.float32))
        if objective == "binary:logistic" and answer.ndim == 1:
            self._outputs = _of_positive
            return (label, TensorSpec(PROBABILITIES, "FP32", (-1, 2)))
        if objective == "binary:logistic":  # several labels, each its own question
            self._outputs = _of_each
            shape = (-1, *answer.shape[1:])
            return (label._replace(shape=shape), TensorSpec(PROBABILITIES, "FP32", shape))
        if objective == "binary:hinge":
            self._outputs = _of_labels
            return (label,)
        return (TensorSpec(VALUE, "FP32", (-1, *answer.shape[1:])),)

    def _in_place(self, rows: NDArray) -> NDArray:
        answer: NDArray = self._booster.inplace_predict(
            rows,
            iteration_range=self._rounds,
            predict_type="margin" if self._margins else "value",
            validate_features=False,
        )
        return answer

    def _by_matrix(self, rows: NDArray) -> NDArray:
        answer: NDArray = self._booster.predict(
            self._matrix(rows),
            iteration_range=self._rounds,
            output_margin=self._margins,
            validate_features=False,
        )
        return answer

    def _more(self, rows: NDArray, names: Collection[str]) -> dict[str, NDArray]:
        """Outputs that are given on request."""
        matrix = self._matrix(rows)
        answers: dict[str, NDArray] = {}
        for name in names:
            answer = self._booster.predict(
                matrix,
                iteration_range=self._rounds,
                validate_features=False,
                output_margin=name == MARGIN,
                pred_leaf=name == LEAF,
                pred_contribs=name == CONTRIBUTIONS,
            )
            answers[name] = answer.astype(np.int64).reshape(len(rows), -1) if name == LEAF else answer
        return answers

    def _matrix(self, rows: NDArray) -> Any:
        types = self._booster.feature_types
        return xgboost.DMatrix(rows, nthread=1, feature_types=types, enable_categorical=bool(types))


def _read(artifact: Path, options: Options) -> Any:
    if reason := fault(artifact.read_bytes(), artifact.suffix):
        raise BadArtifactError(f"{artifact.name}: expected an XGBoost model; {reason}")
    booster = xgboost.Booster()
    try:
        booster.load_model(artifact)
    except Exception as error:
        reason = str(error).partition("\nStack trace")[0].replace(str(artifact), artifact.name)
        raise BadArtifactError(f"{artifact.name}: expected an XGBoost model; xgboost says: {reason}") from error
    booster.set_param({"nthread": options.threads})
    return booster


def _rounds(booster: Any) -> tuple[int, int]:
    """The trees that answer: as scikit-learn's wrapper does, up to the best round where training stopped early."""
    best = booster.attr("best_iteration")
    if best is None or booster.attr("scikit_learn") is None:
        return (0, 0)
    return (0, int(best) + 1)


def _spec(name: str, answer: NDArray) -> TensorSpec:
    return TensorSpec(name, "INT64" if name == LEAF else "FP32", (-1, *answer.shape[1:]))


def _value(answer: NDArray) -> dict[str, NDArray]:
    return {VALUE: answer}


def _of_probabilities(answer: NDArray) -> dict[str, NDArray]:
    return {LABEL: np.argmax(answer, axis=1).astype(np.int64), PROBABILITIES: answer}


def _of_margins(answer: NDArray) -> dict[str, NDArray]:
    powers = np.exp(answer - answer.max(axis=1, keepdims=True))
    return _of_probabilities(powers / powers.sum(axis=1, keepdims=True))


def _of_positive(answer: NDArray) -> dict[str, NDArray]:
    return {LABEL: (answer > _HALF).astype(np.int64), PROBABILITIES: np.stack([1 - answer, answer], axis=1)}


def _of_each(answer: NDArray) -> dict[str, NDArray]:
    return {LABEL: (answer > _HALF).astype(np.int64), PROBABILITIES: answer}


def _of_labels(answer: NDArray) -> dict[str, NDArray]:
    return {LABEL: answer.astype(np.int64)}
