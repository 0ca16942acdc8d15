import json
from typing import Any

import pytest

from services.core import api_key
from services.core.caller_spec import CallerSpec
from services.core.spec import BadValueError

ID = "abcdefgh23456777"
HMAC = "0" * 64
WHOLE: dict[str, Any] = {
    "keys": {ID: {"hmac_sha256": HMAC, "created": "2026-01-01T00:00:00Z", "expires": "2027-01-01T00:00:00Z"}},
    "tokens": [{"subject": "svc-shop", "claims": {"groups": "shop"}}],
    "certificates": [{"subject": "CN=shop,O=Acme"}, {"san": "URI:spiffe://acme/shop"}],
    "roles": ["predict", "manage", "read-metrics", "internal"],
    "models": ["digits", "shop-*"],
    "limits": {"requests_per_s": 10, "rows_per_s": 1e6, "burst_s": 2.5, "max_concurrency": 4, "max_priority": 2},
}


def parse(value: dict[str, Any]) -> CallerSpec:
    return CallerSpec.parse(json.dumps(value).encode())


def test_a_whole_caller_is_read_and_written() -> None:
    caller = parse(WHOLE)

    assert CallerSpec.parse(caller.dump()) == caller
    assert (caller.limits.requests_per_s, caller.roles[1], caller.keys[ID].hmac_sha256) == (10, "manage", HMAC)
    assert parse({}).roles == ("predict",)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"role": ["predict"]}, "role: unknown field"),
        ({"roles": ["admin"]}, "roles.0: Input should be 'predict', 'manage', 'read-metrics' or 'internal'"),
        ({"models": ["a/b"]}, "models.0: 'a/b' names no models"),
        ({"tokens": [{}]}, "tokens.0: give a subject or claims"),
        ({"certificates": [{}]}, "certificates.0: give exactly one of"),
        ({"certificates": [{"san": "shop.svc"}]}, "'shop.svc' is no alternative name: write KIND:NAME"),
        ({"limits": {"requests_per_s": 0}}, "limits.requests_per_s: Input should be greater than 0"),
        ({"keys": {ID: {"hmac_sha256": "abc"}}}, f"keys.{ID}.hmac_sha256: String should match pattern"),
    ],
)
def test_what_is_no_caller_is_refused_by_the_name_of_its_field(value: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValueError) as raised:
        parse(value)

    assert message in str(raised.value)


@pytest.mark.parametrize("name", [api_key.make(bytes(42)).text(), "hunter2", ID.upper(), f"tk_{ID}"])
def test_a_secret_in_the_place_of_an_id_is_not_shown(name: str) -> None:
    with pytest.raises(BadValueError) as raised:
        parse({"keys": {name: {"hmac_sha256": HMAC}}})

    assert str(raised.value) == "keys: an ID is the 16 letters and digits between tk_ and the dot, and nothing else"


@pytest.mark.parametrize(
    ("models", "model", "covered"),
    [
        (["*"], "digits", True),
        (["digits"], "digits", True),
        (["digits"], "digits2", False),
        (["shop-*"], "shop-cart", True),
        (["shop-*"], "ashop-cart", False),
        (["v?"], "v1", True),
        (["shop.x"], "shopax", False),
        ([], "digits", False),
    ],
)
def test_names_and_globs_say_which_models_are_meant(models: list[str], model: str, covered: bool) -> None:  # noqa: FBT001
    assert parse({"models": models}).covers(model) is covered


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"keys": 3}', b"\xff", b"[" * 100_000, b'{"keys": [1]}'])
def test_what_is_not_json_of_a_caller_is_a_bad_value(raw: bytes) -> None:
    with pytest.raises(BadValueError):
        CallerSpec.parse(raw)
