"""The routing key of a request, as bytes: the same key on any protocol gives the same version."""

from collections.abc import Callable, Mapping, Sequence

from services.core.signature import Given
from services.core.tensor import BYTES, decode_bytes
from services.router.inference import Inference, Parameter

HEADER = "x-routing-key"
_INTEGERS = {"INT8": 1, "INT16": 2, "INT32": 4, "INT64": 8, "UINT8": 1, "UINT16": 2, "UINT32": 4, "UINT64": 8}


def routing_key(
    sticky_by: str | None,
    headers: Mapping[str, str | bytes],
    inference: Inference,
    inputs: Callable[[], Sequence[Given]],
) -> bytes:
    """x-routing-key, then what `sticky_by` names: NAME (parameter), header:NAME or input:NAME; empty = none."""
    given = headers.get(HEADER)
    if given:
        return _as_key(given)
    if sticky_by is None:
        return b""
    kind, colon, name = sticky_by.partition(":")
    if not colon:
        return _as_key(inference.parameters.get(sticky_by, b""))
    if kind == "header":
        return _as_key(headers.get(name.lower(), b""))
    return first_element(name, inputs())


def _as_key(value: Parameter | bytes) -> bytes:
    if isinstance(value, bytes):
        return value
    return str(value).encode(errors="surrogateescape")  # HTTP headers may hold any bytes


def first_element(name: str, inputs: Sequence[Given]) -> bytes:
    """The first element of a named input: integers in decimal, BYTES as they are, floats in their shortest form."""
    for given in inputs:
        if given.name != name or not len(given.data):
            continue
        if given.datatype == BYTES:
            length = int.from_bytes(given.data[:4], "little")
            return bytes(given.data[4 : 4 + length])
        size = _INTEGERS.get(given.datatype)
        if size is not None and len(given.data) >= size:
            signed = given.datatype.startswith("I")
            return str(int.from_bytes(given.data[:size], "little", signed=signed)).encode()
    return b""


def elements(name: str, inputs: Sequence[Given]) -> list[bytes] | list[int] | None:
    """All elements of a named integer or BYTES input; None when there is no such input."""
    for given in inputs:
        if given.name == name:
            if given.datatype == BYTES:
                return decode_bytes(given.data)
            size = _INTEGERS.get(given.datatype)
            if size is not None:
                signed = given.datatype.startswith("I")
                data = given.data
                return [
                    int.from_bytes(data[at : at + size], "little", signed=signed) for at in range(0, len(data), size)
                ]
    return None
