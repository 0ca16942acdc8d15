import json
from typing import Any

import pytest

from services.router.desired import Desired

MODEL, ROUTE = "models/digits", "routes/digits"
INVENTORY = "status/runtime/r-1/inventory"


def encoded(value: Any) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else json.dumps(value).encode()


def put(desired: Desired, revision: int, **values: Any) -> None:
    """model=, route=, inventory= (versions): as one message of etcd."""
    keys = {"model": MODEL, "route": ROUTE, "inventory": INVENTORY}
    versions = values.get("inventory")
    if versions is not None:
        values["inventory"] = {"models": {"digits": {version: {"state": "READY"} for version in versions}}}
    desired.apply([(keys[name], encoded(value), revision) for name, value in values.items()])


def test_good_values_take_effect() -> None:
    desired = Desired()
    put(desired, 5, model={"default_version": "2"}, route={"stable": "1", "canary": {"2": 10}})

    assert desired.models["digits"].default_version == "2"
    assert desired.routes["digits"].stable == "1"
    assert (desired.accepted, desired.refused) == ({MODEL: 5, ROUTE: 5}, {})


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"", "not JSON"),
        (b"{]", "not JSON"),
        (b"\xff\xfe\x00", ""),
        (b"9" * 5000, "4300 digits"),
        (b"[" * 100_000, "recursion"),
        (b'"\\ud800"', "not JSON"),
        (b"null", "object"),
        ({}, "stable: Field required"),
        ({"stable": 1}, "stable: "),
        ({"stable": "one"}, "'one' is no version"),
        ({"stable": "1", "canry": {}}, "canry: unknown field"),
        ({"stable": "1", "canary": {"2": 100.5}}, "100.5"),
        ({"stable": "1", "canary": {"2": 60, "3": 60}}, "sum to 120, over 100"),
        (b'{"stable": "1", "canary": {"2": NaN}}', "finite"),
        (b'{"stable": "1", "canary": {"2": 1e999}}', "finite"),
        ({"stable": "1", "labels": {"2": "1"}}, "is no label"),
    ],
)
def test_a_bad_route_keeps_the_last_good_one_and_its_reason_is_named(value: Any, says: str) -> None:
    desired = Desired()
    put(desired, 5, route={"stable": "1"})
    put(desired, 6, route=value)

    assert desired.routes["digits"].stable == "1"
    assert desired.accepted == {ROUTE: 5}
    assert list(desired.refused) == [ROUTE]
    assert says in desired.refused[ROUTE]
    put(desired, 7, route={"stable": "2"})
    assert (desired.accepted, desired.refused, desired.routes["digits"].stable) == ({ROUTE: 7}, {}, "2")


@pytest.mark.parametrize("value", [b"", b"9" * 5000, {"batching": {"max_batch_size": -1}}, {"colour": "red"}])
def test_a_bad_model_keeps_the_last_good_one(value: Any) -> None:
    desired = Desired()
    put(desired, 5, model={"idempotent": False})
    put(desired, 6, model=value)

    assert (desired.models["digits"].idempotent, desired.accepted[MODEL]) == (False, 5)
    assert desired.refused[MODEL]


@pytest.mark.parametrize("name", ["", "-x", "a/b", "a b", "x" * 129, "\udcff"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    desired = Desired()
    desired.apply([(f"models/{name}", b"{}", 5)])

    assert (desired.models, "is no name" in desired.refused[f"models/{name}"]) == ({}, True)


def test_one_bad_key_does_not_touch_the_others_of_its_message() -> None:
    desired = Desired()
    desired.apply([("routes/a", b"{", 5), ("routes/b", b'{"stable": "1"}', 5), ("models/c", b"{}", 5)])

    assert (list(desired.routes), list(desired.models), list(desired.refused)) == (["b"], ["c"], ["routes/a"])


def test_a_version_that_no_pod_knows_is_refused_and_judged_again_when_one_does() -> None:
    desired = Desired()
    put(desired, 4, route={"stable": "1"}, inventory=["1"])
    put(desired, 5, route={"stable": "1", "canary": {"7": 5}})

    assert "no pod knows version 7 of model digits; known are 1" in desired.refused[ROUTE]
    assert desired.accepted[ROUTE] == 4
    put(desired, 6, inventory=["1", "7"])
    assert (desired.refused, desired.accepted[ROUTE]) == ({}, 5)
    assert [canary.version for canary in desired.routes["digits"].canary] == ["7"]


@pytest.mark.parametrize(
    "route",
    [
        {"stable": "7"},
        {"stable": "1", "shadow": {"7": 1}},
        {"stable": "1", "labels": {"best": "7"}},
        {"stable": "1", "pins": {"qa": "7"}},
        {"stable": "1", "match": [{"header": "x", "equals": "1", "version": "7"}]},
        {"stable": "1", "fallback": {"version": "7"}},
    ],
)
def test_every_place_that_names_a_version_is_looked_at(route: dict[str, Any]) -> None:
    desired = Desired()
    put(desired, 5, inventory=["1"], route=route)

    assert "no pod knows version 7" in desired.refused[ROUTE]


def test_with_no_inventory_known_any_version_is_accepted() -> None:
    desired = Desired()
    put(desired, 5, route={"stable": "7"})
    assert desired.routes["digits"].stable == "7"

    put(desired, 6, inventory=["1"])
    assert (desired.routes["digits"].stable, desired.refused) == ("7", {})


def test_an_inventory_that_goes_or_is_odd_is_forgotten() -> None:
    desired = Desired()
    put(desired, 5, inventory=["1"])
    assert desired.known_versions("digits") == {"1"}
    desired.apply([(INVENTORY, b"{", 6)])
    assert desired.known_versions("digits") == set()

    put(desired, 7, inventory=["1", "2"])
    desired.apply([("status/runtime/r-1/previous", b"anything", 8)])
    assert desired.known_versions("digits") == {"1", "2"}
    desired.apply([(INVENTORY, None, 9)])
    assert desired.known_versions("digits") == set()


def test_deletes_take_the_value_and_its_refusal_away() -> None:
    desired = Desired()
    put(desired, 5, model={}, route={"stable": "1"})
    put(desired, 6, route=b"{")
    put(desired, 7, model=None, route=None)

    assert (desired.models, desired.routes, desired.accepted, desired.refused) == ({}, {}, {}, {})
    assert desired.missing() == []
    put(desired, 8, route=None)  # was never there


def test_a_refused_key_without_a_good_value_takes_an_earlier_one() -> None:
    desired = Desired()
    put(desired, 9, route=b"{")
    assert desired.missing() == [(ROUTE, 9)]

    assert not desired.accept_earlier(ROUTE, b"[]", 8)
    assert desired.accept_earlier(ROUTE, b'{"stable": "3"}', 7)

    assert (desired.routes["digits"].stable, desired.accepted, list(desired.refused)) == ("3", {ROUTE: 7}, [ROUTE])
    assert desired.missing() == []
