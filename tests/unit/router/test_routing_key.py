import struct
from collections.abc import Mapping

import pytest

from services.core.signature import Given
from services.core.tensor import encode_bytes
from services.router.inference import Inference, Parameter
from services.router.routing_key import elements, routing_key

INPUTS = [
    Given("id", "INT64", [2], struct.pack("<qq", -7, 1)),
    Given("big", "UINT64", [1], struct.pack("<Q", (1 << 64) - 1)),
    Given("small", "INT8", [1], b"\xff"),
    Given("word", "BYTES", [2], encode_bytes([b"u\0\xff", b"v"])),
    Given("empty", "INT64", [0], b""),
    Given("half", "FP32", [1], struct.pack("<f", 0.5)),
]


def key_of(
    sticky_by: str | None, headers: Mapping[str, str | bytes] = {}, parameters: Mapping[str, Parameter] = {}
) -> bytes:
    inference = Inference("m", "", "", parameters, INPUTS, (), 0)
    return routing_key(sticky_by, headers, inference, lambda: inference.inputs)


def test_the_header_beats_what_the_route_names() -> None:
    assert key_of("user", {"x-routing-key": "ann"}, {"user": "bob"}) == b"ann"
    assert key_of(None, {"x-routing-key": "ann"}) == b"ann"
    assert key_of("user", {"x-routing-key": ""}, {"user": "bob"}) == b"bob"


@pytest.mark.parametrize(
    ("value", "key"),
    [("ann", b"ann"), ("é", b"\xc3\xa9"), (7, b"7"), (-7, b"-7"), ((1 << 64) - 1, b"18446744073709551615")],
)
def test_a_parameter_is_text_as_utf8_or_an_integer_in_decimal(value: Parameter, key: bytes) -> None:
    assert key_of("user", {}, {"user": value}) == key


def test_another_header_may_hold_the_key_under_any_case() -> None:
    assert key_of("header:X-User", {"x-user": "ann"}) == b"ann"
    assert key_of("header:x-user", {"x-user": b"\xff"}) == b"\xff"


def test_an_http_header_of_any_bytes_is_those_bytes() -> None:
    assert key_of(None, {"x-routing-key": b"\xff\xfe".decode(errors="surrogateescape")}) == b"\xff\xfe"


@pytest.mark.parametrize(
    ("name", "key"), [("id", b"-7"), ("big", b"18446744073709551615"), ("small", b"-1"), ("word", b"u\0\xff")]
)
def test_an_inputs_first_element_is_the_key(name: str, key: bytes) -> None:
    assert key_of(f"input:{name}") == key


@pytest.mark.parametrize("sticky_by", [None, "user", "header:x-user", "input:nobody", "input:empty", "input:half"])
def test_where_there_is_no_key_it_is_empty(sticky_by: str | None) -> None:
    assert key_of(sticky_by) == b""


@pytest.mark.parametrize(
    ("name", "expected"),
    [("id", [-7, 1]), ("small", [-1]), ("word", [b"u\0\xff", b"v"]), ("empty", []), ("half", None), ("nobody", None)],
)
def test_all_elements_of_an_input(name: str, expected: list | None) -> None:
    assert elements(name, INPUTS) == expected
