"""MLflow's schemas as ours, and arrays as what they describe."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from mlflow.types import DataType, Schema
from mlflow.types.schema import ColSpec
from mlflow.types.schema import TensorSpec as MlflowTensor
from numpy.typing import NDArray

from services.core.arrays import DATATYPE_OF, NUMPY_DTYPE
from services.core.signature import TensorSpec
from services.core.tensor import BYTES
from services.runtime.backends import Arrays, BadArtifactError

INPUT, OUTPUT = "x", "y"  # of tensors that MLflow leaves without a name
_COLUMNS: dict[Any, str] = {
    DataType.boolean: "BOOL",
    DataType.integer: "INT32",
    DataType.long: "INT64",
    DataType.float: "FP32",
    DataType.double: "FP64",
    DataType.string: BYTES,
    DataType.binary: BYTES,
}


def specs(artifact: Path, role: str, schema: Schema) -> tuple[TensorSpec, ...]:
    """A column is a tensor [n] of its name, a tensor is itself. Raises BadArtifactError for what is neither."""
    unnamed = INPUT if role == "input" else OUTPUT
    return tuple(_spec(artifact, role, each, unnamed, several=len(schema.inputs) > 1) for each in schema.inputs)


def _spec(artifact: Path, role: str, given: Any, unnamed: str, *, several: bool) -> TensorSpec:
    name = given.name if given.name is not None else unnamed
    if given.name is None and several:
        raise BadArtifactError(
            f"{artifact.name}: several {role}s have no names: log the model with a signature of names"
        )
    if isinstance(given, MlflowTensor):
        dtype = np.dtype(given.type)
        datatype = BYTES if dtype.kind in "OSU" else DATATYPE_OF.get(dtype)
        shape = tuple(int(size) for size in given.shape)
    else:
        datatype, shape = _COLUMNS.get(given.type) if isinstance(given, ColSpec) else None, (-1,)
    if datatype is None:
        known = ", ".join(each.name for each in _COLUMNS)
        raise BadArtifactError(
            f"{artifact.name}: {role} {name!r} is of {given.type}; expected one of {known}, or a tensor"
        )
    return TensorSpec(name, datatype, shape)


class Feed:
    """Makes of arrays what a pyfunc takes: a table for columns, an array or a dict of arrays for tensors."""

    def __init__(self, inputs: Iterable[TensorSpec], schema: Schema | None) -> None:
        columns = schema is not None and not schema.is_tensor_spec()
        self._makes_table = columns
        self._is_named = schema is not None and schema.has_input_names()
        self._names = [spec.name for spec in inputs]
        binary = {each.name for each in schema.inputs if each.type == DataType.binary} if schema and columns else set()
        self._text = {spec.name for spec in inputs if spec.datatype == BYTES} - binary

    def of(self, inputs: Arrays) -> Any:
        given = {name: _as_text(inputs[name]) if name in self._text else inputs[name] for name in self._names}
        if self._makes_table:
            import pandas as pd  # noqa: PLC0415 - tensors do without

            return pd.DataFrame(given if self._is_named else {0: given[self._names[0]]})
        return given if self._is_named or len(given) > 1 else given[self._names[0]]


def arrays_of(answer: Any, unnamed: str = OUTPUT) -> dict[str, NDArray[Any]]:
    """What a pyfunc gives: columns of a table and entries of a dict by name, all else without one."""
    if isinstance(answer, Mapping) or hasattr(answer, "columns"):
        return {str(name): _array(answer[name]) for name in answer}
    return {unnamed: _array(answer)}


def _array(value: Any) -> NDArray[Any]:
    array = value.to_numpy() if hasattr(value, "to_numpy") else np.asarray(value)
    return array.astype(object) if array.dtype.kind in "SUT" else array


def cast(name: str, array: NDArray[Any], datatype: str) -> NDArray[Any]:
    """As declared. Raises TypeError where that would lose something."""
    if datatype == BYTES:
        return array.astype(object)
    dtype = NUMPY_DTYPE[datatype]
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        raise TypeError(f"predict gave output {name!r} as {array.dtype}; declared is {datatype}")
    return array.astype(dtype, copy=False)


def _as_text(array: NDArray[Any]) -> NDArray[Any]:
    """Raises UnicodeDecodeError for what is not UTF-8."""
    text = np.empty(array.size, dtype=object)
    text[:] = [element.decode() for element in array.ravel().tolist()]
    return text.reshape(array.shape)
