"""What operators want, as etcd says it."""

from services.chassis.etcd import Change
from services.runtime.desired import Desired


def put(key: str, value: bytes, revision: int = 1) -> Change:
    return Change(key, value, revision)


def test_good_values_take_effect() -> None:
    desired = Desired()
    refused = desired.apply([put("models/m", b"{}"), put("routes/m", b'{"stable": "1"}', 2)])

    assert refused == []
    assert desired.routes["m"].stable == "1"
    assert desired.accepted == {"models/m": 1, "routes/m": 2}
    assert desired.revision == 2


def test_a_bad_value_leaves_the_last_good_one() -> None:
    desired = Desired()
    desired.apply([put("routes/m", b'{"stable": "1"}')])
    (refused,) = desired.apply([put("routes/m", b'{"stable": "x"}', 2)])

    assert refused.has_last_good
    assert desired.routes["m"].stable == "1"
    assert desired.accepted == {"routes/m": 1}
    assert "stable" in desired.refused["routes/m"]


def test_a_good_value_ends_a_refusal() -> None:
    desired = Desired()
    desired.apply([put("models/m", b"[]"), put("models/m", b"{}", 2)])

    assert desired.refused == {}


def test_a_deleted_key_is_gone() -> None:
    desired = Desired()
    desired.apply([put("models/m", b"{}"), put("routes/m", b'{"stable": "1"}'), put("models/n", b"[]")])
    desired.apply([Change(key, None, 2) for key in ("models/m", "routes/m", "models/n")])

    assert (desired.specs, desired.routes, desired.accepted, desired.refused) == ({}, {}, {}, {})


def test_an_earlier_value_stands_in_and_the_refusal_stays_said() -> None:
    desired = Desired()
    (refused,) = desired.apply([put("models/m", b"[]", 5)])

    assert not refused.has_last_good
    assert not desired.restore("models/m", b"also bad", 4)
    assert desired.restore("models/m", b"{}", 3)
    assert desired.accepted == {"models/m": 3}
    assert "models/m" in desired.refused


def test_an_earlier_value_does_not_undo_a_newer_good_one() -> None:
    desired = Desired()
    desired.apply([put("models/m", b"[]", 5), put("models/m", b'{"instances": {"count": 2}}', 6)])

    assert desired.restore("models/m", b"{}", 3)
    assert desired.specs["m"].instances.count == 2


def test_a_key_that_names_no_model_is_refused() -> None:
    (refused,) = Desired().apply([put("models/a b", b"{}")])

    assert refused.reason.startswith("'a b' is no name: letters, digits")


def test_models_belong_to_a_pool() -> None:
    desired = Desired()
    desired.apply([put("models/a", b"{}"), put("models/b", b'{"placement": {"pool": "gpu"}}')])

    assert set(desired.of_pool("default")) == {"a"}
    assert set(desired.of_pool("gpu")) == {"b"}
