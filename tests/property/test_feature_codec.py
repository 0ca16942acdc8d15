"""What is packed into a blob comes out of it, for every datatype, shape and choice of nulls."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from services.core.arrays import NUMPY_DTYPE
from services.core.feature_spec import Column
from services.feature_proxy import codec

DATATYPES = ["BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "FP32", "FP64"]
SHAPES = st.lists(st.integers(1, 3), max_size=3).map(tuple)
COLUMNS = st.lists(st.tuples(st.sampled_from(DATATYPES), SHAPES), min_size=1, max_size=20)
SECONDS = st.floats(0, 4e9)


@st.composite
def rows(draw: st.DrawFn) -> tuple[codec.Layout, list[tuple[dict[str, object], float]]]:
    kinds = draw(COLUMNS)
    columns = tuple(Column(name=f"c{i}", datatype=kind, shape=shape) for i, (kind, shape) in enumerate(kinds))
    entities = []
    for _ in range(draw(st.integers(1, 4))):
        values = {}
        for column in columns:
            if draw(st.booleans()):
                value = draw(arrays.arrays(NUMPY_DTYPE[column.datatype], column.shape))
                values[column.name] = value if draw(st.booleans()) else value.tolist()
        entities.append((values, draw(SECONDS)))
    return codec.Layout.of(columns), entities


@given(rows())
def test_what_is_packed_is_read(case: tuple[codec.Layout, list[tuple[dict[str, object], float]]]) -> None:
    layout, entities = case

    records = codec.read(layout, [codec.pack(layout, values, at) for values, at in entities])
    nulls = codec.nulls(layout, records)

    assert records["event_time"].tolist() == [at for _, at in entities]
    for row, (values, _) in enumerate(entities):
        for i, (field, column) in enumerate(zip(layout.fields, layout.columns, strict=True)):
            assert nulls[row, i] == (column.name not in values)
            if column.name in values:
                expected = np.asarray(values[column.name], NUMPY_DTYPE[column.datatype])
                np.testing.assert_array_equal(records[field][row], expected)


@given(rows(), st.data())
def test_a_damaged_or_foreign_blob_is_an_error_never_values(
    case: tuple[codec.Layout, list[tuple[dict[str, object], float]]], data: st.DataObject
) -> None:
    layout, entities = case
    blobs = [codec.pack(layout, values, at) for values, at in entities]
    victim = data.draw(st.integers(0, len(blobs) - 1))
    damage = data.draw(st.sampled_from(["cut", "grown", "magic", "layout", "schema", "text"]))
    blob = bytearray(blobs[victim])
    if damage == "cut":
        del blob[-1]
    elif damage == "grown":
        blob += b"\0"
    elif damage == "text":
        blob = bytearray(data.draw(st.binary(max_size=40)))
    else:
        blob[{"magic": 0, "layout": 4, "schema": 8}[damage]] ^= 0x80
    blobs[victim] = bytes(blob)

    with pytest.raises(codec.BlobError) as failure:
        codec.read(layout, blobs)

    assert failure.value.row == victim
