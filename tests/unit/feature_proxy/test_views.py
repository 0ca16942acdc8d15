import json
from typing import Any

import pytest

from services.chassis.etcd import Change
from services.core.errors import PreconditionError, UnavailableError
from services.core.registry import ConfigStatus
from services.feature_proxy.views import Views

GOOD: dict[str, Any] = {"store": "memory://m", "entity": "id", "columns": [{"name": "x"}]}


def put(name: str, revision: int, **fields: Any) -> Change:
    return Change(f"feature_views/{name}", json.dumps({**GOOD, **fields}).encode(), revision)


def loaded(*changes: Change) -> Views:
    views = Views()
    views.loaded = True
    views.apply(changes)
    return views


def test_before_anything_is_loaded_a_view_is_unavailable_and_afterwards_unknown() -> None:
    views = Views()

    with pytest.raises(UnavailableError, match="not loaded yet"):
        views.get("v")
    views.loaded = True
    with pytest.raises(PreconditionError, match="there is no feature view 'v'; known are none"):
        views.get("v")


def test_a_change_takes_effect_and_a_delete_too() -> None:
    views = loaded(put("v", 1), put("w", 1, version=4), put("v", 2, version=2))

    assert views.get("v").spec.version == 2
    views.apply([Change("feature_views/v", None, 3)])
    with pytest.raises(PreconditionError, match="known are w"):
        views.get("v")
    assert views.status() == ConfigStatus(revision=3, accepted={"feature_views/w": 1})


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"columns": []}, "columns: "),
        ({"tttl_s": 1}, "tttl_s: unknown field"),
        ({"store": "mysql://h/db"}, "store: "),
        ({"store": "sqlite://relative.db"}, "store: expected sqlite:///PATH"),
        ({"columns": [{"name": "x", "datatype": "UINT8", "default": 300}]}, "columns: x: default 300 is no UINT8"),
    ],
)
def test_a_bad_value_leaves_the_last_good_one_and_is_said(fields: dict[str, Any], reason: str) -> None:
    views = loaded(put("v", 1, version=1), put("v", 2, **fields))

    assert views.get("v").spec.version == 1
    status = views.status()
    assert status.accepted == {"feature_views/v": 1}
    assert status.refused["feature_views/v"].startswith(reason)


def test_not_json_is_refused_and_a_good_value_ends_the_refusal() -> None:
    views = loaded(Change("feature_views/v", b"{", 1))

    with pytest.raises(PreconditionError, match="feature view v has no valid value: not JSON"):
        views.get("v")
    views.apply([put("v", 2)])

    assert views.get("v").name == "v"
    assert views.refused() == {}


def test_a_refused_value_without_a_good_predecessor_takes_an_earlier_one() -> None:
    views = loaded(Change("feature_views/v", b"{", 9), put("w", 9))

    wanting = views.without_good_value()
    outcomes = [views.recover("v", b"[]", 8, 9), views.recover("v", put("v", 7).value or b"", 7, 9)]

    assert (wanting, outcomes) == ([("v", 9)], [False, True])
    assert views.get("v").name == "v"
    assert views.status().accepted == {"feature_views/v": 7, "feature_views/w": 9}
    assert list(views.refused()) == ["v"]


def test_a_recovery_that_the_operator_overtook_changes_nothing() -> None:
    views = loaded(Change("feature_views/v", b"{", 9), put("v", 10, version=5))

    assert views.recover("v", put("v", 7).value or b"", 7, 9)
    assert views.get("v").spec.version == 5


def test_a_key_that_is_no_name_is_refused_and_breaks_nothing() -> None:
    odd = b"feature_views/\xff/x".decode(errors="surrogateescape")
    views = loaded(Change(odd, json.dumps(GOOD).encode(), 1), put("v", 1))

    assert views.names() == {"v"}
    assert json.loads(views.status().dump())["refused"]
    assert views.without_good_value() == []
    views.apply([Change(odd, None, 2)])
    assert views.refused() == {}


def test_other_keys_are_not_for_us_and_stores_are_those_in_use() -> None:
    views = loaded(put("v", 1), Change("models/v", b"{}", 2), put("w", 3, store="memory://other"))

    assert views.stores() == {"memory://m", "memory://other"}
    assert views.names() == {"v", "w"}
