from collections import Counter

from services.cli.models import Row, rows_of
from services.core.model_spec import ModelSpec
from services.core.names import ModelVersion
from services.core.registry import InventoryVersion
from services.core.route_spec import RouteSpec

READY = InventoryVersion(state="READY")
ROUTE = RouteSpec.model_validate({"stable": "1", "canary": {"2": 10}, "shadow": {"3": 50}, "labels": {"best": "1"}})


def test_every_version_says_what_it_gets_and_whether_it_can() -> None:
    known = {
        ModelVersion("digits", "1"): InventoryVersion(state="READY", digest="abc"),
        ModelVersion("digits", "10"): InventoryVersion(state="UNAVAILABLE", reason="no file"),
    }

    rows = rows_of({"digits": ModelSpec()}, {"digits": ROUTE}, known, Counter({ModelVersion("digits", "1"): 2}))

    assert rows == [
        Row("digits", "1", "ready", 2, "stable 90%, label best", "abc", ""),
        Row("digits", "2", "in no pod", 0, "canary 10%", "", ""),
        Row("digits", "3", "in no pod", 0, "shadow 50%", "", ""),
        Row("digits", "10", "unavailable", 0, "", "", "no file"),
    ]


def test_without_a_route_the_default_version_gets_all() -> None:
    assert rows_of({"m": ModelSpec(default_version="4")}, {}, {}, Counter())[0].share == "default, 100%"


def test_a_model_without_versions_is_listed() -> None:
    assert rows_of({"m": ModelSpec()}, {}, {}, Counter())[0].reason == "no version of it is known"


def test_a_value_that_is_not_valid_does_not_hide_the_model() -> None:
    assert [row.model for row in rows_of({"m": None}, {"m": None}, {}, Counter())] == ["m"]


def test_a_route_that_is_refused_is_not_told_as_none() -> None:
    rows = rows_of({"m": ModelSpec(default_version="4")}, {"m": None}, {ModelVersion("m", "4"): READY}, Counter())
    assert [row.share for row in rows] == ["route refused"]
