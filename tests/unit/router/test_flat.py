"""Flat maps of values <-> tensors."""

import json
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from services.chassis.wire import signature_to_proto
from services.core.errors import InvalidRequestError
from services.core.model_spec import ModelSpec
from services.core.signature import Signature, TensorSpec
from services.core.tensor import decode_bytes, encode_bytes
from services.router.flight import Flight
from services.router.inference import Inference
from services.router.rest.flat import FlatDraft, flat_inference, write_flat
from services.router.table import Target
from turnout.v1 import link_pb2 as pb
from turnout.v1.tensor_pb2 import Tensor

SPECS = (
    TensorSpec("text", "BYTES", (-1, 1)),
    TensorSpec("one", "INT64", (1,)),
    TensorSpec("none", "FP32", ()),
    TensorSpec("free", "FP32", (-1, -1)),
    TensorSpec("fixed", "FP32", (2, 3)),
    TensorSpec("rows", "FP32", (-1, 3)),
    TensorSpec("flag", "BOOL", (1,)),
    TensorSpec("half", "FP16", (1,)),
)


def bound(body: dict[str, Any], *names: str) -> Inference:
    """The request for a model with those inputs, all that it names unless said."""
    specs = tuple(spec for spec in SPECS if spec.name in (names or {*body, *body.get("parameters", {})}))
    signature = signature_to_proto(Signature(specs, (), batches=False))
    target = Target(pb.Served(model="m", version="1", signature=signature), ModelSpec())
    inference, lists = flat_inference("m", "", json.dumps(body).encode())
    return FlatDraft(inference, lists).bind(target, inference)


@pytest.mark.parametrize(
    ("name", "value", "shape", "elements"),
    [
        ("text", "hé", [1, 1], ["hé"]),
        ("text", ["a", "b"], [2, 1], ["a", "b"]),
        ("text", [["a"], ["b"]], [2, 1], ["a", "b"]),
        ("one", (1 << 53) + 1, [1], [(1 << 53) + 1]),
        ("one", [5], [1], [5]),
        ("none", 2.5, [], [2.5]),
        ("free", 1, [1, 1], [1]),
        ("free", [1, 2], [1, 2], [1, 2]),
        ("free", [[1, 2], [3, 4]], [2, 2], [1, 2, 3, 4]),
        ("free", [[]], [1, 0], []),
        ("fixed", [1, 2, 3, 4, 5, 6], [2, 3], [1, 2, 3, 4, 5, 6]),
        ("rows", [1, 2, 3], [1, 3], [1, 2, 3]),
        ("rows", [1, 2, 3, 4, 5, 6], [2, 3], [1, 2, 3, 4, 5, 6]),
        ("rows", [1, 2], [1, 2], [1, 2]),  # which the signature's check refuses with what it takes
        ("flag", True, [1], [True]),
    ],
)
def test_a_value_is_the_tensor_that_the_model_takes(
    name: str, value: Any, shape: list[int], elements: list[Any]
) -> None:
    (given,) = bound({name: value}).inputs
    dtype = {"INT64": np.int64, "FP32": np.float32, "BOOL": np.bool_}.get(given.datatype)
    found = [each.decode() for each in decode_bytes(given.data)] if dtype is None else np.frombuffer(given.data, dtype)

    assert (given.name, list(given.shape), list(found)) == (name, shape, elements)


def test_what_is_no_input_is_a_parameter_wherever_it_stands() -> None:
    more = {"flag": True, "temperature": 0.5, "seed": None}
    inference = bound({"id": "r-1", "one": 5, "stream": False, "parameters": more}, "one", "flag")

    assert {given.name for given in inference.inputs} == {"one", "flag"}
    assert inference.parameters == {"stream": False, "temperature": 0.5}
    assert inference.id == "r-1"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"one": "5"}, "input 'one': INT64 takes whole numbers, not '5'"),
        ({"one": 1.5}, "input 'one': INT64 takes whole numbers, not '1.5'"),
        ({"one": 1 << 63}, "input 'one': a value is outside the range of INT64"),
        ({"text": 5}, "input 'text': BYTES takes text, not '5'"),
        ({"free": [[1], [2, 3]]}, "input 'free': its lists differ in length or depth"),
        ({"free": [[1], 2]}, "input 'free': its lists differ in length or depth"),
        ({"half": 1}, "input 'half': FP16 has no JSON form"),
        ({"words": ["a"]}, "model m has no input 'words'; its inputs are none"),
        ({"one": {"b64": ""}}, "'one' is an object; an input takes a value, or a list of values"),
        ({"one": 1, "parameters": {"one": 2}}, "'one' stands in the body and in its parameters"),
        ({"parameters": 5}, "parameters is not an object"),
        ({"id": 5}, "id is not text"),
    ],
)
def test_what_does_not_fit_is_said_by_name(body: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        bound(body, *(name for name in body if name not in {"words", "parameters", "id"}), "-")

    assert message in str(refused.value)


@pytest.mark.parametrize("body", [b"[]", b"5", b"{", b"", b"[" * 100_000])
def test_what_is_no_map_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        flat_inference("m", "", body)


def test_single_values_may_choose_the_version() -> None:
    inference, lists = flat_inference("m", "", b'{"user": "ana", "n": 7, "x": 1.5, "l": [1]}')

    assert [(given.name, given.datatype) for given in FlatDraft(inference, lists).guessed()] == [
        ("user", "BYTES"),
        ("n", "INT64"),
    ]


def answer(*outputs: Tensor) -> Any:
    flight = SimpleNamespace(target=SimpleNamespace(model="m", version="2"), inference=SimpleNamespace(id="r"))
    return json.loads(write_flat(cast("Flight", flight), pb.Reply(outputs=outputs)))


def test_single_elements_of_an_answer_are_no_lists() -> None:
    floats = np.array([0.5, np.inf], np.float32).tobytes()
    said = answer(
        Tensor(name="text_output", datatype="BYTES", shape=[1], data=encode_bytes(["é".encode()])),
        Tensor(name="words", datatype="BYTES", shape=[2], data=encode_bytes([b"a", b""])),
        Tensor(name="n", datatype="INT64", shape=[1, 1], data=np.int64((1 << 53) + 1).tobytes()),
        Tensor(name="scalar", datatype="FP32", shape=[], data=floats[:4]),
        Tensor(name="list", datatype="FP32", shape=[1, 2], data=floats),
        Tensor(name="none", datatype="INT32", shape=[0], data=b""),
    )

    assert said == {
        "model_name": "m", "model_version": "2", "id": "r", "text_output": "é", "words": ["a", ""],
        "n": (1 << 53) + 1, "scalar": 0.5, "list": [0.5, float("inf")], "none": [],
    }  # fmt: skip


@pytest.mark.parametrize(("datatype", "data"), [("BYTES", encode_bytes([b"\xff"])), ("FP16", b"\0\0")])
def test_what_has_no_form_in_json_is_said(datatype: str, data: bytes) -> None:
    with pytest.raises(InvalidRequestError, match="output 'y'"):
        answer(Tensor(name="y", datatype=datatype, shape=[1], data=data))
