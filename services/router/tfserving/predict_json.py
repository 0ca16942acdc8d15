"""TensorFlow Serving's predict over REST: rows (`instances`, `predictions`) and columns (`inputs`, `outputs`)."""

from collections.abc import Mapping, Sequence
from typing import Any

from services.core.errors import InvalidRequestError
from services.core.signature import SIGNATURE_NAME, Given, Signature, TensorSpec
from services.core.tensor import BYTES
from services.router.inference import Inference, Parameter
from services.router.rest.json_data import loads
from services.router.table import Target
from services.router.tfserving.json_values import array_of, dump, flatten, is_b64, tensor

_ROWS, _COLUMNS = "instances", "inputs"
_TIGHT = (-1,)


class PredictDraft:
    """flight.Draft of a predict body: `values` of `instances`, or of `inputs` where not `is_rows`."""

    def __init__(self, values: Any, *, is_rows: bool, has_words: bool) -> None:
        self.values = values
        self.is_rows = is_rows
        self._has_words = has_words

    def guessed(self) -> list[Given]:
        named = self._named_values()
        return [] if named is None else [guess(name, value) for name, value in named.items()]

    def bind(self, target: Target, inference: Inference) -> Inference:
        signature = signature_of(target, inference)
        specs = {spec.name: spec for spec in signature.inputs}
        named = self._named_values()
        if named is None:
            named = {_only_input(target, signature, is_rows=self.is_rows): self.values}
        given = [
            tensor(specs[name], value, has_words=self._has_words) if name in specs else guess(name, value)
            for name, value in named.items()
        ]
        return inference._replace(inputs=given)

    def _named_values(self) -> Mapping[str, Any] | None:
        """Input -> its value; None where the body has values of the only input. Raises InvalidRequestError."""
        values = self.values
        if not self.is_rows:
            return values if isinstance(values, dict) and not is_b64(values) else None
        if not isinstance(values[0], dict) or is_b64(values[0]):
            return None
        names = values[0].keys()
        for number, each in enumerate(values):
            if not isinstance(each, dict) or each.keys() != names:
                raise InvalidRequestError(
                    f"instances[{number}] has not the names of instances[0], which are {', '.join(map(repr, names))}"
                )
        return {name: [each[name] for each in values] for name in names}


def parse(model: str, version: str, body: bytes) -> tuple[Inference, PredictDraft]:
    """The request in a predict body, without its tensors, and what they are made of. Raises InvalidRequestError."""
    request = object_of(body)
    has_rows, has_columns = _ROWS in request, _COLUMNS in request
    if has_rows == has_columns:
        both = "both are there" if has_rows else f"it has {', '.join(map(repr, request)) or 'nothing'}"
        raise InvalidRequestError(f"a predict request has either 'instances' (rows) or 'inputs' (columns); {both}")
    values = request[_ROWS if has_rows else _COLUMNS]
    if has_rows and (not isinstance(values, list) or not values):
        raise InvalidRequestError("'instances' takes a list of at least one row")
    if values is None:
        raise InvalidRequestError("'inputs' is null; it takes a value, or an object of named ones")
    has_words = b"true" in body or b"false" in body
    inference = Inference(model, version, "", parameters_of(request), (), (), len(body))
    return inference, PredictDraft(values, is_rows=has_rows, has_words=has_words)


def object_of(body: bytes) -> dict[str, Any]:
    """The JSON object that a body is. Raises InvalidRequestError."""
    if not body or body.isspace():
        raise InvalidRequestError('the body is empty; send {"instances": [...]}')
    request = loads(body)
    if not isinstance(request, dict):
        raise InvalidRequestError('the body is not an object; send {"instances": [...]}')
    return request


def parameters_of(request: Mapping[str, Any]) -> dict[str, Parameter]:
    """`signature_name`, and `parameters`, which are ours: keys of features, priorities. Raises InvalidRequestError."""
    parameters: dict[str, Parameter] = {}
    given = request.get("parameters")
    if given is not None:
        if not isinstance(given, dict):
            raise InvalidRequestError("'parameters' is not an object")
        for name, value in given.items():
            if not isinstance(value, (bool, int, float, str)):
                raise InvalidRequestError(f"parameter {name!r} is neither text, number nor boolean")
        parameters.update(given)
    name = request.get(SIGNATURE_NAME)
    if name is not None:
        if not isinstance(name, str):
            raise InvalidRequestError("'signature_name' is no text")
        if name:
            parameters[SIGNATURE_NAME] = name
    return parameters


def signature_of(target: Target, inference: Inference) -> Signature:
    """The signature that a request is for, as its callers see it. Raises InvalidRequestError."""
    name = str(inference.parameters.get(SIGNATURE_NAME, ""))
    return target.caller_signature if target.is_usual(name) else target.signature.named(name)


def guess(name: str, value: Any) -> Given:
    """The tensor of values that no signature describes: keys of features, or an input that will be refused."""
    try:
        first = flatten(value)[1][:1]
    except ValueError:
        first = []
    kinds = {bool: "BOOL", int: "INT64", float: "FP64"}
    datatype = kinds.get(type(first[0]), BYTES) if first else BYTES
    return tensor(TensorSpec(name, datatype, _TIGHT), value, has_words=True)


def _only_input(target: Target, signature: Signature, *, is_rows: bool) -> str:
    if len(signature.inputs) == 1:
        return signature.inputs[0].name
    names = ", ".join(map(repr, (spec.name for spec in signature.inputs))) or "none of its own"
    shape = '{"instances": [{"NAME": …}, …]}' if is_rows else '{"inputs": {"NAME": […], …}}'
    raise InvalidRequestError(f"model {target.model} has inputs {names}: name them, as in {shape}")


def write(outputs: Sequence[Any], *, is_rows: bool) -> bytes:
    """The answer to a predict request: `predictions`, a row each, or `outputs`. Raises InvalidRequestError."""
    arrays = {output.name: array_of(output) for output in outputs}
    if not is_rows:
        columns = next(iter(arrays.values())) if len(arrays) == 1 else arrays
        return dump({"outputs": columns}, list(arrays.values()))
    rows = {array.shape[:1] for array in arrays.values()}
    if len(rows) > 1 or () in rows:
        shapes = ", ".join(f"{name}: {list(array.shape)}" for name, array in arrays.items())
        raise InvalidRequestError(f"outputs have no rows in common ({shapes}): ask by 'inputs', in columns")
    if len(arrays) == 1:
        return dump({"predictions": next(iter(arrays.values()))}, list(arrays.values()))
    names = list(arrays)
    predictions = [dict(zip(names, row, strict=True)) for row in zip(*arrays.values(), strict=True)]
    return dump({"predictions": predictions}, list(arrays.values()))
