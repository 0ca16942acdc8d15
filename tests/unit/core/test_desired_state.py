"""What load and unload make of a spec, and what pods say of it."""

import json
from typing import Any

import pytest

from services.core.desired_state import index, judge_load, judge_unload, loaded, ready_only, unloaded
from services.core.model_spec import ModelSpec
from services.core.registry import Inventory
from services.core.spec import BadValueError

READY = {"state": "READY"}
UNASKED = {"state": "UNAVAILABLE", "reason": "unloaded"}


def spec(**fields: Any) -> ModelSpec:
    return ModelSpec.parse(json.dumps(fields).encode())


def pod(versions: dict[str, Any], *, seen: int = 7, pool: str = "default", fault: str = "") -> Inventory:
    faults = {"m": fault} if fault else {}
    return Inventory.model_validate({"pool": pool, "models": {"m": versions}, "specs": {"m": seen}, "faults": faults})


def judged(*pods: Inventory) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What it waits for, and what failed."""
    verdict = judge_load({f"pod-{number}": each for number, each in enumerate(pods)}, "m", "default", 7)
    return verdict.waits, verdict.failed


def test_a_first_load_makes_a_spec_of_what_it_is_given() -> None:
    assert loaded(None, {"trusted": True, "batching": {"slots": 3}}) == spec(trusted=True, batching={"slots": 3})


def test_a_load_keeps_what_it_does_not_name_and_loads_anew() -> None:
    before = spec(trusted=True, batching={"slots": 3, "max_batch_size": 8}, version_policy={"latest": 2}, loaded=False)

    after = loaded(before, {"batching": {"slots": 5}, "version_policy": {"specific": ["4"]}})

    assert after == spec(
        trusted=True, batching={"slots": 5, "max_batch_size": 8}, version_policy={"specific": ["4"]}, loads=1
    )
    assert loaded(after, {}).loads == 2
    assert loaded(after, {"instances": {"count": 2}}).loads == 1
    assert loaded(unloaded(after), {"instances": {"count": 2}}).loads == 2


def test_an_unload_keeps_all_else() -> None:
    before = spec(trusted=True, versions={"2": {"doubles": True}})

    assert loaded(unloaded(before), {}) == before.model_copy(update={"loads": 1})


@pytest.mark.parametrize(
    ("overrides", "fault"),
    [
        ({"no_such": 1}, "no_such: unknown field"),
        ({"batching": {"slots": "many"}}, "batching.slots"),
        ({"versions": {"2": {"loaded": False}}}, "versions.2: cannot override loaded"),
    ],
)
def test_what_is_no_spec_is_refused_by_the_fields_name(overrides: dict[str, Any], fault: str) -> None:
    with pytest.raises(BadValueError, match=fault):
        loaded(spec(), overrides)


@pytest.mark.parametrize(
    ("pods", "waits", "failed"),
    [
        ([], 0, 0),
        ([pod({"1": READY, "2": UNASKED})], 0, 0),
        ([pod({"1": READY}), pod({"1": {"state": "LOADING"}})], 1, 0),
        ([pod({"1": READY}, seen=6)], 1, 0),
        ([pod({"1": {"state": "LOADING", "failures": 2, "reason": "no"}})], 1, 0),
        ([pod({"1": {"state": "LOADING", "failures": 3, "reason": "no"}})], 0, 1),
        ([pod({"1": {"state": "UNAVAILABLE", "reason": "no"}}), pod({"1": READY})], 0, 1),
        ([pod({"1": {**READY, "update": "LOADING"}})], 1, 0),
        ([pod({"1": {**READY, "update": "UNAVAILABLE", "reason": "no"}})], 0, 1),
        ([pod({"1": {**READY, "failures": 3}})], 0, 0),
        ([pod({"1": UNASKED})], 0, 1),
        ([pod({}, fault="not mounted")], 0, 1),
        ([pod({"1": READY}, fault="not mounted")], 0, 0),
        ([pod({}, pool="gpu")], 0, 0),
    ],
)
def test_a_load_is_over_when_every_pod_of_its_pool_has_it_or_one_cannot(
    pods: list[Inventory], waits: int, failed: int
) -> None:
    said = judged(*pods)

    assert (len(said[0]), len(said[1])) == (waits, failed)


def test_who_waits_and_why_is_said() -> None:
    loading = pod({"1": {"state": "LOADING", "reason": "waits for memory"}})

    assert judged(loading, pod({}, seen=6), pod({}, fault="not mounted")) == (
        ("pod-1 has not seen it yet", "pod-0: version 1: waits for memory"),
        ("pod-2: not mounted",),
    )


@pytest.mark.parametrize(
    ("versions", "seen", "is_over"),
    [
        ({"1": UNASKED}, 7, True),
        ({"1": {"state": "UNAVAILABLE", "reason": "corrupt"}}, 7, True),
        ({}, 7, True),
        ({"1": UNASKED}, 6, False),
        ({"1": READY}, 7, False),
        ({"1": {"state": "UNLOADING"}}, 7, False),
    ],
)
def test_an_unload_is_over_when_no_pod_holds_anything(versions: dict[str, Any], seen: int, *, is_over: bool) -> None:
    assert judge_unload({"pod": pod(versions, seen=seen)}, "m", "default", 7).is_over is is_over


def test_a_version_that_a_load_names_must_be_there() -> None:
    pods = {"pod": pod({"1": READY, "2": READY})}

    assert judge_load(pods, "m", "default", 7, ["2"]).failed == ()
    assert judge_load(pods, "m", "default", 7, ["2", "9"]).failed == ("pod: version 9: not in the repository",)
    assert judge_load({"pod": pod({"1": READY}, fault="is away")}, "m", "default", 7, ["9"]).failed == (
        "pod: version 9: is away",
    )


def test_the_index_says_what_of_a_model_is_not_done_once() -> None:
    noted = pod({"1": READY, "2": UNASKED}, fault="no answer").model_copy(update={"notes": {"m": ("no caching",)}})

    rows = index(["m"], {"a": noted, "b": noted})

    assert {row.notes for row in rows} == {("no caching", "the last known versions are shown: no answer")}


def test_a_pod_that_has_just_started_is_waited_for() -> None:
    assert judge_load({"pod": None}, "m", "default", 7).waits == ("pod has said nothing yet",)
    assert not judge_unload({"pod": None}, "m", "default", 7).is_over


def test_the_index_has_the_best_state_of_any_pod_and_says_what_the_others_lack() -> None:
    broken = {"state": "UNAVAILABLE", "reason": "corrupt"}
    rows = index(["m", "other"], {"a": pod({"10": READY, "9": UNASKED, "2": broken}), "b": pod({"10": broken})})

    assert [row[:-1] for row in rows] == [
        ("m", "2", "UNAVAILABLE", "corrupt", 0, 1),
        ("m", "9", "UNAVAILABLE", "unloaded", 0, 1),
        ("m", "10", "READY", "b: corrupt", 1, 2),
        ("other", "", "UNAVAILABLE", "no pod knows a version of it", 0, 0),
    ]
    assert [row.version for row in ready_only(rows)] == ["10"]
