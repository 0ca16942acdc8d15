"""What callers type, as arrays and parameters."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.cli.client import Parameter
from services.cli.errors import CliError
from services.core.arrays import NUMPY_DTYPE
from services.core.signature import TensorSpec
from services.core.tensor import BYTES


def parse_inputs(values: Sequence[str]) -> dict[str, NDArray]:
    """`x=@file.npy`, `x=@file.json` or `x=[[1, 2]]` as arrays by name. Raises CliError."""
    inputs: dict[str, NDArray] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise CliError(f"--input {value!r}: expected NAME=@FILE.npy, NAME=@FILE.json or NAME=JSON", code=2)
        inputs[name] = _read(name, Path(text[1:])) if text.startswith("@") else _from_json(name, text)
    return inputs


def parse_parameters(values: Sequence[str]) -> dict[str, Parameter]:
    """`k=v`: true, false, whole numbers and other numbers as such, all else as text. Raises CliError."""
    parameters: dict[str, Parameter] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise CliError(f"--param {value!r}: expected NAME=VALUE", code=2)
        parameters[name] = _parameter(text)
    return parameters


def fit(inputs: Mapping[str, NDArray], wanted: Sequence[TensorSpec]) -> dict[str, NDArray]:
    """The inputs in the datatypes that the model takes; a row without its row dimension gets one.

    What the model does not take is left as it is: the router says what is wrong. Raises CliError for values that do
    not fit the datatype.
    """
    specs = {spec.name: spec for spec in wanted}
    return {name: _fit(name, array, specs[name]) if name in specs else array for name, array in inputs.items()}


def _fit(name: str, array: NDArray, spec: TensorSpec) -> NDArray:
    if spec.shape[:1] == (-1,) and array.ndim == len(spec.shape) - 1:
        array = array[np.newaxis]
    if spec.datatype == BYTES:
        return array.astype(object)
    dtype = NUMPY_DTYPE.get(spec.datatype)
    if dtype is None or array.dtype == dtype:
        return array
    try:
        cast = array.astype(dtype)
    except (ValueError, TypeError, OverflowError):
        raise CliError(f"input {name}: {_kind(array)} does not fit {spec.datatype}") from None
    if dtype.kind != "f" and not np.array_equal(cast, array):
        raise CliError(f"input {name}: its values do not fit {spec.datatype}")
    return cast


def _kind(array: NDArray) -> str:
    return "text" if array.dtype.kind in "US" else str(array.dtype)


def _read(name: str, path: Path) -> NDArray:
    try:
        if path.suffix == ".npy":
            array: NDArray = np.load(path, allow_pickle=False)
            return array
        return _from_json(name, path.read_text())
    except FileNotFoundError:
        raise CliError(f"input {name}: there is no file {path}") from None
    except (OSError, ValueError, EOFError) as error:
        raise CliError(f"input {name}: {path} cannot be read: {error}") from None


def _from_json(name: str, text: str) -> NDArray:
    try:
        value: Any = json.loads(text)
        array = np.array(value)
    except ValueError as error:
        raise CliError(f"input {name}: {text[:40]!r} is no JSON array: {error}", code=2) from None
    if array.dtype.kind not in "biufUS":
        raise CliError(f"input {name}: expected numbers, booleans or strings, found {text[:40]!r}", code=2)
    return array


def _parameter(text: str) -> Parameter:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
