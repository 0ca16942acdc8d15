"""scikit-learn estimators, from skops files or, on the operator's word, from pickles."""

import warnings
from collections.abc import Collection
from pathlib import Path

from numpy.typing import NDArray

from services.core.signature import Signature, TensorSpec
from services.runtime.backends import Arrays, Options
from services.runtime.backends.labels import no_rows
from services.runtime.backends.sklearn_answers import Answers
from services.runtime.backends.sklearn_artifact import read
from services.runtime.backends.sklearn_rows import Matrix, Rows, rows_of


class Model:
    """One estimator: what it takes is in `sklearn_rows`, what it gives in `sklearn_answers`."""

    def __init__(self) -> None:
        self._rows: Rows | None = None
        self._answers: Answers | None = None
        self._outputs: tuple[TensorSpec, ...] = ()

    def load(self, artifact: Path, options: Options) -> Signature:
        # Callers send columns in the order of feature_names_in_: the signature says so, and each batch need not.
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        estimator = read(artifact, options)
        answers = Answers(artifact, estimator, options)
        rows = rows_of(artifact, estimator, doubles=options.doubles)
        example = rows.example()
        if example is not None and isinstance(rows, Matrix) and callable(getattr(estimator, "predict", None)):
            try:
                estimator.predict(rows.of(example))
            except (TypeError, ValueError):
                rows.needs_doubles = True
        outputs = answers.specs(None if example is None else rows.of(example))
        self._rows, self._answers, self._outputs = rows, answers, outputs
        return Signature(rows.specs, outputs, batches=True, platform="sklearn", on_request=options.outputs)

    def run(self, inputs: Arrays) -> dict[str, NDArray]:
        return self.run_only(inputs, [spec.name for spec in self._outputs])

    def run_only(self, inputs: Arrays, outputs: Collection[str]) -> dict[str, NDArray]:
        assert self._rows is not None and self._answers is not None  # noqa: S101, PT018 - run after load
        if not len(next(iter(inputs.values()))):
            return no_rows(self._outputs)
        return self._answers.of(self._rows.of(inputs), outputs)

    def examples(self) -> list[Arrays]:
        return [] if self._rows is None else self._rows.examples()

    def unload(self) -> None:
        self._rows = self._answers = None
