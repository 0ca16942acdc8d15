"""Flat maps of names and JSON values <-> tensors, whose datatypes and shapes are those of the version that serves."""

import binascii
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import orjson

from services.core.errors import InvalidRequestError
from services.core.signature import Given, TensorSpec
from services.core.tensor import BYTES, encode_bytes
from services.router.flight import Flight
from services.router.inference import Inference, Parameter
from services.router.rest.json_data import encode, loads, numbers, texts
from services.router.table import Target
from turnout.v1 import link_pb2, tensor_pb2

_DEEPEST = 32  # lists in lists
_FIXED = ("id", "parameters")
Lists = Mapping[str, list[Any]]


def flat_inference(model: str, version: str, body: bytes | bytearray | memoryview) -> tuple[Inference, Lists]:
    """The request in a body, with all single values as its parameters, and its lists. Raises InvalidRequestError.

    Which of them are inputs, only the version that serves can tell.
    """
    request = loads(bytes(body))
    if not isinstance(request, dict):
        raise InvalidRequestError('the body is not an object; send {"NAME OF AN INPUT": value, …}')
    more = request.get("parameters")
    if not isinstance(more, dict | None):
        raise InvalidRequestError("parameters is not an object")
    named = request.get("id")
    if not isinstance(named, str | None):
        raise InvalidRequestError("id is not text")
    values: dict[str, Any] = {name: value for name, value in request.items() if name not in _FIXED}
    for name, value in (more or {}).items():
        if name in values:
            raise InvalidRequestError(f"{name!r} stands in the body and in its parameters: give one of them")
        values[name] = value
    for name, value in values.items():
        if isinstance(value, dict):
            raise InvalidRequestError(f"{name!r} is an object; an input takes a value, or a list of values")
    lists = {name: value for name, value in values.items() if isinstance(value, list)}
    single = {name: value for name, value in values.items() if name not in lists and value is not None}
    return Inference(model, version, named or "", single, (), (), len(body)), lists


class FlatDraft:
    """Draft of such a request."""

    def __init__(self, inference: Inference, lists: Lists) -> None:
        self._single = inference.parameters
        self._lists = lists

    def guessed(self) -> Sequence[Given]:
        return [_guess(name, value) for name, value in self._single.items() if type(value) in {str, int}]

    def bind(self, target: Target, inference: Inference) -> Inference:
        """What of it is an input becomes one; other single values are parameters. Raises InvalidRequestError."""
        specs = {spec.name: spec for spec in target.caller_signature.inputs}
        inputs: list[Given] = []
        parameters: dict[str, Parameter] = {}
        for name, value in inference.parameters.items():
            if name in specs:
                inputs.append(_given(specs[name], value))
            elif name in target.entity_inputs and type(value) in {str, int}:
                inputs.append(_guess(name, value))
            else:
                parameters[name] = value
        for name, values in self._lists.items():
            if name not in specs:
                known = ", ".join(map(str, specs.values())) or "none"
                raise InvalidRequestError(f"model {target.model} has no input {name!r}; its inputs are {known}")
            inputs.append(_given(specs[name], values))
        return inference._replace(inputs=inputs, parameters=parameters)


def _guess(name: str, value: Any) -> Given:
    """A single value by its own looks."""
    if isinstance(value, str):
        return Given(name, BYTES, (1,), encode_bytes([value.encode()]))
    try:
        return Given(name, "INT64", (1,), encode("INT64", [value]))
    except ValueError as error:
        raise InvalidRequestError(f"{name!r}: {error}") from None


def _given(spec: TensorSpec, value: Any) -> Given:
    shape: list[int] = []
    flat = [value]
    while flat and isinstance(flat[0], list) and len(shape) < _DEEPEST:
        size = len(flat[0])
        if any(not isinstance(part, list) or len(part) != size for part in flat):
            raise InvalidRequestError(f"input {spec.name!r}: its lists differ in length or depth")
        shape.append(size)
        flat = [element for part in flat for element in part]
    try:
        data = encode(spec.datatype, flat)
    except (ValueError, TypeError, OverflowError, binascii.Error) as error:
        raise InvalidRequestError(f"input {spec.name!r}: {error}") from None
    return Given(spec.name, spec.datatype, _fitted(spec, shape, len(flat)), data)


def _fitted(spec: TensorSpec, shape: list[int], count: int) -> Sequence[int]:
    """The shape of `count` elements in lists of `shape`, with the dimensions that are left out."""
    missing = len(spec.shape) - len(shape)
    if missing <= 0:
        return shape
    open_ends = spec.shape.count(-1)
    fixed = prod(size for size in spec.shape if size >= 0)
    if open_ends == 1 and fixed and count % fixed == 0:
        return [count // fixed if size < 0 else size for size in spec.shape]
    if not open_ends and count == fixed:
        return spec.shape
    return [1] * missing + shape


def write_flat(flight: Flight, reply: link_pb2.Reply) -> bytes:
    """One answer: its outputs by name, single elements as they are. Raises InvalidRequestError without a JSON form."""
    target, named = flight.target, flight.inference.id
    fields = [
        b'"model_name":%b' % orjson.dumps(target.model),
        b'"model_version":%b' % orjson.dumps(target.version),
        *([b'"id":%b' % orjson.dumps(named)] if named else []),
        *(b"%b:%b" % (orjson.dumps(output.name), _value(output)) for output in reply.outputs),
    ]
    return b"{%b}" % b",".join(fields)


def _value(output: tensor_pb2.Tensor) -> bytes:
    is_single = prod(output.shape) == 1
    if output.datatype != BYTES:
        text = numbers(output.name, output.datatype, output.data)
        return text[1:-1] if is_single else text
    elements, is_base64 = texts(output.data)
    if is_base64:
        raise InvalidRequestError(f"output {output.name!r} has bytes that are no UTF-8: ask over gRPC")
    return orjson.dumps(elements[0] if is_single else elements)
