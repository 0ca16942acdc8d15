import json
import struct
from typing import Any

import pytest

from services.core.errors import InvalidRequestError, PreconditionError, UnavailableError
from services.core.model_spec import ModelSpec
from services.core.signature import Given
from services.core.tensor import encode_bytes
from services.router.features import Features
from services.router.flight import Flight
from services.router.inference import Inference, Parameter
from services.router.table import Target
from tests.support.puppets import X, floats, signature
from turnout.v1 import feature_pb2, link_pb2

HELLO = link_pb2.Hello(service="router", instance="r", protocol=1)
USE = {"view": "users", "entity": "user_id", "input": "ages"}


def features() -> Features:
    return Features(HELLO, "host", lambda: 0)


def flight(
    rows: int = 1,
    *,
    uses: tuple[dict[str, Any], ...] = (USE,),
    parameters: dict[str, Parameter] | None = None,
    headers: dict[str, str] | None = None,
    inputs: tuple[Given, ...] = (),
    ages: tuple[str, str, tuple[int, ...]] = ("ages", "FP32", (-1, 3)),
) -> Flight:
    spec = ModelSpec.parse(json.dumps({"features": uses}).encode())
    served = link_pb2.Served(model="m", version="1", signature=signature([X, ages, ("tags", "INT64", (-1,))]))
    one = Flight(None, None, 0, headers or {}, 0)  # type: ignore[arg-type]
    one.target = Target(served, spec)
    one.inference = Inference("m", "", "r-1", parameters or {}, inputs, (), 100)
    one.rows = rows
    one.deadline_ns = 5_000_000
    return one


def column(name: str, shape: list[int], data: bytes, datatype: str = "FP32") -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


def answer(*views: list[dict[str, Any]]) -> feature_pb2.FeatureAnswer:
    return feature_pb2.FeatureAnswer(views=[{"view": "users", "columns": columns} for columns in views])


def test_columns_are_joined_side_by_side_in_order() -> None:
    view = [column("a", [2], floats(1, 2)), column("b", [2, 2], floats(10, 11, 20, 21))]

    (tensor,) = features().fill(flight(2), answer(view))

    assert (tensor.name, tensor.datatype, list(tensor.shape)) == ("ages", "FP32", [2, 3])
    assert tensor.data == floats(1, 10, 11, 2, 20, 21)


def test_one_row_is_joined_likewise() -> None:
    view = [column("a", [1], floats(1)), column("b", [1, 2], floats(10, 11))]

    (tensor,) = features().fill(flight(1), answer(view))

    assert (list(tensor.shape), tensor.data) == ([1, 3], floats(1, 10, 11))


def test_no_rows_are_a_tensor_of_no_rows() -> None:
    view = [column("a", [0], b""), column("b", [0, 2], b"")]

    (tensor,) = features().fill(flight(0), answer(view))

    assert (list(tensor.shape), tensor.data) == ([0, 3], b"")


def test_several_views_fill_several_inputs_also_flat_ones() -> None:
    uses = (USE, {"view": "tags", "entity": "header:x-user", "input": "tags"})
    views = [column("a", [2, 3], floats(*range(6)))], [column("t", [2], struct.pack("<qq", 7, 8), "INT64")]

    ages, tags = features().fill(flight(2, uses=uses), answer(*views))

    assert (list(ages.shape), list(tags.shape), tags.data) == ([2, 3], [2], struct.pack("<qq", 7, 8))


@pytest.mark.parametrize(
    ("one", "given", "says"),
    [
        (flight(), answer(), "1 feature views were asked for, 0 answered"),
        (flight(), answer([column("a", [1], floats(1))]), "gives 1 values a row, input 'ages' of model m has shape"),
        (flight(), answer([]), "gives 0 values a row"),
        (flight(), answer([column("a", [1, 3], bytes(24), "FP64")]), "column 'a' .* is FP64, input 'ages' .* is FP32"),
        (flight(2), answer([column("a", [1, 3], bytes(12))]), r"has shape \[1, 3\] for 2 rows"),
        (flight(), answer([column("a", [], bytes(12))]), r"has shape \[\] for 1 rows"),
        (
            flight(uses=({**USE, "input": "nobody"},)),
            answer([column("a", [1, 3], bytes(12))]),
            "fills input 'nobody', which m lacks",
        ),
        (flight(ages=("ages", "FP32", (-1, 1, 3))), answer([column("a", [1, 3], bytes(12))]), "has shape"),
    ],
)
def test_what_does_not_fit_the_signature_is_a_precondition(
    one: Flight, given: feature_pb2.FeatureAnswer, says: str
) -> None:
    with pytest.raises(PreconditionError, match=says):
        features().fill(one, given)


class Wire:
    """A link whose frames stay here."""

    queued_bytes = 0

    def __init__(self) -> None:
        self.peer = link_pb2.Hello(service="feature_proxy", instance="p")
        self.frame = link_pb2.Frame()

    def frame_for(self, _size_bytes: int) -> link_pb2.Frame:
        return self.frame


def asked(one: Flight) -> list[Any]:
    """The keys that the proxy is asked for."""
    wire, looking = Wire(), features()
    looking.opened(wire)  # type: ignore[arg-type]
    looking.look_up(one)
    lookup = wire.frame.lookups[0]
    assert (lookup.deadline_us, lookup.request_id) == (5000, "r-1")
    return [getattr(key, key.WhichOneof("value")) for key in lookup.views[0].entities]


BY_INPUT = {**USE, "entity": "input:id"}


@pytest.mark.parametrize(
    ("one", "keys"),
    [
        (flight(2, parameters={"user_id": 8}), [8, 8]),
        (flight(1, parameters={"user_id": "ann"}), ["ann"]),
        (flight(1, uses=({**USE, "entity": "header:X-User"},), headers={"x-user": "ann"}), ["ann"]),
        (flight(2, uses=(BY_INPUT,), inputs=(Given("id", "INT32", [2], struct.pack("<ii", -1, 2)),)), [-1, 2]),
        (
            flight(2, uses=(BY_INPUT,), inputs=(Given("id", "BYTES", [2], encode_bytes([b"a", b"\xff"])),)),
            [b"a", b"\xff"],
        ),
    ],
)
def test_there_is_one_key_a_row(one: Flight, keys: list[Any]) -> None:
    assert asked(one) == keys


@pytest.mark.parametrize(
    ("one", "says"),
    [
        (flight(), "looks features up by request parameter 'user_id': send it"),
        (flight(parameters={"user_id": 1.5}), "parameter 'user_id' is 1.5; an entity key is text or a whole number"),
        (flight(parameters={"user_id": True}), "is text or a number"),
        (flight(parameters={"user_id": 1 << 63}), "a number of 64 bits"),
        (flight(parameters={"user_id": "\udcff"}), "UTF-8 text"),
        (flight(uses=({**USE, "entity": "header:x-user"},)), "by header 'x-user': send it"),
        (flight(uses=(BY_INPUT,)), "by input 'id' \\(integers or BYTES\\): send it"),
        (flight(uses=(BY_INPUT,), inputs=(Given("id", "FP32", [1], floats(1)),)), "integers or BYTES"),
    ],
)
def test_a_key_that_is_missing_or_odd_is_the_callers_fault(one: Flight, says: str) -> None:
    with pytest.raises(InvalidRequestError, match=says):
        asked(one)


def test_without_a_proxy_features_are_unavailable() -> None:
    with pytest.raises(UnavailableError, match="no feature proxy is connected"):
        features().look_up(flight(parameters={"user_id": 1}))


def test_proxies_take_turns_and_one_that_is_full_is_left_out() -> None:
    looking, wires = features(), [Wire(), Wire(), Wire()]
    for number, wire in enumerate(wires):
        wire.peer.instance = f"p-{number}"
        looking.opened(wire)  # type: ignore[arg-type]
    wires[2].queued_bytes = 64 << 20
    for _ in range(10):
        looking.look_up(flight(parameters={"user_id": 1}))

    assert [len(wire.frame.lookups) for wire in wires] == [5, 5, 0]


def test_a_cancel_is_told_to_the_proxy_once() -> None:
    looking, wire, one = features(), Wire(), flight(parameters={"user_id": 1})
    looking.opened(wire)  # type: ignore[arg-type]
    looking.look_up(one)
    looking.cancel(one)
    looking.cancel(one)

    assert list(wire.frame.cancels) == [wire.frame.lookups[0].id]
