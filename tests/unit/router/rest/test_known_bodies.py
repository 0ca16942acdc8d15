from types import SimpleNamespace
from typing import Any

import orjson

from services.router.rest.codec import NO_WISHES
from services.router.rest.known_bodies import KnownBodies
from services.router.rest.raw import RawTensors, raw_inference
from tests.support.targets import target


def read(bodies: KnownBodies, name: str, shape: list[int]) -> bool:
    """Whether the body was known."""
    flight: Any = SimpleNamespace(template=None, data=b"")
    call: Any = SimpleNamespace(wishes=NO_WISHES)
    body = orjson.dumps({"inputs": [{"name": name, "datatype": "FP32", "shape": shape, "data": [1.5]}]})
    bodies.read_json("m", "", body, call, flight)
    return flight.template is not None


def test_a_form_is_known_the_second_time_unless_it_is_a_long_one() -> None:
    bodies = KnownBodies()

    assert [read(bodies, "x", [1, 1]) for _ in range(2)] == [False, True]
    assert [read(bodies, "x" * 257, [1, 1]) for _ in range(2)] == [False, False]
    assert [read(bodies, "x", [1] * 33) for _ in range(2)] == [False, False]


def test_a_body_that_is_one_tensor_keeps_the_version_that_it_names() -> None:
    known, served = RawTensors(), target([("x", "FP32", (-1, 2))])

    named = [
        known.template(served, raw_inference("m", version, 8), bytes(8)).inference.version
        for version in ("1", "", "1", "stable")
    ]

    assert named == ["1", "", "1", "stable"]
