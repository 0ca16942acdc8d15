"""Numbers as elements, against numpy."""

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.arrays import NUMPY_DTYPE
from services.core.element import element, most_exact


@pytest.mark.parametrize("datatype", NUMPY_DTYPE)
@pytest.mark.parametrize("value", [0, 1, 0.0, 1.0])
def test_zero_and_one_are_in_every_datatype(datatype: str, value: float) -> None:
    assert element(datatype, value) == np.array(value, NUMPY_DTYPE[datatype]).tobytes()


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64"])
@pytest.mark.parametrize("value", [-0.0, 0.1, -1e4, math.inf, -math.inf, math.nan])
def test_floats_are_rounded_as_usual(datatype: str, value: float) -> None:
    assert element(datatype, value) == np.array(value, NUMPY_DTYPE[datatype]).tobytes()


@pytest.mark.parametrize(
    ("value", "bits"),
    [
        (1, 0x3F80),
        (-2, 0xC000),
        (0, 0),
        (-0.0, 0x8000),
        (math.inf, 0x7F80),
        (1 + 2**-8, 0x3F80),
        (1 + 3 * 2**-8, 0x3F82),
    ],
)
def test_bf16_is_rounded_to_even(value: float, bits: int) -> None:
    assert element("BF16", value) == struct.pack("<H", bits)


@given(st.floats(width=32))
def test_bf16_is_the_nearest_there_is(value: float) -> None:
    try:
        (bits,) = struct.unpack("<H", element("BF16", value))
    except ValueError:
        assert abs(value) > 3.38e38
        return
    (back,) = struct.unpack("<f", struct.pack("<I", bits << 16))

    assert math.isnan(value) == math.isnan(back)
    if math.isfinite(value):
        assert abs(back - value) <= abs(value) * 2**-8 + 1e-40


@pytest.mark.parametrize(
    ("datatype", "value", "message"),
    [
        ("INT64", 0.5, "INT64 does not hold 0.5"),
        ("INT64", 2.0**63, "INT64 does not hold 9.22337e+18"),
        ("INT8", 128, "INT8 does not hold 128"),
        ("UINT8", -1, "UINT8 does not hold -1"),
        ("BOOL", 2, "BOOL does not hold 2"),
        ("INT32", math.nan, "INT32 does not hold nan"),
        ("INT32", math.inf, "INT32 does not hold inf"),
        ("FP16", 1e5, "FP16 does not hold 100000"),
        ("FP32", 1e39, "FP32 does not hold 1e+39"),
        ("BF16", 3.4e38, "BF16 does not hold 3.4e+38"),
        ("BYTES", 0, "BYTES holds no numbers"),
        ("FP8", 0, "FP8 holds no numbers"),
    ],
)
def test_what_a_datatype_does_not_hold_is_refused(datatype: str, value: float, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        element(datatype, value)

    assert str(caught.value) == message


@pytest.mark.parametrize("datatype", [name for name in NUMPY_DTYPE if name != "BOOL"])
def test_whole_numbers_are_exact_up_to_the_largest(datatype: str) -> None:
    most = most_exact(datatype)
    array = np.array([most, most - 1]).astype(NUMPY_DTYPE[datatype])

    assert [int(number) for number in array.tolist()] == [most, most - 1]


def test_few_whole_numbers_are_in_the_smallest() -> None:
    assert [most_exact(name) for name in ("BOOL", "UINT8", "INT8", "BF16", "BYTES")] == [1, 255, 127, 256, 0]
