"""MLflow's python_function: models that only MLflow can load. Flavors with a backend of ours never come here."""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.core.arrays import DATATYPE_OF
from services.core.signature import Signature, TensorSpec
from services.core.tensor import BYTES
from services.runtime.backends import Arrays, BadArtifactError, Options, refuse_unknown
from services.runtime.backends.onnx_shapes import zeros

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # about hints in its own code
    import mlflow.pyfunc
    from mlflow.exceptions import MlflowException

    from services.runtime.backends.mlflow_schema import OUTPUT, Feed, arrays_of, cast, specs


class Model:
    """One pyfunc. Columns of its signature are tensors [n]; what has no name is `x` going in and `y` coming out."""

    def __init__(self) -> None:
        self._model: Any = None
        self._feed: Any = None
        self._inputs: tuple[TensorSpec, ...] = ()
        self._outputs: dict[str, str] = {}  # datatype by name
        self._unnamed = OUTPUT

    def load(self, artifact: Path, options: Options) -> Signature:
        refuse_unknown(artifact, options.outputs, ())
        if not options.trusted:
            raise BadArtifactError(
                f"{artifact.name}: its python_function is code and would run when loaded: set trusted in the model's"
                " spec if you know where it comes from"
            )
        self._model = _load(artifact)
        signature = self._model.metadata.signature
        taken, given = (signature.inputs, signature.outputs) if signature is not None else (None, None)
        declared = options.declared
        if taken is not None:
            inputs = specs(artifact, "input", taken)
        elif declared is not None and declared.inputs:
            inputs = declared.input_specs()
        else:
            raise BadArtifactError(
                f"{artifact.name}: it says nothing of its inputs: log the model with a signature, or declare signature"
                " in the model's spec"
            )
        self._inputs, self._feed = inputs, Feed(inputs, taken)
        if given is not None:
            outputs = specs(artifact, "output", given)
        elif declared is not None and declared.outputs:
            outputs = declared.output_specs()
        else:
            outputs = _seen(artifact, [self._answers(inputs, rows) for rows in (1, 2)])
        if len(outputs) == 1:
            self._unnamed = outputs[0].name
        self._outputs = {spec.name: spec.datatype for spec in outputs}
        batches = bool(inputs) and all(spec.shape[:1] == (-1,) for spec in inputs + outputs)
        return Signature(inputs, outputs, batches, "mlflow_pyfunc")

    def run(self, inputs: Arrays) -> dict[str, NDArray]:
        answers = arrays_of(self._model.predict(self._feed.of(inputs)), self._unnamed)
        missing = [name for name in self._outputs if name not in answers]
        if missing:
            raise ValueError(f"predict gave no output {missing[0]!r}; it gave {', '.join(answers) or 'none'}")
        return {name: cast(name, answers[name], datatype) for name, datatype in self._outputs.items()}

    def examples(self) -> Iterator[Arrays]:
        """The input example that was saved with the model."""
        example = self._model.input_example
        if example is None:
            return
        shown = arrays_of(example, self._inputs[0].name)
        yield {spec.name: _as_given(spec, shown[spec.name]) for spec in self._inputs}

    def unload(self) -> None:
        self._model = None

    def _answers(self, inputs: Sequence[TensorSpec], rows: int) -> dict[str, NDArray[Any]] | Exception:
        """What it gives for rows of zeros."""
        try:
            return arrays_of(self._model.predict(self._feed.of({spec.name: zeros(spec, rows) for spec in inputs})))
        except Exception as error:  # noqa: BLE001 - whatever it raises, its outputs are not known then
            return error


def _load(artifact: Path) -> Any:
    """Raises BadArtifactError."""
    try:
        return mlflow.pyfunc.load_model(str(artifact.parent), suppress_warnings=True)
    except ImportError as error:
        raise BadArtifactError(
            f"{artifact.name}: its python_function imports what this pod has not installed: {error}"
        ) from error
    except (MlflowException, OSError, ValueError, AttributeError, TypeError, KeyError, EOFError) as error:
        reason = str(error).replace(f"{artifact.parent}/", "").replace(str(artifact.parent), ".")
        raise BadArtifactError(
            f"{artifact.name}: expected a model of MLflow; it says: {type(error).__name__}: {reason}"
        ) from error


def _seen(artifact: Path, answers: list[dict[str, NDArray[Any]] | Exception]) -> tuple[TensorSpec, ...]:
    """The outputs as answers to one and two rows show them. Raises BadArtifactError."""
    one, two = answers
    if isinstance(one, Exception) or isinstance(two, Exception):
        raised = one if isinstance(one, Exception) else two
        raise BadArtifactError(
            f"{artifact.name}: it says nothing of its outputs, and rows of zeros do not show them"
            f" ({type(raised).__name__}: {raised}): declare signature.outputs in the model's spec"
        )
    return tuple(_shown(artifact, name, one[name], two[name]) for name in one if name in two)


def _shown(artifact: Path, name: str, one: NDArray[Any], two: NDArray[Any]) -> TensorSpec:
    datatype = BYTES if one.dtype.kind == "O" else DATATYPE_OF.get(one.dtype)
    if datatype is None:
        raise BadArtifactError(f"{artifact.name}: output {name!r} is of {one.dtype}, which no datatype holds")
    counts_rows = (one.shape[:1], two.shape[:1]) == ((1,), (2,))
    return TensorSpec(name, datatype, (-1, *one.shape[1:]) if counts_rows else one.shape)


def _as_given(spec: TensorSpec, array: NDArray[Any]) -> NDArray[Any]:
    """An example as callers send it."""
    if spec.datatype != BYTES:
        return cast(spec.name, array, spec.datatype)
    return np.array([each.encode() if isinstance(each, str) else each for each in array.ravel()], object).reshape(
        array.shape
    )
