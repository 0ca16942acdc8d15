import pytest

from services.core.tensor import DATATYPES, MAX_ELEMENTS, check_data, decode_bytes, element_count, encode_bytes

GOLDEN = bytes.fromhex("02000000 6162 00000000 02000000 c3a9 02000000 6100")
GOLDEN_ELEMENTS = [b"ab", b"", "é".encode(), b"a\0"]


@pytest.mark.parametrize(
    ("shape", "count"),
    [([], 1), ([0], 0), ([3], 3), ([2, 3], 6), ([0, 4], 0), ([1] * 64, 1), ([2**62, 0], 0), ([MAX_ELEMENTS], 2**40)],
)
def test_a_shape_holds_the_product_of_its_dimensions(shape: list[int], count: int) -> None:
    assert element_count(shape) == count


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ([-1], "shape [-1] has a negative dimension"),
        ([0, -2], "shape [0, -2] has a negative dimension"),
        ([2**40, 2**40], f"shape [{2**40}, {2**40}] has {2**80} elements, over the limit of {2**40}"),
        ([2**40 + 1], f"shape [{2**40 + 1}] has {2**40 + 1} elements, over the limit of {2**40}"),
        ([1] * 65, "shape has 65 dimensions, over the limit of 64"),
        ([2**62] * 1_000_000, "shape has 1000000 dimensions, over the limit of 64"),
    ],
)
def test_an_impossible_shape_is_refused(shape: list[int], message: str) -> None:
    with pytest.raises(ValueError, match="shape") as caught:
        element_count(shape)

    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("datatype", "shape", "hexadecimal"),
    [
        ("FP32", [1, 2], "0000803f 00000040"),
        ("INT64", [1], "ffffffffffffffff"),
        ("INT64", [2], "0100000000002000 ffffffffffffffff"),
        ("FP16", [4], "003e 00c0 ff7b 007c"),
        ("BF16", [3], "c03f 00c0 807f"),
        ("BOOL", [3], "01 00 01"),
        ("BYTES", [4], GOLDEN.hex()),
        ("BYTES", [2, 2], GOLDEN.hex()),
        ("FP32", [], "0000803f"),
        ("FP32", [0, 4], ""),
        ("BYTES", [0], ""),
        ("BYTES", [], "00000000"),
    ],
)
@pytest.mark.parametrize("kind", [bytes, lambda data: memoryview(bytearray(data))])
def test_data_that_fills_its_shape_is_accepted(
    kind: type[bytes], datatype: str, shape: list[int], hexadecimal: str
) -> None:
    check_data(datatype, shape, kind(bytes.fromhex(hexadecimal)))


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "message"),
    [
        ("FP32", [1, 2], bytes(7), "has 7 bytes, but FP32 of shape [1, 2] takes 8 (2 x 4)"),
        ("FP32", [1, 2], bytes(12), "has 12 bytes, but FP32 of shape [1, 2] takes 8 (2 x 4)"),
        ("BOOL", [], b"", "has 0 bytes, but BOOL of shape [] takes 1 (1 x 1)"),
        ("FP64", [0, 3], bytes(8), "has 8 bytes, but FP64 of shape [0, 3] takes 0 (0 x 8)"),
        ("FP32", [-1], b"", "shape [-1] has a negative dimension"),
        ("BYTES", [1], b"\x02\0", "BYTES element 0 at offset 0: its 4-byte length is cut off"),
        ("BYTES", [2], b"\x01\0\0\0a\x01\0\0", "BYTES element 1 at offset 5: its 4-byte length is cut off"),
        ("BYTES", [1], b"\x02\0\0\0a", "BYTES element 0 at offset 0: its length 2 reaches 1 bytes past the end"),
        (
            "BYTES",
            [1],
            b"\0\0\0\x02ab",
            "BYTES element 0 at offset 0: its length 33554432 reaches 33554430 bytes past the end",
        ),
        ("BYTES", [3], GOLDEN, "BYTES data holds 4 elements, but the shape says 3"),
        ("BYTES", [5], GOLDEN, "BYTES data holds 4 elements, but the shape says 5"),
        ("BYTES", [2**40], b"", f"BYTES data holds 0 elements, but the shape says {2**40}"),
        ("BYTES", [0], b"\0\0\0\0", "BYTES data holds 1 elements, but the shape says 0"),
        ("FP8", [1], b"\0", f"datatype 'FP8' is unknown; known are {', '.join(DATATYPES)}"),
        ("fp32", [1], bytes(4), f"datatype 'fp32' is unknown; known are {', '.join(DATATYPES)}"),
    ],
)
def test_other_data_is_refused_with_what_would_be_right(
    datatype: str, shape: list[int], data: bytes, message: str
) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        check_data(datatype, shape, data)

    assert str(caught.value) == message


def test_bytes_elements_are_written_as_the_protocol_says() -> None:
    assert encode_bytes(GOLDEN_ELEMENTS) == GOLDEN
    assert decode_bytes(GOLDEN) == decode_bytes(memoryview(GOLDEN)) == GOLDEN_ELEMENTS


def test_no_elements_are_no_bytes() -> None:
    assert (encode_bytes([]), decode_bytes(b"")) == (b"", [])
