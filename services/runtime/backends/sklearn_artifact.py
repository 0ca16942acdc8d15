"""Reads scikit-learn estimators: skops files, or pickles on the operator's word."""

import importlib
from pathlib import Path
from typing import Any

import joblib

from services.runtime.backends import BadArtifactError, Options
from services.runtime.imports import hidden

_TRUSTED_PACKAGES = ("sklearn.", "numpy.")
_LISTED = 8


def read(artifact: Path, options: Options) -> Any:
    """The object in a file, its own threads switched off. Raises BadArtifactError."""
    estimator = _read_skops(artifact) if artifact.suffix == ".skops" else _read_pickle(artifact, options)
    _use_one_thread(estimator)
    return estimator


def _read_pickle(artifact: Path, options: Options) -> Any:
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
    with hidden("torch", "pytest"):  # it imports every module of scikit-learn, and they what they could work with
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


def _use_one_thread(estimator: Any) -> None:
    """Batches are small and workers many: an estimator's own threads would only wait for each other."""
    get = getattr(estimator, "get_params", None)
    if callable(get):
        threaded = {name: 1 for name in get(deep=True) if name.rpartition("__")[2] == "n_jobs"}
        if threaded:
            estimator.set_params(**threaded)
