"""Whether `pad_to` fits a model, and the lengths that it fills rows up to."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from services.core.batching_spec import Padding
from services.core.element import element
from services.core.signature import Signature, TensorSpec
from services.core.tensor import BYTES

_LENGTH_SHAPES = {(-1,), (-1, 1), (-1, -1)}


class BadPaddingError(ValueError):
    """A `pad_to` that does not fit the model; the message says what the model has."""


def rounded(length: int, sizes: Sequence[int]) -> int:
    """The least of `sizes` (none = powers of two) that holds `length`; beyond the largest it stays as it is."""
    if not sizes:
        return 1 << max(0, length - 1).bit_length()
    return length if length > sizes[-1] else sizes[bisect_left(sizes, length)]


def check_padding(padding: Padding, signature: Signature) -> None:
    """Raise BadPaddingError, naming the first fault, unless `padding` fits the model's whole signature."""
    if not signature.batches:
        raise BadPaddingError("pad_to does nothing for a model that does not batch: no rows share a batch")
    inputs = {spec.name: spec for spec in signature.inputs}
    outputs = {spec.name: spec for spec in signature.outputs}
    for name, value in padding.inputs.items():
        _check_filled(_known(name, inputs, "input"), value)
    for name in padding.outputs:
        _check_free(_known(name, outputs, "output"), "outputs")
    if padding.mask is not None:
        spec = _known(padding.mask, inputs, "input")
        if spec.shape != (-1, -1) or spec.datatype == BYTES:
            raise BadPaddingError(f"pad_to.mask must be numbers of shape [rows, length], the model has {spec}")
    if padding.length is not None:
        spec = _known(padding.length, inputs, "input")
        if spec.shape not in _LENGTH_SHAPES or spec.datatype in {BYTES, "BOOL"}:
            raise BadPaddingError(f"pad_to.length must be numbers of shape [rows] or [rows, 1], the model has {spec}")


def _known(name: str, specs: Mapping[str, TensorSpec], what: str) -> TensorSpec:
    spec = specs.get(name)
    if spec is None:
        raise BadPaddingError(
            f"pad_to names {what} {name!r}; the model's {what}s are {', '.join(map(str, specs.values()))}"
        )
    return spec


def _check_filled(spec: TensorSpec, value: float) -> None:
    _check_free(spec, "inputs")
    if spec.datatype == BYTES:
        raise BadPaddingError(f"pad_to.inputs: {spec.name!r} holds BYTES, only numbers can be filled up")
    try:
        element(spec.datatype, value)
    except ValueError as error:
        raise BadPaddingError(f"pad_to.inputs: {spec.name!r} cannot be filled up with {value:g}: {error}") from None


def _check_free(spec: TensorSpec, where: str) -> None:
    if spec.shape[1:2] != (-1,):
        raise BadPaddingError(f"pad_to.{where}: dimension 1 of {spec.name!r} must be of any size, the model has {spec}")
