"""scikit-learn estimators, from skops files or, on the operator's word, from pickles."""

import importlib
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray

from services.core.signature import Signature, TensorSpec
from services.runtime.backends import Arrays, BadArtifactError, Options
from services.runtime.backends.labels import LABEL, PROBABILITIES, VALUE, as_labels, label_spec

_INPUT = "x"
_TRUSTED_PACKAGES = ("sklearn.", "numpy.")
_LISTED = 8


class Model:
    """One estimator with `predict`: input `x`; outputs `label` and `probabilities`, or `y`."""

    def __init__(self) -> None:
        self._estimator: Any = None
        self._kind = VALUE
        self._has_probabilities = False
        self._by_argmax = False
        self._takes_doubles = False  # only: some estimators cannot mix them with rows of FP32

    def load(self, artifact: Path, options: Options) -> Signature:
        estimator = _read(artifact, options)
        if not callable(getattr(estimator, "predict", None)):
            raise BadArtifactError(f"{artifact.name}: expected an object with predict, found a {_name(estimator)}")
        _use_one_thread(estimator)
        self._estimator = estimator
        features = getattr(estimator, "n_features_in_", -1)
        self._takes_doubles = features > 0 and _takes_doubles(estimator, features)
        outputs = self._classes(artifact) if hasattr(estimator, "classes_") else self._values(features)
        return Signature((TensorSpec(_INPUT, "FP32", (-1, features)),), outputs, batches=True, platform="sklearn")

    def run(self, inputs: Arrays) -> dict[str, NDArray]:
        rows = inputs[_INPUT]
        if self._takes_doubles:
            rows = rows.astype(np.float64)
        if self._kind == VALUE:
            return {VALUE: np.asarray(self._estimator.predict(rows), dtype=np.float32)}
        if not self._has_probabilities:
            return {LABEL: as_labels(np.asarray(self._estimator.predict(rows)))}
        probabilities = self._estimator.predict_proba(rows)
        if self._by_argmax:
            predicted = self._estimator.classes_.take(np.argmax(probabilities, axis=1))
        else:
            predicted = np.asarray(self._estimator.predict(rows))
        return {LABEL: as_labels(predicted), PROBABILITIES: np.asarray(probabilities, dtype=np.float32)}

    def unload(self) -> None:
        self._estimator = None

    def _classes(self, artifact: Path) -> tuple[TensorSpec, ...]:
        classes = self._estimator.classes_
        if isinstance(classes, list):
            raise BadArtifactError(
                f"{artifact.name}: expected a classifier of one label, found {_name(self._estimator)} of {len(classes)}"
            )
        classes = np.asarray(classes)
        self._kind = LABEL
        self._has_probabilities = hasattr(self._estimator, "predict_proba")
        # A forest's predict is exactly this; asking it twice would double its cost.
        predict = getattr(type(self._estimator), "predict", None)
        self._by_argmax = getattr(predict, "__qualname__", "") == "ForestClassifier.predict"
        label = label_spec(classes)
        if not self._has_probabilities:
            return (label,)
        return (label, TensorSpec(PROBABILITIES, "FP32", (-1, len(classes))))

    def _values(self, features: int) -> tuple[TensorSpec, ...]:
        """A regressor's output; how many values a row has is seen from one row of zeros."""
        shape: tuple[int, ...] = (-1,)
        if features > 0:
            shape = (-1, *self.run({_INPUT: np.zeros((1, features), np.float32)})[VALUE].shape[1:])
        return (TensorSpec(VALUE, "FP32", shape),)


def _read(artifact: Path, options: Options) -> Any:
    if artifact.suffix == ".skops":
        return _read_skops(artifact)
    if not options.trusted:
        raise BadArtifactError(
            f"{artifact.name} is a pickle and would run code when loaded: set trusted in the model's spec if you know"
            " where it comes from, or save it with skops.io.dump as model.skops"
        )
    try:
        return joblib.load(artifact)
    except Exception as error:
        raise BadArtifactError(
            f"{artifact.name}: expected a joblib file; loading it says: {type(error).__name__}: {error}"
        ) from error


def _read_skops(artifact: Path) -> Any:
    import skops.io  # noqa: PLC0415 - takes as long to import as scikit-learn itself: only where it is needed

    try:
        named = skops.io.get_untrusted_types(file=artifact)
        refused = [name for name in named if not _is_own_class(name)]
        if not refused:
            return skops.io.load(artifact, trusted=named)
    except Exception as error:
        raise BadArtifactError(
            f"{artifact.name}: expected a skops file; skops says: {type(error).__name__}: {error}"
        ) from error
    shown = ", ".join(refused[:_LISTED]) + (" …" if len(refused) > _LISTED else "")
    raise BadArtifactError(f"{artifact.name}: expected types of sklearn and numpy only, found {shown}")


def _is_own_class(name: str) -> bool:
    """Whether `name` is a class of scikit-learn or numpy: a function of theirs could do anything when called."""
    if not name.startswith(_TRUSTED_PACKAGES):
        return False
    module, _, attribute = name.rpartition(".")
    try:
        return isinstance(getattr(importlib.import_module(module), attribute), type)
    except (ImportError, AttributeError):
        return False


def _takes_doubles(estimator: Any, features: int) -> bool:
    try:
        estimator.predict(np.zeros((1, features), np.float32))
    except (TypeError, ValueError):
        return True
    return False


def _use_one_thread(estimator: Any) -> None:
    """Batches are small and workers many: an estimator's own threads would only wait for each other."""
    get = getattr(estimator, "get_params", None)
    if callable(get):
        threaded = {name: 1 for name in get(deep=True) if name.rpartition("__")[2] == "n_jobs"}
        if threaded:
            estimator.set_params(**threaded)


def _name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
