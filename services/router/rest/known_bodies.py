"""Bodies of V2 infer requests, of which what was read before is not read again.

A caller sends the same JSON before its binary tensor again and again, or JSON in which only the numbers differ. What
is known of the one by its bytes, and of the other by its tensor's name, datatype and shape, is a Template: the rest of
its way is that of a known gRPC request (docs/adr/0005).
"""

from typing import Any, NamedTuple, Protocol

from services.core.errors import InvalidRequestError
from services.core.signature import SIGNATURE_NAME
from services.core.tensor import BYTES, element_count
from services.router.flight import Flight
from services.router.inference import Inference
from services.router.rest.codec import BINARY_OUTPUT, LENGTH, Body, Wishes, inference_of, read_binary, wishes_of
from services.router.rest.json_data import encode, flatten, loads
from services.router.templates import Template

_MOST = 2048
_MOST_JSON_BYTES = 1024
_MOST_NAME, _MOST_SIZES = 256, 32  # of a tensor that is remembered: what is kept has a bound in bytes too
_VIEW_BYTES = 4 << 10  # data of a larger tensor is not copied out of its body
_PLAIN = {"name", "shape", "datatype", "data"}


class Call(Protocol):
    """Whoever writes the answer."""

    wishes: Wishes


class _Binary(NamedTuple):
    template: Template
    wishes: Wishes
    size: int  # of body


class _Plain(NamedTuple):
    template: Template
    elements: int


class KnownBodies:
    """Reads bodies into flights."""

    def __init__(self) -> None:
        self._binary: dict[tuple[str, str, bytes], _Binary] = {}
        self._plain: dict[tuple[Any, ...], _Plain] = {}

    def read_binary(
        self, model: str, version: str, body: Body, json_bytes: int, call: Call, flight: Flight
    ) -> Inference:
        """A body whose first `json_bytes` are JSON. Raises InvalidRequestError."""
        size = len(body)
        said = bytes(body[:json_bytes]) if json_bytes <= _MOST_JSON_BYTES else b""
        known = self._binary.get((model, version, said))
        if known is not None and known.size == size:
            template, call.wishes, _ = known
            flight.template = template
            flight.data = body[json_bytes:] if size <= _VIEW_BYTES else memoryview(body)[json_bytes:]
            return template.inference
        if json_bytes > size:
            raise InvalidRequestError(f"{LENGTH} is {json_bytes}, but the body has {size} bytes")
        inference, call.wishes = read_binary(model, version, body, json_bytes)
        inputs = inference.inputs
        if said and len(inputs) == 1 and len(inputs[0].data) == size - json_bytes and _is_plain(inference):
            template = Template(inference._replace(parameters=_without_ours(inference)))
            _remember(self._binary, (model, version, said), _Binary(template, call.wishes, size))
        return inference

    def read_json(self, model: str, version: str, body: Body, call: Call, flight: Flight) -> Inference:
        """A body that is all JSON. Raises InvalidRequestError."""
        request = loads(body)
        plain = _plain_input(request)
        if plain is not None:
            name, datatype, shape, data = plain
            key = (model, version, name, datatype, *shape)
            known = self._plain.get(key)
            if known is not None and (encoded := _encoded(data, datatype, shape, known.elements)) is not None:
                flight.template, flight.data = known.template, encoded
                return known.template.inference
        inference = inference_of(model, version, request, len(body), None)
        call.wishes = wishes_of(request)
        if plain is not None and len(name) <= _MOST_NAME and _is_plain(inference) and len(inference.inputs[0].data):
            _remember(self._plain, key, _Plain(Template(inference), element_count(shape)))
        return inference


def _plain_input(request: Any) -> tuple[str, str, list[int], Any] | None:
    """Name, datatype, shape and data of a request that says nothing but its one input."""
    if type(request) is not dict or len(request) != 1 or "inputs" not in request:
        return None
    inputs = request["inputs"]
    if type(inputs) is not list or len(inputs) != 1 or type(inputs[0]) is not dict:
        return None
    item = inputs[0]
    if item.keys() != _PLAIN:
        return None
    name, datatype, shape = item["name"], item["datatype"], item["shape"]
    if type(name) is not str or type(datatype) is not str or type(shape) is not list or len(shape) > _MOST_SIZES:
        return None
    for size in shape:
        if type(size) is not int:
            return None
    return name, datatype, shape, item["data"]


def _encoded(data: Any, datatype: str, shape: list[int], count: int) -> bytes | None:
    """The bytes of `count` elements; None where something is wrong, of which the full reader says what."""
    try:
        elements = flatten(data, len(shape))
        return encode(datatype, elements) if len(elements) == count else None
    except (ValueError, TypeError, OverflowError):
        return None


def _is_plain(inference: Inference) -> bool:
    """Whether a request of this form is right or wrong by its form alone, and likely to come again."""
    return (
        inference.extras is None
        and not inference.id
        and not inference.parameters.keys() - {SIGNATURE_NAME, BINARY_OUTPUT}
        and inference.inputs[0].datatype != BYTES
    )


def _without_ours(inference: Inference) -> dict[str, Any]:
    return {name: value for name, value in inference.parameters.items() if name != BINARY_OUTPUT}


def _remember(known: dict[Any, Any], key: tuple[Any, ...], value: object) -> None:
    if len(known) >= _MOST:
        known.clear()
    known[key] = value
