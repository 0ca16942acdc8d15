"""The answer to a flight as a V2 infer response: JSON, and behind it the outputs that were asked for as bytes."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import orjson

from services.chassis.quick_reply import AnyReply, QuickReply, ReplyLayout, whole
from services.core.tensor import BYTES
from services.router.inference import NOWHERE, Parameter
from services.router.rest.codec import BINARY_SIZE, NO_WISHES, Wishes
from services.router.rest.json_data import numbers, texts
from turnout.v1 import link_pb2, tensor_pb2

Data = bytes | memoryview
Placed = Mapping[str, Mapping[str, Parameter]]


def write_response(model: str, version: str, request_id: str, reply: link_pb2.Reply, placed: Placed = NOWHERE) -> bytes:
    """A V2 infer answer that is all JSON; data flat, non-finite numbers as bare NaN and Infinity tokens.

    `placed`: outputs that lie in shared memory, which have no data here, and what is said of them.
    """
    return write_answer(model, version, request_id, reply, placed, NO_WISHES)[0]


def write_answer(
    model: str, version: str, request_id: str, reply: AnyReply, placed: Placed, wishes: Wishes
) -> tuple[bytes, int]:
    """The body, and how many of its bytes are JSON when tensors follow; 0 = all.

    Raises InvalidRequestError for an output that has no JSON form, ValueError for one that is not what it says.
    """
    start = _answered_by(model, version)
    if request_id:
        start = b'%b"id":%b,' % (start, orjson.dumps(request_id))
    if type(reply) is QuickReply and reply.layout.tensor[1] != BYTES:
        return _quick(start, reply, wishes)
    outputs, blobs = [], []
    for output in whole(reply).outputs:
        if output.name not in placed and wishes.binary(output.name):
            outputs.append(_described(output, {BINARY_SIZE: len(output.data)}) + b"}")
            blobs.append(output.data)
        else:
            outputs.append(_in_json(output, placed.get(output.name)))
    text = b'%b"outputs":[%b]}' % (start, b",".join(outputs))
    return b"".join((text, *blobs)), len(text) if blobs else 0


def _quick(start: bytes, reply: QuickReply, wishes: Wishes) -> tuple[bytes, int]:
    """One output of a layout seen before: what is said of it is not written anew."""
    layout, data = reply.layout, reply.data
    said = layout.said
    if said is None:
        said = layout.said = _forms(layout, len(data))
    name, datatype, _ = layout.tensor
    if wishes.binary(name):
        return b"".join((start, said[0], data)), len(start) + len(said[0])
    return b"".join((start, said[1], numbers(name, datatype, data), b"}]}")), 0


def _forms(layout: ReplyLayout, size: int) -> tuple[bytes, bytes]:
    """What stands before a binary output's bytes, and before a JSON output's numbers."""
    name, datatype, shape = layout.tensor
    output = tensor_pb2.Tensor(name=name, datatype=datatype, shape=shape)
    binary = b'"outputs":[%b}]}' % _described(output, {BINARY_SIZE: size})
    return binary, b'"outputs":[%b,"data":' % _described(output, None)


@lru_cache(maxsize=4096)
def _answered_by(model: str, version: str) -> bytes:
    return orjson.dumps({"model_name": model, "model_version": version})[:-1] + b","


def _described(tensor: tensor_pb2.Tensor, parameters: Mapping[str, Any] | None) -> bytes:
    """An output without its data, and without the brace that ends it."""
    described: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
    if parameters is not None:
        described["parameters"] = dict(parameters)
    return orjson.dumps(described)[:-1]


def _in_json(tensor: tensor_pb2.Tensor, placed: Mapping[str, Parameter] | None) -> bytes:
    if placed is not None:
        return _described(tensor, placed) + b"}"
    if tensor.datatype != BYTES:
        data = numbers(tensor.name, tensor.datatype, tensor.data)
        return b'%b,"data":%b}' % (_described(tensor, None), data)
    elements, is_base64 = texts(tensor.data)
    described = _described(tensor, {"content_type": "base64"} if is_base64 else None)
    return b'%b,"data":%b}' % (described, orjson.dumps(elements))
