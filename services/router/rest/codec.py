"""The body of a V2 infer request -> Inference: JSON, and behind it the tensors that JSON only describes."""

import binascii
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import orjson

from services.core.errors import InvalidRequestError
from services.core.signature import Given
from services.core.tensor import DATATYPES, element_count
from services.router.inference import Inference, Parameter, extras_of
from services.router.rest.json_data import encode, flatten, loads

_REQUEST_FIELDS = {"id", "parameters", "inputs", "outputs"}
_IN_THE_PATH = {"model_name", "model_version"}  # KServe's SDK says them here too: the path counts
BINARY_SIZE, BINARY, BINARY_OUTPUT = "binary_data_size", "binary_data", "binary_data_output"
LENGTH = "Inference-Header-Content-Length"
Body = bytes | memoryview


class Wishes(NamedTuple):
    """Which outputs are to come as bytes behind the answer's JSON."""

    usually: bool = False
    named: Mapping[str, bool] = {}

    def binary(self, output: str) -> bool:
        return self.named.get(output, self.usually)


NO_WISHES = Wishes()
ALL_BINARY = Wishes(usually=True)


def parse_request(model: str, version: str, body: Body) -> Inference:
    """The request in a V2 infer body that is all JSON. Raises InvalidRequestError naming the field that is wrong."""
    return inference_of(model, version, loads(body), len(body), None)


def read_binary(model: str, version: str, body: Body, json_bytes: int) -> tuple[Inference, Wishes]:
    """The request in a body whose first `json_bytes` are JSON, and tensors follow. Raises InvalidRequestError."""
    view = memoryview(body)
    request = loads(view[:json_bytes])
    behind = Behind(view[json_bytes:])
    inference = inference_of(model, version, request, len(body), behind)
    behind.check_end()
    return inference, wishes_of(request)


class Behind:
    """The tensors behind the JSON, one after the other."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def take(self, name: str, size: Any) -> memoryview:
        """The next `size` bytes. Raises InvalidRequestError."""
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise InvalidRequestError(f"input {name!r}: {BINARY_SIZE} is {size!r}; it takes a whole number of bytes")
        left = len(self._data) - self._at
        if size > left:
            raise InvalidRequestError(f"input {name!r}: {BINARY_SIZE} is {size}, but {left} bytes are left of the body")
        self._at += size
        return self._data[self._at - size : self._at]

    def check_end(self) -> None:
        left = len(self._data) - self._at
        if left:
            raise InvalidRequestError(
                f"{left} bytes are left behind the last tensor: {BINARY_SIZE} says how many it has"
            )


def inference_of(model: str, version: str, request: Any, size_bytes: int, behind: Behind | None) -> Inference:
    """The request that the JSON says. Raises InvalidRequestError naming the field that is wrong."""
    if not isinstance(request, dict):
        raise InvalidRequestError('the body is not an object; send {"inputs": [...]}')
    unknown = request.keys() - _REQUEST_FIELDS - _IN_THE_PATH
    if unknown:
        raise InvalidRequestError(f"unknown field {min(unknown)!r}; a request has {', '.join(sorted(_REQUEST_FIELDS))}")
    inputs = _list(request, "inputs")
    outputs = _list(request, "outputs")
    names = [_output_name(index, item) for index, item in enumerate(outputs)]
    extras = extras_of(_described(inputs), _described(outputs))
    elsewhere = extras.inputs if extras else {}
    return Inference(
        model=model,
        version=version,
        id=_text(request.get("id"), "id"),
        parameters=_parameters(request.get("parameters")),
        inputs=[_input(index, item, elsewhere, behind) for index, item in enumerate(inputs)],
        outputs=names,
        size_bytes=size_bytes,
        extras=extras,
    )


def wishes_of(request: dict[str, Any]) -> Wishes:
    """How the outputs of a well-formed request are to come. Raises InvalidRequestError."""
    outputs, parameters = request.get("outputs"), request.get("parameters")
    usually = _flag(parameters, BINARY_OUTPUT, "") if parameters else False
    named = {}
    for item in outputs or ():
        said = item.get("parameters")
        if said and BINARY in said:
            named[item["name"]] = _flag(said, BINARY, item["name"])
    return Wishes(usually, named) if usually or named else NO_WISHES


def _flag(parameters: Mapping[str, Any], key: str, output: str) -> bool:
    value = parameters.get(key, False)
    if not isinstance(value, bool):
        where = f"output {output!r}: " if output else ""
        raise InvalidRequestError(f"{where}parameter {key!r} is {str(value)[:40]!r}; it takes true or false")
    return value


def _list(request: dict[str, Any], name: str) -> list[Any]:
    value = request.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidRequestError(f"{name} is not a list")
    return value


def _text(value: Any, name: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidRequestError(f"{name} is not text")
    return value


def _parameters(value: Any) -> dict[str, Parameter]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidRequestError("parameters is not an object")
    for name, item in value.items():
        if not isinstance(item, (bool, int, float, str)):
            raise InvalidRequestError(f"parameter {name!r} is neither text, number nor boolean")
    return value


def _described(items: list[Any]) -> Iterator[tuple[str, Mapping[str, Parameter]]]:
    """Tensors that have parameters, by name; what is no tensor is refused elsewhere."""
    for item in items:
        if isinstance(item, dict) and (said := item.get("parameters")):
            name = item.get("name")
            if not isinstance(said, dict):
                raise InvalidRequestError(f"tensor {name!r}: parameters is not an object")
            if isinstance(name, str):
                yield name, said


def _output_name(index: int, item: Any) -> str:
    if not isinstance(item, dict) or not isinstance(item.get("name"), str):
        raise InvalidRequestError(f'outputs[{index}] has no name; send {{"name": "..."}}')
    return str(item["name"])


def _input(index: int, item: Any, elsewhere: Container[str], behind: Behind | None) -> Given:
    if not isinstance(item, dict):
        raise InvalidRequestError(f"inputs[{index}] is not an object")
    name, datatype, shape = item.get("name"), item.get("datatype"), item.get("shape")
    if not isinstance(name, str) or not name:
        raise InvalidRequestError(f"inputs[{index}] has no name")
    if not isinstance(datatype, str) or datatype not in DATATYPES:
        raise InvalidRequestError(f"input {name!r}: datatype is {datatype!r}; known are {', '.join(DATATYPES)}")
    if not isinstance(shape, list) or not all(type(size) is int for size in shape):
        raise InvalidRequestError(f"input {name!r}: shape is {shape!r}; it takes a list of whole numbers")
    said, data = item.get("parameters"), item.get("data")
    if name in elsewhere and "data" not in item:
        return Given(name, datatype, shape, b"")
    if behind is not None and said and BINARY_SIZE in said:
        if data is not None:
            raise InvalidRequestError(f"input {name!r} has both data and {BINARY_SIZE}: give one of them")
        return Given(name, datatype, shape, behind.take(name, said[BINARY_SIZE]))
    try:
        return Given(name, datatype, shape, _data(name, datatype, shape, item))
    except (ValueError, TypeError, OverflowError, binascii.Error) as error:
        raise InvalidRequestError(f"input {name!r}: {error}") from None


def _data(name: str, datatype: str, shape: list[int], item: dict[str, Any]) -> bytes:
    """What the JSON itself has of an input."""
    said = item.get("parameters")
    data = item.get("data")
    if "data" not in item:
        if said and BINARY_SIZE in said:
            raise InvalidRequestError(f"input {name!r} has {BINARY_SIZE}, but the request no header field {LENGTH}")
        raise InvalidRequestError(f"input {name!r} has no data")
    count = element_count(shape)
    is_null = data is None and count == 0  # KServe's SDK says nothing so
    elements = [] if is_null else flatten(data, len(shape))
    if len(elements) != count:
        raise InvalidRequestError(f"input {name!r}: {len(elements)} elements, but shape {shape} takes {count}")
    return encode(datatype, elements, as_base64=said is not None and said.get("content_type") == "base64")


def error_body(message: str) -> bytes:
    return orjson.dumps({"error": message})


def tensors(specs: Iterable[Any]) -> list[dict[str, Any]]:
    return [{"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)} for spec in specs]
