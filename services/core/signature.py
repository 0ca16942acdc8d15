"""What a model version accepts and gives, and the check of a request against it."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from services.core.errors import InvalidRequestError
from services.core.tensor import ELEMENT_BYTES, check_data

SIGNATURE_NAME = "signature_name"  # the request parameter: TensorFlow Serving's word
SERVING_DEFAULT = "serving_default"  # what TensorFlow calls a signature that nobody gave another name


class TensorSpec(NamedTuple):
    """One input or output; -1 in `shape` is any size, and the row dimension is included when the model batches."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.datatype}{list(self.shape)}"


class Given(NamedTuple):
    """One input as a caller sent it."""

    name: str
    datatype: str
    shape: Sequence[int]
    data: bytes | memoryview


@dataclass(frozen=True, slots=True)
class Signature:
    """Inputs and outputs of one model version. `batches`: dimension 0 counts independent rows.

    `on_request`: of the outputs, those that only requests get that name them.
    Where an artifact has several signatures, this is the usual one, and `more` has those that requests name.
    `decoupled`: one request is answered any number of times, and rows are not batched.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    batches: bool
    platform: str = ""
    on_request: tuple[str, ...] = ()
    name: str = ""
    more: tuple["Signature", ...] = ()
    decoupled: bool = False

    def usual_outputs(self) -> list[str]:
        """What a request gets that names none."""
        return [spec.name for spec in self.outputs if spec.name not in self.on_request]

    def hash(self) -> str:
        """16 hex digits that differ when anything a caller could notice differs."""
        seen: list[object] = [
            (each.inputs, each.outputs, each.batches, each.on_request, each.name) for each in (self, *self.more)
        ]
        seen += ["decoupled"] * self.decoupled
        return hashlib.sha256(repr(seen).encode()).hexdigest()[:16]

    def without(self, inputs: frozenset[str], outputs: frozenset[str] = frozenset()) -> "Signature":
        """The signature as the caller sees it when the mesh fills `inputs` in and keeps `outputs` to itself."""
        return replace(
            self,
            inputs=tuple(spec for spec in self.inputs if spec.name not in inputs),
            outputs=tuple(spec for spec in self.outputs if spec.name not in outputs),
            on_request=tuple(name for name in self.on_request if name not in outputs),
        )

    def named(self, name: str) -> "Signature":
        """The signature that a request asks for; empty = the usual one. Raises InvalidRequestError."""
        if name in ("", self.name):
            return self
        for other in self.more:
            if other.name == name:
                return other
        known = ", ".join(each.name for each in (self, *self.more) if each.name) or "it has one, without a name"
        raise InvalidRequestError(f"signature {name!r} is asked for; there is: {known}")


def check_inputs(model: str, signature: Signature, given: Sequence[Given]) -> int:
    """Rows of a request (1 when the model does not batch). Raises InvalidRequestError naming the first fault."""
    specs = {spec.name: spec for spec in signature.inputs}
    rows: int | None = None
    seen: set[str] = set()
    for tensor in given:
        spec = specs.get(tensor.name)
        if spec is None:
            raise InvalidRequestError(f"model {model} has no input {tensor.name!r}; its inputs are {_list(signature)}")
        if tensor.name in seen:
            raise InvalidRequestError(f"input {tensor.name!r} is given twice")
        seen.add(tensor.name)
        rows = _check_one(model, spec, tensor, signature, rows)
    missing = [name for name in specs if name not in seen]
    if missing:
        raise InvalidRequestError(f"model {model} needs input {missing[0]!r} too; its inputs are {_list(signature)}")
    return 1 if rows is None else rows


def check_outputs(model: str, signature: Signature, wanted: Sequence[str]) -> None:
    """Raise InvalidRequestError when an output is asked for that the model does not give."""
    known = [spec.name for spec in signature.outputs]
    for name in wanted:
        if name not in known:
            raise InvalidRequestError(f"model {model} has no output {name!r}; its outputs are {', '.join(known)}")


def _check_one(model: str, spec: TensorSpec, tensor: Given, signature: Signature, rows: int | None) -> int | None:
    if tensor.datatype != spec.datatype:
        raise InvalidRequestError(f"input {spec.name!r} of model {model} is {spec.datatype}, not {tensor.datatype}")
    shape = list(tensor.shape)
    fits = len(shape) == len(spec.shape) and all(
        want in (-1, size) for want, size in zip(spec.shape, shape, strict=True)
    )
    if not fits:
        raise InvalidRequestError(
            f"input {spec.name!r} of model {model} has shape {list(spec.shape)} (-1 = any), not {shape}"
        )
    check_tensor(tensor)
    if not signature.batches:
        return 1
    if rows is not None and shape[0] != rows:
        raise InvalidRequestError(f"input {spec.name!r} has {shape[0]} rows, the inputs before it {rows}")
    return shape[0]


def check_tensor(tensor: Given) -> None:
    """Raise InvalidRequestError unless the data is exactly one tensor of its datatype and shape."""
    try:
        check_data(tensor.datatype, tensor.shape, tensor.data)
    except ValueError as error:
        raise InvalidRequestError(f"input {tensor.name!r}: {error}") from None


def _list(signature: Signature) -> str:
    return ", ".join(map(str, signature.inputs)) or "none (features fill them)"


def row_bytes(spec: TensorSpec) -> int | None:
    """Bytes of one row of a batched input whose size is fixed; None for BYTES and inner dimensions of any size."""
    size = ELEMENT_BYTES.get(spec.datatype)
    if size is None or any(dimension < 0 for dimension in spec.shape[1:]):
        return None
    for dimension in spec.shape[1:]:
        size *= dimension
    return size
