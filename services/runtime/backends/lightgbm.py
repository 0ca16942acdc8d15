"""LightGBM models from text, or from the JSON of Booster.dump_model."""

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
from numpy.typing import NDArray

from services.core.signature import Signature, TensorSpec
from services.runtime.backends import Arrays, BadArtifactError, Options, refuse_unknown
from services.runtime.backends.labels import CONTRIBUTIONS, LABEL, LEAF, MARGIN, PROBABILITIES, VALUE, no_rows
from services.runtime.backends.lightgbm_text import fault, from_json

_INPUT = "x"
_ALSO = {MARGIN: {"raw_score": True}, LEAF: {"pred_leaf": True}, CONTRIBUTIONS: {"pred_contrib": True}}
_MANY_CLASSES = ("multiclass", "multiclassova")


class Model:
    """One booster: input `x`; outputs `label` and `probabilities` like a classifier of scikit-learn, or `y`.

    NaN is a missing value; a categorical column has its codes as whole numbers. Options.outputs may have `margin`
    (scores before the objective's link), `leaf` (INT64, for each tree) and `contributions` (to the margin, for each
    feature and last the bias) given on request: each is a prediction of its own, and the last is slow.
    """

    def __init__(self) -> None:
        self._booster: Any = None
        self._outputs: Callable[[NDArray], dict[str, NDArray]] = self._value
        self._also: tuple[str, ...] = ()
        self._threads = 1
        self._classes = 1
        self._float: type = np.float32
        self._specs: tuple[TensorSpec, ...] = ()

    def load(self, artifact: Path, options: Options) -> Signature:
        booster, objective = _read(artifact)
        refuse_unknown(artifact, options.outputs, tuple(_ALSO))
        self._booster, self._also, self._threads = booster, options.outputs, options.threads
        self._float, floats = (np.float64, "FP64") if options.doubles else (np.float32, "FP32")
        self._classes = booster.num_model_per_iteration()
        if objective in _MANY_CLASSES:
            self._outputs = self._probabilities
        elif objective == "binary":
            self._outputs = self._two_probabilities
        features = booster.num_feature()
        answers = self._answers(np.zeros((1, features), self._float), self._also, usual=True)
        integers = {LABEL, LEAF}
        self._specs = tuple(
            TensorSpec(name, "INT64" if name in integers else floats, (-1, *answer.shape[1:]))
            for name, answer in answers.items()
        )
        inputs = (TensorSpec(_INPUT, floats, (-1, features)),)
        return Signature(inputs, self._specs, batches=True, platform="lightgbm", on_request=self._also)

    def run(self, inputs: Arrays) -> dict[str, NDArray]:
        return self.run_only(inputs, [spec.name for spec in self._specs])

    def run_only(self, inputs: Arrays, outputs: Collection[str]) -> dict[str, NDArray]:
        rows = inputs[_INPUT]
        if not len(rows):
            return no_rows(self._specs)
        also = [name for name in self._also if name in outputs]
        return self._answers(rows, also, usual=len(also) < len(outputs))

    def _answers(self, rows: NDArray, also: Collection[str], *, usual: bool) -> dict[str, NDArray]:
        answers = self._outputs(self._predict(rows)) if usual else {}
        for name in also:
            answers[name] = self._more(name, rows)
        return answers

    def unload(self) -> None:
        self._booster = None

    def _predict(self, rows: NDArray, **kind: bool) -> NDArray:
        answer: NDArray = self._booster.predict(rows, num_threads=self._threads, **kind)
        return answer

    def _more(self, name: str, rows: NDArray) -> NDArray:
        answer = self._predict(rows, **_ALSO[name])
        if name == LEAF:
            return answer.astype(np.int64).reshape(len(rows), -1)
        if name == CONTRIBUTIONS and self._classes > 1:
            answer = answer.reshape(len(rows), self._classes, -1)
        return answer.astype(self._float)

    def _value(self, answer: NDArray) -> dict[str, NDArray]:
        return {VALUE: answer.astype(self._float)}

    def _probabilities(self, answer: NDArray) -> dict[str, NDArray]:
        return {LABEL: np.argmax(answer, axis=1).astype(np.int64), PROBABILITIES: answer.astype(self._float)}

    def _two_probabilities(self, answer: NDArray) -> dict[str, NDArray]:
        return self._probabilities(np.stack([1 - answer, answer], axis=1))


def _read(artifact: Path) -> tuple[Any, str]:
    """The booster and its objective's name. The library ends its process on text that is cut off: that is seen here."""
    content = artifact.read_bytes()
    try:
        if artifact.suffix == ".json":
            content = from_json(json.loads(content)).encode()
        elif reason := fault(content):
            raise BadArtifactError(f"{artifact.name}: expected a LightGBM model; {reason}")
        text = content.decode()
        booster = lightgbm.Booster(model_str=text)
    except (ValueError, KeyError, TypeError, lightgbm.basic.LightGBMError) as error:
        reason = f"lacks {error}" if isinstance(error, KeyError) else str(error)
        raise BadArtifactError(f"{artifact.name}: expected a LightGBM model; it says: {reason}") from error
    objective = [line for line in text[: text.find("\nTree=")].splitlines() if line.startswith("objective=")]
    return booster, objective[0].removeprefix("objective=").split()[0] if objective else ""
