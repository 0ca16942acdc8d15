"""V2 JSON <-> Inference: data nested or flat, every datatype that JSON can hold, exact integers."""

import base64
import binascii
import itertools
import json
from array import array
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

import orjson

from services.core.errors import InvalidRequestError
from services.core.signature import Given
from services.core.tensor import BYTES, DATATYPES, decode_bytes, element_count, encode_bytes
from services.router.inference import NOWHERE, Inference, Parameter, extras_of
from turnout.v1 import link_pb2, tensor_pb2

_CODES = {
    "BOOL": "b",
    "INT8": "b",
    "INT16": "h",
    "INT32": "i",
    "INT64": "q",
    "UINT8": "B",
    "UINT16": "H",
    "UINT32": "I",
    "UINT64": "Q",
    "FP32": "f",
    "FP64": "d",
}
_FLOATS = {"FP32", "FP64"}
_WORDS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_REQUEST_FIELDS = {"id", "parameters", "inputs", "outputs"}
_IN_THE_PATH = {"model_name", "model_version"}  # KServe's SDK says them here too: the path counts


def loads(body: bytes | bytearray) -> Any:
    """JSON, bare NaN and Infinity tokens included. Raises InvalidRequestError."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    try:
        value = json.loads(body)
        json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair is no text
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the body is not JSON: {str(error)[:200]}") from None
    return value


def parse_request(model: str, version: str, body: bytes | bytearray) -> Inference:
    """The request in a V2 infer body. Raises InvalidRequestError naming the field that is wrong."""
    request = loads(body)
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
        inputs=[_input(index, item, elsewhere) for index, item in enumerate(inputs)],
        outputs=names,
        size_bytes=len(body),
        extras=extras,
    )


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


def _input(index: int, item: Any, elsewhere: Container[str]) -> Given:
    if not isinstance(item, dict):
        raise InvalidRequestError(f"inputs[{index}] is not an object")
    name, datatype, shape = item.get("name"), item.get("datatype"), item.get("shape")
    if not isinstance(name, str) or not name:
        raise InvalidRequestError(f"inputs[{index}] has no name")
    if not isinstance(datatype, str) or datatype not in DATATYPES:
        raise InvalidRequestError(f"input {name!r}: datatype is {datatype!r}; known are {', '.join(DATATYPES)}")
    if not isinstance(shape, list) or not all(type(size) is int for size in shape):
        raise InvalidRequestError(f"input {name!r}: shape is {shape!r}; it takes a list of whole numbers")
    if name in elsewhere and "data" not in item:
        return Given(name, datatype, shape, b"")
    if "data" not in item:
        raise InvalidRequestError(f"input {name!r} has no data")
    try:
        count = element_count(shape)
        is_null = item["data"] is None and count == 0  # KServe's SDK says nothing so
        elements = [] if is_null else _flatten(item["data"], len(shape))
        if len(elements) != count:
            raise InvalidRequestError(f"input {name!r}: {len(elements)} elements, but shape {shape} takes {count}")
        parameters = item.get("parameters")
        as_base64 = isinstance(parameters, dict) and parameters.get("content_type") == "base64"
        return Given(name, datatype, shape, _encode(datatype, elements, as_base64=as_base64))
    except (ValueError, TypeError, OverflowError, binascii.Error) as error:
        raise InvalidRequestError(f"input {name!r}: {error}") from None


def _flatten(data: Any, rank: int) -> list[Any]:
    """Nested lists, at most `rank` deep, as one flat list."""
    flat: list[Any] = data if isinstance(data, list) else [data]
    for _ in range(max(rank, 1) - 1):
        if not flat or not isinstance(flat[0], list):
            break
        if not all(type(part) is list for part in flat):
            raise ValueError("data is nested to different depths")
        flat = list(itertools.chain.from_iterable(flat))
    return flat


def _encode(datatype: str, elements: list[Any], *, as_base64: bool) -> bytes:
    if datatype == BYTES:
        return encode_bytes([_bytes_element(element, as_base64=as_base64) for element in elements])
    code = _CODES.get(datatype)
    if code is None:
        raise ValueError(f"{datatype} has no JSON form: send it over gRPC as raw_input_contents")
    if datatype == "BOOL" and not all(type(element) in {bool, int} and 0 <= element <= 1 for element in elements):
        raise ValueError("BOOL takes true, false, 0 or 1")
    try:
        return array(code, elements).tobytes()
    except TypeError:
        if datatype in _FLOATS:
            numbers: list[Any] = [_WORDS.get(e, e) if isinstance(e, str) else e for e in elements]
            return array(code, numbers).tobytes()
        wrong = next(element for element in elements if not isinstance(element, int))
        raise ValueError(f"{datatype} takes whole numbers, not {str(wrong)[:40]!r}") from None
    except OverflowError:
        raise ValueError(f"a value is outside the range of {datatype}") from None


def _bytes_element(element: Any, *, as_base64: bool) -> bytes:
    if not isinstance(element, str):
        raise TypeError(f"BYTES takes text, not {str(element)[:40]!r}")
    return base64.b64decode(element, validate=True) if as_base64 else element.encode()


def write_response(
    model: str,
    version: str,
    request_id: str,
    reply: link_pb2.Reply,
    placed: Mapping[str, Mapping[str, Parameter]] = NOWHERE,
) -> bytes:
    """A V2 infer answer; data flat, non-finite numbers as bare NaN and Infinity tokens.

    `placed`: outputs that lie in shared memory, which have no data here, and what is said of them.
    """
    outputs = [_output(tensor, placed.get(tensor.name)) for tensor in reply.outputs]
    body: dict[str, Any] = {"model_name": model, "model_version": version}
    if request_id:
        body["id"] = request_id
    body["outputs"] = outputs
    floats = (o["data"] for o in outputs if o["datatype"] in _FLOATS and "data" in o)
    if all(isfinite(value) for value in itertools.chain.from_iterable(floats)):
        return orjson.dumps(body)
    return json.dumps(body, separators=(",", ":")).encode()


def _output(tensor: tensor_pb2.Tensor, placed: Mapping[str, Parameter] | None) -> dict[str, Any]:
    described: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
    if placed is not None:
        return {**described, "parameters": placed}
    if tensor.datatype == BYTES:
        elements = decode_bytes(tensor.data)
        try:
            described["data"] = [element.decode() for element in elements]
        except UnicodeDecodeError:
            described["parameters"] = {"content_type": "base64"}
            described["data"] = [base64.b64encode(element).decode() for element in elements]
        return described
    code = _CODES.get(tensor.datatype)
    if code is None:
        raise InvalidRequestError(f"output {tensor.name!r} is {tensor.datatype}, which has no JSON form: ask over gRPC")
    values: Sequence[Any] = array(code, tensor.data)
    described["data"] = [bool(value) for value in values] if tensor.datatype == "BOOL" else list(values)
    return described


def error_body(message: str) -> bytes:
    return orjson.dumps({"error": message})


def tensors(specs: Iterable[Any]) -> list[dict[str, Any]]:
    return [{"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)} for spec in specs]
