"""Which versions a pod holds."""

import pytest

from services.core.model_spec import ModelSpec
from services.core.names import ModelVersion
from services.core.route_spec import RouteSpec
from services.runtime.wanted import Progress, may_release, remember, stable_of, wanted

AVAILABLE = ["1", "2", "9", "10"]
FULL_ROUTE = {
    "stable": "1",
    "canary": {"2": 10},
    "shadow": {"3": 1},
    "labels": {"best": "4"},
    "pins": {"k": "5"},
    "match": [{"header": "h", "equals": "v", "version": "6"}],
    "fallback": {"version": "7"},
}


@pytest.mark.parametrize(
    ("spec", "route", "previous", "expected"),
    [
        ({}, None, [], {"10"}),
        ({"version_policy": {"latest": 2}}, None, [], {"9", "10"}),
        ({"version_policy": {"all": True}}, None, [], {"1", "2", "9", "10"}),
        ({"version_policy": {"specific": ["2", "77"]}}, None, [], {"2"}),
        ({"default_version": "1"}, None, [], {"1", "10"}),
        ({}, {"stable": "1"}, [], {"1", "10"}),
        ({}, {"stable": "42"}, [], {"42", "10"}),
        ({}, FULL_ROUTE, [], {"1", "2", "3", "4", "5", "6", "7", "10"}),
        ({}, None, ["9", "2"], {"10", "9"}),
        ({"keep_previous": 0}, None, ["9", "2"], {"10"}),
        ({"keep_previous": 2}, None, ["10", "9", "2", "1"], {"10", "9", "2"}),
        ({"placement": {"pool": "gpu"}}, {"stable": "1"}, ["2"], set()),
        ({"loaded": False, "default_version": "1", "keep_previous": 2}, {"stable": "1"}, ["2"], set()),
    ],
)
def test_wanted_is_policy_and_named_and_default_and_kept(
    spec: dict, route: dict | None, previous: list[str], expected: set[str]
) -> None:
    routes = {"m": RouteSpec.model_validate(route)} if route else {}

    goal = wanted({"m": ModelSpec.model_validate(spec)}, routes, {"m": AVAILABLE}, {"m": previous}, "default")

    assert goal == {ModelVersion("m", version) for version in expected}


def test_a_route_without_a_model_asks_for_nothing() -> None:
    assert wanted({}, {"m": RouteSpec(stable="1")}, {"m": ["1"]}, {}, "default") == set()


@pytest.mark.parametrize(
    ("previous", "before", "asked", "expected"),
    [
        ([], {"1"}, {"1"}, []),
        ([], {"1"}, {"2"}, ["1"]),
        (["1"], {"2"}, {"3"}, ["2", "1"]),
        (["2", "1"], {"3"}, {"2"}, ["3", "1"]),
        (["1"], {"9", "10"}, {"3"}, ["10", "9", "1"]),
        (["1"], {"1", "2"}, set(), ["2", "1"]),
    ],
)
def test_what_was_dropped_last_is_kept_first(
    previous: list[str], before: set[str], asked: set[str], expected: list[str]
) -> None:
    assert remember(previous, before, asked) == expected


def test_memory_of_dropped_versions_is_bounded() -> None:
    previous: list[str] = []
    for version in range(100):
        previous = remember(previous, {str(version)}, {str(version + 1)})

    assert previous == [str(version) for version in range(99, 83, -1)]


READY, PENDING, FAILED = Progress.READY, Progress.PENDING, Progress.FAILED


@pytest.mark.parametrize(
    ("stable", "progress", "expected"),
    [
        ("2", {"2": READY}, True),
        ("2", {"2": PENDING}, False),
        ("2", {"2": FAILED}, False),
        ("2", {"2": READY, "3": PENDING}, False),
        ("2", {"2": READY, "3": FAILED}, True),
        ("2", {"3": READY}, False),
        (None, {"3": READY}, True),
        (None, {"3": FAILED}, False),
        (None, {"3": FAILED, "4": READY}, True),
        (None, {}, True),
    ],
)
def test_nothing_is_let_go_before_what_replaces_it_is_ready(
    stable: str | None, progress: dict[str, Progress], *, expected: bool
) -> None:
    assert may_release(stable, progress) is expected


def test_a_route_names_the_stable_version_before_the_default_does() -> None:
    spec = ModelSpec(default_version="1")

    assert stable_of(spec, RouteSpec(stable="2")) == "2"
    assert stable_of(spec, None) == "1"
    assert stable_of(ModelSpec(), None) is None
