import numpy as np
import pytest

from services.core.feature_spec import Column
from services.core.spec import BadValueError
from services.feature_proxy import codec


def layout(*columns: Column) -> codec.Layout:
    return codec.Layout.of(columns)


def test_the_blob_is_exactly_the_documented_bytes() -> None:
    age, flags = Column(name="age", datatype="FP32"), Column(name="flags", datatype="UINT8", shape=(2,))
    of = layout(age, flags)

    blob = codec.pack(of, {"flags": [1, 255]}, 1.5)

    header = b"TFV1" + b"\x01\0\0\0" + of.schema.to_bytes(8, "little") + np.array(1.5, "<f8").tobytes()
    assert blob == header + b"\x01" + b"\0\0\0\0" + b"\x01\xff"


def test_the_schema_hash_sees_names_datatypes_shapes_and_order_but_no_defaults() -> None:
    a, b = Column(name="a"), Column(name="b", datatype="INT8", shape=(2,))

    others = [(b, a), (a,), (Column(name="x"), b), (a, Column(name="b", datatype="UINT8", shape=(2,)))]
    hashes = {codec.schema_hash(columns) for columns in [(a, b), *others]}

    assert len(hashes) == 5
    assert codec.schema_hash((a, b)) == codec.schema_hash((Column(name="a", default=7), b))


def test_a_blob_of_other_columns_is_said_to_be_one() -> None:
    old, new = layout(Column(name="a", datatype="INT32")), layout(Column(name="a", datatype="FP32"))

    with pytest.raises(codec.BlobError, match=f"{old.schema:016x}, the view's is {new.schema:016x}"):
        codec.read(new, [codec.pack(new, {}, 0), codec.pack(old, {}, 0)])


@pytest.mark.parametrize(
    ("datatype", "value", "reason"),
    [
        ("INT8", 128, "128 is no INT8"),
        ("UINT8", -1, "-1 is no UINT8"),
        ("INT64", 2**63, "9223372036854775808 is no INT64"),
        ("INT32", 1.5, "1.5 is no INT32"),
        ("INT32", float("nan"), "nan is no INT32"),
        ("FP32", 1e39, r"1e\+39 is no FP32"),
        ("FP64", 10**400, "1000+... is no FP64"),
        ("FP32", "1", "'1' is no FP32"),
        ("FP32", True, "True is no FP32"),
        ("BOOL", 2, "2 is no BOOL"),
        ("FP32", [1.0], r"has shape \[1\], not \[\]"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(datatype: str, value: object, reason: str) -> None:
    of = layout(Column.model_validate({"name": "x", "datatype": datatype}))

    with pytest.raises(BadValueError, match=f"x: {reason}"):
        codec.pack(of, {"x": value}, 0)


@pytest.mark.parametrize(
    ("datatype", "value", "stored"),
    [("INT8", 3.0, 3), ("BOOL", 1, True), ("FP64", 2**60, 2.0**60), ("UINT64", 2**64 - 1, 2**64 - 1)],
)
def test_a_value_of_another_type_that_fits_is_taken(datatype: str, value: object, stored: object) -> None:
    of = layout(Column.model_validate({"name": "x", "datatype": datatype}))

    assert codec.read(of, [codec.pack(of, {"x": value}, 0)])["column0"].tolist() == [stored]


def test_not_a_number_and_infinity_are_values() -> None:
    of = layout(Column(name="x", shape=(2,)))

    np.testing.assert_array_equal(
        codec.read(of, [codec.pack(of, {"x": [float("nan"), float("inf")]}, 0)])["column0"], [[np.nan, np.inf]]
    )


def test_a_misspelt_column_and_a_missing_event_time_are_refused() -> None:
    of = layout(Column(name="age"), Column(name="size"))

    with pytest.raises(BadValueError, match="agee: no such column; the view's are age, size"):
        codec.pack(of, {"agee": 1}, 0)
    with pytest.raises(BadValueError, match="event_time: nan"):
        codec.pack(of, {}, float("nan"))


def test_columns_too_large_for_one_blob_are_refused() -> None:
    with pytest.raises(BadValueError, match="columns: one entity takes 4194329 bytes, over the limit of 1048576"):
        layout(Column(name="x", shape=(1 << 20,)))
