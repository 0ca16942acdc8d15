import json
import random
from collections import Counter
from typing import Any

import pytest

from services.core.errors import NotFoundError, UnavailableError
from services.core.route_spec import RouteSpec
from services.core.split import POINTS, point_of
from services.router.choice import Chooser

ALL = {"1", "2", "3", "4"}
ROUTE = {
    "stable": "1",
    "canary": {"2": 50},
    "labels": {"champion": "3"},
    "pins": {"qa-7": "4"},
    "match": [{"header": "x-beta", "equals": "1", "version": "3"}, {"header": "x-beta", "equals": "2", "version": "4"}],
    "fallback": {"version": "4"},
}


def chooser(route: dict[str, Any] | None = ROUTE, ready: set[str] = ALL, known: set[str] = ALL) -> Chooser:
    spec = RouteSpec.parse(json.dumps(route).encode()) if route else None
    return Chooser("digits", spec, "1", known, ready)


def key_at(low: float, high: float, salt: str = "digits") -> bytes:
    """A key whose point lies within those percents."""
    numbers = (f"k{number}".encode() for number in range(10_000))
    return next(key for key in numbers if low <= point_of(salt, key) * 100 / POINTS < high)


IN_CANARY, IN_STABLE = key_at(0, 50), key_at(50, 100)


@pytest.mark.parametrize(
    ("explicit", "key", "headers", "expected"),
    [
        ("2", b"qa-7", {"x-beta": "1"}, ("2", "explicit")),
        ("champion", b"qa-7", {"x-beta": "1"}, ("3", "explicit")),
        ("", b"qa-7", {"x-beta": "1"}, ("4", "pin")),
        ("", IN_CANARY, {"x-beta": "1"}, ("3", "match")),
        ("", IN_STABLE, {"x-beta": "2"}, ("4", "match")),
        ("", IN_STABLE, {"x-beta": "3"}, ("1", "stable")),
        ("", IN_CANARY, {}, ("2", "canary")),
        ("", IN_STABLE, {}, ("1", "stable")),
    ],
)
def test_explicit_beats_pin_beats_match_beats_split(
    explicit: str, key: bytes, headers: dict[str, str], expected: tuple[str, str]
) -> None:
    assert tuple(chooser().choose(explicit, key, headers)) == expected


def test_without_a_key_the_split_is_random_and_of_the_right_size() -> None:
    random.seed(7)
    chosen = Counter(chooser().choose("", b"", {}).version for _ in range(2000))

    assert 900 < chosen["2"] < 1100


@pytest.mark.parametrize(("percent", "version"), [(0, "1"), (100, "2")])
def test_a_canary_of_nothing_gets_nobody_and_of_all_everybody(percent: float, version: str) -> None:
    split = chooser({"stable": "1", "canary": {"2": percent}})

    assert {split.choose("", key, {}).version for key in (b"", *(f"k{n}".encode() for n in range(500)))} == {version}


def test_the_salt_is_the_models_name_unless_the_route_has_one() -> None:
    route = {"stable": "1", "canary": {"2": 10}}
    key = next(
        key
        for key in (f"k{n}".encode() for n in range(10_000))
        if point_of("digits", key) < 100_000 <= point_of("ctr", key)
    )

    assert chooser(route).choose("", key, {}).version == "2"
    assert chooser({**route, "salt": "ctr"}).choose("", key, {}).version == "1"


def test_an_unready_canary_leaves_its_users_to_stable_and_is_said_to_be_unready() -> None:
    split = chooser(ready={"1", "4"})

    assert tuple(split.choose("", IN_CANARY, {})) == ("1", "stable")
    assert (split.unready, chooser().unready) == ({"2"}, set())


def test_an_unready_stable_falls_back() -> None:
    split = chooser(ready={"2", "4"})

    assert tuple(split.choose("", IN_STABLE, {})) == ("4", "fallback")
    assert tuple(split.choose("", IN_CANARY, {})) == ("2", "canary")
    assert (split.has_stable(), chooser().has_stable()) == (False, True)


@pytest.mark.parametrize("ready", [set(), {"2"}])
def test_without_stable_and_fallback_nobody_serves_and_never_the_canary(ready: set[str]) -> None:
    with pytest.raises(UnavailableError, match="stable version 1 has no ready replica; ready are: "):
        chooser(ready=ready).choose("", IN_STABLE, {})


@pytest.mark.parametrize(
    ("key", "headers", "why"), [(b"qa-7", {}, "pinned"), (b"", {"x-beta": "1"}, "matched by x-beta")]
)
def test_a_pin_or_match_to_an_unready_version_is_unavailable(key: bytes, headers: dict[str, str], why: str) -> None:
    with pytest.raises(UnavailableError, match=f"version . \\({why}\\) has no ready replica; ready are: 1"):
        chooser(ready={"1"}).choose("", key, headers)


@pytest.mark.parametrize(
    ("explicit", "error", "says"),
    [
        ("9", NotFoundError, "has no version 9; its versions are 1, 2, 3, 4, 10"),
        ("best", NotFoundError, "has no version or label 'best'; its labels are champion"),
        ("01", NotFoundError, "has no version or label '01'"),
        ("2", UnavailableError, "version 2 \\(asked for\\) has no ready replica; ready are: 1"),
    ],
)
def test_a_named_version_is_served_or_refused_by_name(explicit: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        chooser(ready={"1"}, known={*ALL, "10"}).choose(explicit, IN_CANARY, {})


def test_a_ready_version_that_no_inventory_knows_may_be_named() -> None:
    assert chooser(ready={"7"}, known=set()).choose("7", b"", {}).version == "7"


def test_without_a_route_the_default_serves() -> None:
    assert tuple(chooser(None).choose("", b"qa-7", {})) == ("1", "stable")
    with pytest.raises(UnavailableError, match="no route, no default_version and no ready version yet"):
        Chooser("digits", None, None, set(), set()).choose("", b"", {})
