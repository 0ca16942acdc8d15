import math

import pytest

from services.core.feature_spec import Column, FeatureViewSpec
from services.core.spec import BadValueError

DATATYPES = "'BOOL', 'INT8', 'INT16', 'INT32', 'INT64', 'UINT8', 'UINT16', 'UINT32', 'UINT64', 'FP32' or 'FP64'"
MEMORY = '"store": "memory://m", "entity": "user"'
COLUMN = '"columns": [{"name": "age"}]'


def test_a_view_needs_a_store_an_entity_and_columns() -> None:
    view = FeatureViewSpec.parse(f'{{"store": "redis://127.0.0.1:6379/0", "entity": "user", {COLUMN}}}'.encode())

    assert view.columns == (Column(name="age", datatype="FP32", shape=(), default=0),)
    assert (view.version, view.ttl_s, view.timeout_ms) == (1, 0, 50)
    assert (view.on_missing, view.on_stale, view.on_error) == ("fail", "serve", "fail")


def test_a_default_may_be_not_a_number_and_comes_back_so() -> None:
    view = FeatureViewSpec(store="memory://m", entity="user", columns=(Column(name="age", default=math.nan),))

    assert b'"default":NaN' in view.dump()
    assert math.isnan(FeatureViewSpec.parse(view.dump()).columns[0].default)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (f'"entity": "user", {COLUMN}', "store: Field required"),
        (
            f'"store": "mysql://x", "entity": "user", {COLUMN}',
            "store: String should match pattern '^(sqlite|memory|redis)://'",
        ),
        (f'"store": "memory://m", "entity": "", {COLUMN}', "entity: String should have at least 1 character"),
        (MEMORY + ', "columns": []', "columns: at least one is needed"),
        (MEMORY + ', "columns": [{"name": ""}]', "columns.0.name: String should have at least 1 character"),
        (
            MEMORY + ', "columns": [{"name": "a", "datatype": "BYTES"}]',
            f"columns.0.datatype: Input should be {DATATYPES}",
        ),
        (MEMORY + ', "columns": [{"name": "a"}, {"name": "b"}, {"name": "a"}]', "columns: name 'a' is used twice"),
        (f'{MEMORY}, {COLUMN}, "ttl_s": -1', "ttl_s: Input should be greater than or equal to 0"),
        (f'{MEMORY}, {COLUMN}, "ttl_s": Infinity', "ttl_s: Input should be a finite number"),
        (f'{MEMORY}, {COLUMN}, "timeout_ms": 0', "timeout_ms: Input should be greater than 0"),
        (f'{MEMORY}, {COLUMN}, "version": 0', "version: Input should be greater than or equal to 1"),
        (f'{MEMORY}, {COLUMN}, "on_missing": "serve"', "on_missing: Input should be 'default' or 'fail'"),
        (f'{MEMORY}, {COLUMN}, "ttl": 5', "ttl: unknown field"),
    ],
)
def test_a_wrong_view_is_refused_by_field(fields: str, message: str) -> None:
    with pytest.raises(BadValueError) as caught:
        FeatureViewSpec.parse(f"{{{fields}}}".encode())

    assert str(caught.value) == message
