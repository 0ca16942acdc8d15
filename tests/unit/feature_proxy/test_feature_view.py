from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from services.core.errors import FAILED_PRECONDITION, NotFoundError, PreconditionError
from services.core.feature_spec import FeatureViewSpec
from services.core.spec import BadValueError
from services.feature_proxy import codec
from services.feature_proxy.feature_view import FeatureView, Status, assemble

NOW = 1_000_000.0
COLUMNS = [
    {"name": "age", "datatype": "FP32", "default": -1.5},
    {"name": "visits", "datatype": "INT64", "default": 7},
    {"name": "vector", "datatype": "FP64", "shape": [2], "default": 0.5},
]


def a_view(**fields: Any) -> FeatureView:
    value = {"store": "memory://m", "entity": "patient_id", "columns": COLUMNS, **fields}
    return FeatureView.compile("tumor_features", FeatureViewSpec.model_validate(value))


def blob(view: FeatureView, values: Mapping[str, Any], age_s: float = 0) -> bytes:
    return codec.pack(view.layout, values, NOW - age_s)


ONE = {"age": 1.0, "visits": 1, "vector": [1, 2]}
TWO = {"age": 2.0, "visits": 2, "vector": [3, 4]}


def test_columns_come_in_the_wanted_order_with_rows_as_asked_and_duplicates_kept() -> None:
    view = a_view()
    one, two = blob(view, ONE), blob(view, TWO)

    values = assemble(view, [b"2", b"1", b"2"], [two, one, two], view.positions(["vector", "age"]), NOW)

    assert [column.tolist() for column in values.columns] == [[[3, 4], [1, 2], [3, 4]], [2, 1, 2]]
    assert [column.dtype for column in values.columns] == ["<f8", "<f4"]
    assert values.statuses.tolist() == [[Status.PRESENT] * 2] * 3


def test_no_names_means_all_columns_and_a_strange_one_is_refused() -> None:
    view = a_view()

    assert view.positions([]) == (0, 1, 2)
    with pytest.raises(PreconditionError, match="has no column 'agee'; its columns are age, visits, vector"):
        view.positions(["age", "agee"])


def test_no_rows_give_empty_columns() -> None:
    view = a_view()

    values = assemble(view, [], [], (0, 2), NOW)

    assert [column.shape for column in values.columns] == [(0,), (0, 2)]
    assert values.statuses.shape == (0, 2)


def test_null_columns_take_their_defaults_and_say_so() -> None:
    view = a_view()

    values = assemble(view, [b"1", b"2"], [blob(view, {"visits": 3}), blob(view, TWO)], (0, 1, 2), NOW)

    assert [column.tolist() for column in values.columns] == [[-1.5, 2], [3, 2], [[0.5, 0.5], [3, 4]]]
    assert values.statuses.tolist() == [[Status.NULL, Status.PRESENT, Status.NULL], [Status.PRESENT] * 3]


def test_an_unknown_entity_under_fail_is_named_with_its_view() -> None:
    view = a_view(on_missing="fail")

    with pytest.raises(NotFoundError, match=r"^feature view tumor_features has no entity patient_id=9999$"):
        assemble(view, [b"1", b"9999"], [blob(view, ONE), None], (0,), NOW)


def test_an_unknown_entity_under_default_gets_defaults() -> None:
    view = a_view(on_missing="default")

    values = assemble(view, [b"9", b"1"], [None, blob(view, ONE)], (0, 1, 2), NOW)

    assert [column.tolist() for column in values.columns] == [[-1.5, 1], [7, 1], [[0.5, 0.5], [1, 2]]]
    assert values.statuses.tolist() == [[Status.NOT_FOUND] * 3, [Status.PRESENT] * 3]


def test_only_unknown_entities_are_all_defaults() -> None:
    view = a_view(on_missing="default")

    values = assemble(view, [b"9"], [None], (1,), NOW)

    assert values.columns[0].tolist() == [7]
    assert values.statuses.tolist() == [[Status.NOT_FOUND]]


@pytest.mark.parametrize(
    ("policy", "expected"), [("serve", [1.0, 2.0, -1.5]), ("default", [-1.5, 2.0, -1.5])], ids=["serve", "default"]
)
def test_a_value_older_than_ttl_is_marked_and_served_or_defaulted(policy: str, expected: list[float]) -> None:
    view = a_view(ttl_s=60, on_stale=policy, on_missing="default")
    blobs = [blob(view, ONE, age_s=61), blob(view, TWO, age_s=60), None]

    values = assemble(view, [b"1", b"2", b"3"], blobs, (0,), NOW)

    assert values.columns[0].tolist() == expected
    assert values.statuses.ravel().tolist() == [Status.OUTSIDE_MAX_AGE, Status.PRESENT, Status.NOT_FOUND]


def test_a_stale_value_under_fail_is_named_with_its_age() -> None:
    view = a_view(ttl_s=60, on_stale="fail", on_missing="default")

    with pytest.raises(PreconditionError, match=r"entity patient_id=2 is 90.0 s old, over ttl_s 60"):
        assemble(view, [b"0", b"1", b"2"], [None, blob(view, ONE), blob(view, TWO, age_s=90)], (0,), NOW)


def test_ttl_0_is_for_ever_and_an_event_in_the_future_is_fresh() -> None:
    for view, age_s in [(a_view(ttl_s=0, on_stale="fail"), 1e6), (a_view(ttl_s=1, on_stale="fail"), -1e6)]:
        values = assemble(view, [b"1"], [blob(view, ONE, age_s=age_s)], (0,), NOW)

        assert values.statuses.tolist() == [[Status.PRESENT]]


def test_a_blob_of_other_columns_fails_with_view_and_entity() -> None:
    view, other = a_view(), a_view(columns=COLUMNS[:2])

    with pytest.raises(PreconditionError, match="view tumor_features, entity patient_id=2: the stored row was written"):
        assemble(view, [b"1", b"2"], [blob(view, ONE), blob(other, {})], (0,), NOW)


def test_a_version_mismatch_names_both_versions() -> None:
    view = a_view(version=3)
    view.check_version(0)
    view.check_version(3)

    with pytest.raises(
        PreconditionError, match="tumor_features is at version 3, but version 2 was asked for"
    ) as failure:
        view.check_version(2)
    assert failure.value.code == FAILED_PRECONDITION


@pytest.mark.parametrize(
    ("key", "shown"),
    [(b"17", "17"), (b"ana", "ana"), (b"\xff\x00", "0xff00"), (b"a\nb", "0x610a62"), (b"x" * 99, "x" * 64 + "…")],
)
def test_an_entity_is_shown_readably(key: bytes, shown: str) -> None:
    assert a_view().entity(key) == f"patient_id={shown}"


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ({"name": "n", "datatype": "UINT8", "default": -1}, "columns: n: default -1 is no UINT8"),
        ({"name": "n", "datatype": "INT32", "default": 0.5}, "columns: n: default 0.5 is no INT32"),
        ({"name": "n", "datatype": "BOOL", "default": 2}, "columns: n: default 2 is no BOOL"),
        ({"name": "n", "datatype": "INT8", "default": float("nan")}, "columns: n: default nan is no INT8"),
    ],
)
def test_a_view_that_cannot_be_is_refused(column: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadValueError, match=reason):
        a_view(columns=[column])


def test_assembly_of_many_rows_equals_row_by_row() -> None:
    view = a_view(ttl_s=60, on_stale="default", on_missing="default")
    blobs = [None if i % 7 == 0 else blob(view, ONE if i % 3 else {"age": i}, age_s=i) for i in range(100)]
    keys = [b"%d" % i for i in range(100)]

    together = assemble(view, keys, blobs, (0, 1, 2), NOW)
    alone = [assemble(view, [key], [one], (0, 1, 2), NOW) for key, one in zip(keys, blobs, strict=True)]

    for i in range(3):
        np.testing.assert_array_equal(together.columns[i], np.concatenate([one.columns[i] for one in alone]))
    np.testing.assert_array_equal(together.statuses, np.concatenate([one.statuses for one in alone]))
