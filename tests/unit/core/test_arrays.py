import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from services.core import arrays
from services.core.tensor import ELEMENT_BYTES, check_data

KNOWN = "BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, FP16, FP32, FP64 and text"


def test_every_datatype_but_bf16_has_a_dtype_of_its_size() -> None:
    sizes = {name: dtype.itemsize for name, dtype in arrays.NUMPY_DTYPE.items()}

    assert sizes == {name: size for name, size in ELEMENT_BYTES.items() if name != "BF16"}


@pytest.mark.parametrize("datatype", arrays.NUMPY_DTYPE)
@pytest.mark.parametrize("shape", [(), (0, 4), (3,), (2, 1, 3)])
def test_an_array_comes_back_with_its_values_and_shape(datatype: str, shape: tuple[int, ...]) -> None:
    dtype = arrays.NUMPY_DTYPE[datatype]
    array = np.arange(math.prod(shape)).astype(dtype).reshape(shape)

    encoded, data = arrays.encode(array)

    check_data(encoded, shape, data)
    assert encoded == datatype
    back = arrays.decode(encoded, shape, data)
    assert (back.dtype, back.shape) == (dtype, shape)
    assert np.array_equal(back, array)


@pytest.mark.parametrize(
    ("datatype", "hexadecimal", "values"),
    [
        ("BOOL", "01 00 01", [True, False, True]),
        ("FP16", "003e 00c0 ff7b 007c", [1.5, -2, 65504, math.inf]),
        ("INT64", "0100000000002000 ffffffffffffffff", [9007199254740993, -1]),
        ("FP32", "0000803f 00000040", [1.0, 2.0]),
        ("BYTES", "02000000 6162 00000000 02000000 c3a9 02000000 6100", [b"ab", b"", b"\xc3\xa9", b"a\0"]),
    ],
)
def test_the_bytes_are_those_of_the_protocol(datatype: str, hexadecimal: str, values: list[object]) -> None:
    array = np.array(values, dtype=arrays.NUMPY_DTYPE.get(datatype, np.dtype(object)))

    assert arrays.encode(array) == (datatype, bytes.fromhex(hexadecimal))
    assert arrays.decode(datatype, [len(values)], bytes.fromhex(hexadecimal)).tolist() == values


def test_bf16_comes_as_its_words() -> None:
    array = arrays.decode("BF16", [3], bytes.fromhex("c03f 00c0 807f"))

    assert (array.dtype, array.tolist()) == (np.dtype("uint16"), [0x3FC0, 0xC000, 0x7F80])


def test_numbers_are_seen_in_place_and_cannot_be_written() -> None:
    data = bytearray(np.array([1.0, 2.0], "<f4").tobytes())

    array = arrays.decode("FP32", [2], memoryview(data).toreadonly())

    data[:4] = np.array([5.0], "<f4").tobytes()
    assert array.tolist() == [5.0, 2.0]
    assert not array.flags.writeable


def test_nan_infinities_and_the_sign_of_zero_survive() -> None:
    array = np.array([math.nan, math.inf, -math.inf, -0.0], "<f8")

    back = arrays.decode("FP64", [4], arrays.encode(array)[1])

    assert np.array_equal(back, array, equal_nan=True)
    assert math.copysign(1, back[3]) == -1


@pytest.mark.parametrize(
    ("make", "datatype", "values"),
    [
        (lambda: np.array([1, -2], ">i4"), "INT32", [1, -2]),
        (lambda: np.array([1.5], ">f8"), "FP64", [1.5]),
        (lambda: np.array([7], np.longlong), "INT64", [7]),
        (lambda: np.arange(6, dtype="<i2").reshape(2, 3).T, "INT16", [[0, 3], [1, 4], [2, 5]]),
        (lambda: np.arange(6, dtype="<f4")[::2], "FP32", [0, 2, 4]),
        (lambda: np.array(["é", ""]), "BYTES", [b"\xc3\xa9", b""]),
        (lambda: np.array([b"ab", b"c"]), "BYTES", [b"ab", b"c"]),
        (lambda: np.array(["a", b"\0", np.bytes_(b"n")], dtype=object), "BYTES", [b"a", b"\0", b"n"]),
        (lambda: np.array(["long", "é"], dtype=np.dtypes.StringDType()), "BYTES", [b"long", b"\xc3\xa9"]),
        (lambda: np.array("scalar"), "BYTES", b"scalar"),
        (lambda: np.empty((0, 2), dtype=object), "BYTES", []),
    ],
)
def test_any_layout_is_written_little_endian_and_row_by_row(
    make: Callable[[], NDArray], datatype: str, values: object
) -> None:
    array = make()

    encoded, data = arrays.encode(array)

    check_data(encoded, array.shape, data)
    assert (encoded, arrays.decode(encoded, array.shape, data).tolist()) == (datatype, values)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([1j]), f"dtype complex128 has no Open Inference datatype; known are {KNOWN}"),
        (np.array(["2026-01-01"], "M8[D]"), f"dtype datetime64[D] has no Open Inference datatype; known are {KNOWN}"),
        (np.zeros(1, [("a", "<i4")]), f"dtype [('a', '<i4')] has no Open Inference datatype; known are {KNOWN}"),
        (np.array([1.5, "a"], object), "an element of type float in an object array is neither text nor bytes"),
        (np.array([None], object), "an element of type NoneType in an object array is neither text nor bytes"),
        (np.array(["\ud800"]), "'utf-8' codec can't encode character '\\ud800' in position 0: surrogates not allowed"),
    ],
)
def test_what_no_datatype_holds_is_refused_by_name(array: NDArray, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        arrays.encode(array)

    assert str(caught.value) == message
