import json
import struct
from typing import Any

import pytest

from services.core.errors import InvalidRequestError
from services.core.tensor import decode_bytes, encode_bytes
from services.router.inference import Inference
from services.router.table import Target
from services.router.tfserving import examples
from tests.support.targets import target
from turnout.tfserving import example_pb2 as pb
from turnout.tfserving import prediction_service_pb2 as service_pb

# As tensorflow-serving-api 2.21 writes them; a: int64 3, b: floats 1 and 2, c: bytes "t".
EXAMPLE = "0a2b0a0a0a016112051a030a01030a110a0162120c120a0a080000803f000000400a0a0a016312050a030a0174"
CLASSIFY = "0a030a016d12310a2f0a2d" + EXAMPLE
WITH_CONTEXT = "0a030a016d122812260a110a0f0a0d0a0162120812060a040000004012110a0f0a0d0a0161120812060a040000803f"
ABC = target([("a", "INT32", (-1,)), ("b", "FP64", (-1, 2)), ("c", "BYTES", (-1,))])


def bound(body: Any, to: Target) -> Inference:
    inference, draft = examples.parse_json("m", "", json.dumps(body).encode())
    return draft.bind(to, inference)


def tensors(inference: Inference, to: Target) -> dict[str, tuple[str, list[int], bytes]]:
    to.check(inference.inputs, ())
    return {given.name: (given.datatype, list(given.shape), bytes(given.data)) for given in inference.inputs}


def test_features_become_the_inputs_of_their_names_in_either_form() -> None:
    expected = {
        "a": ("INT32", [1], struct.pack("<i", 3)),
        "b": ("FP64", [1, 2], struct.pack("<2d", 1, 2)),
        "c": ("BYTES", [1], encode_bytes([b"t"])),
    }
    request = service_pb.ClassificationRequest.FromString(bytes.fromhex(CLASSIFY))
    empty = Inference("m", "", "", {}, (), (), 0)

    assert tensors(bound({"examples": [{"a": 3, "b": [1, 2.0], "c": "t"}]}, ABC), ABC) == expected
    assert tensors(bound({"examples": [{"a": [3], "b": [1, 2], "c": {"b64": "dA=="}}]}, ABC), ABC) == expected
    assert tensors(examples.from_input(request.input).bind(ABC, empty), ABC) == expected


def test_a_context_is_part_of_every_example() -> None:
    pair = target([("a", "FP32", (-1, 1)), ("b", "FP32", (-1,))])
    request = service_pb.RegressionRequest.FromString(bytes.fromhex(WITH_CONTEXT))

    found = tensors(examples.from_input(request.input).bind(pair, Inference("m", "", "", {}, (), (), 0)), pair)

    assert found == {"a": ("FP32", [1, 1], struct.pack("<f", 1)), "b": ("FP32", [1], struct.pack("<f", 2))}
    body = {"context": {"a": 1.0}, "examples": [{"b": 2.0}, {"b": 3.0, "a": 4.0}]}
    assert tensors(bound(body, pair), pair)["a"] == ("FP32", [2, 1], struct.pack("<2f", 1, 4))


def test_a_feature_is_flat_and_fills_what_its_input_is() -> None:
    image = target([("x", "FP32", (-1, 2, -1))])

    assert tensors(bound({"examples": [{"x": [1, 2, 3, 4, 5, 6]}]}, image), image)["x"][1] == [1, 2, 3]


def test_a_model_that_parses_examples_itself_gets_them() -> None:
    parser = target([("inputs", "BYTES", (-1,))])

    inference = bound({"examples": [{"a": 3, "b": [1.0, 2.0], "c": "t"}, {"a": 4}]}, parser)

    given = inference.inputs[0]
    first, second = decode_bytes(given.data)
    assert (given.name, list(given.shape)) == ("inputs", [2])
    assert pb.Example.FromString(first) == pb.Example.FromString(bytes.fromhex(EXAMPLE))
    assert pb.Example.FromString(second).features.feature["a"].int64_list.value == [4]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "'examples' takes a list of at least one object"),
        ({"examples": []}, "'examples' takes a list of at least one object"),
        ({"examples": [3]}, "examples[0] is not an object of features"),
        ({"context": 3, "examples": [{"a": 1}]}, "context is not an object of features"),
        ({"examples": [{"a": 1, "b": [1, 2], "c": "t"}, {"a": 1}]}, "examples[1] has no feature 'b'"),
        ({"examples": [{"b": [1, 2]}, {"b": [1]}]}, "feature 'b' has 1 values in examples[1], 2 in examples[0]"),
        ({"examples": [{"a": 1.5, "b": [1, 2], "c": "t"}]}, "feature 'a': INT32 takes whole numbers"),
        ({"examples": [{"z": 1}]}, "model m has no input 'z'"),
        ({"examples": [{"b": [1, 2, 3]}]}, "input 'b' of model m has shape [-1, 2] (-1 = any), not [1, 3]"),
    ],
)
def test_wrong_examples_are_refused_with_what_would_be_right(body: Any, says: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        tensors(bound(body, ABC), ABC)

    assert says in str(refused.value)


def test_an_input_without_examples_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="neither example_list nor"):
        examples.from_input(pb.Input())
    with pytest.raises(InvalidRequestError, match=r"input\.example_list has no examples"):
        examples.from_input(pb.Input(example_list=pb.ExampleList()))


def test_a_feature_of_mixed_kinds_is_none() -> None:
    parser = target([("inputs", "BYTES", (-1,))])

    with pytest.raises(InvalidRequestError, match="feature 'a': BYTES takes text"):
        bound({"examples": [{"a": [1, "t"]}]}, parser)
    with pytest.raises(InvalidRequestError, match="feature 'a'"):
        bound({"examples": [{"a": 2**63}]}, parser)


@pytest.mark.parametrize("context", [{"a": list(range(3000))}, {"a": "x" * 30_000}, {f"a{n}": [] for n in range(2000)}])
def test_a_context_that_is_small_once_and_large_in_every_example_is_refused(context: Any) -> None:
    body = json.dumps({"context": context, "examples": [{}] * 4000}).encode()

    with pytest.raises(InvalidRequestError, match="as part of 4000 examples, over 67108864"):
        examples.parse_json("m", "", body)


def test_the_same_for_contexts_in_protobuf() -> None:
    value = pb.Feature(float_list=pb.FloatList(value=[1.0] * 3000))
    context = pb.Example(features=pb.Features(feature={"a": value}))
    listed = pb.ExampleListWithContext(examples=[pb.Example()] * 4000, context=context)

    with pytest.raises(InvalidRequestError, match="as part of 4000 examples, over 67108864"):
        examples.from_input(pb.Input(example_list_with_context=listed))
