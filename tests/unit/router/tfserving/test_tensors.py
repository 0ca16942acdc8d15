"""The hexadecimal messages are what tensorflow 2.21's make_tensor_proto writes."""

import struct

import pytest

from services.core.errors import InternalError, InvalidRequestError
from services.core.tensor import encode_bytes
from services.router.tfserving.tensors import given, tensor_proto
from turnout.tfserving import tensor_pb2 as pb

# datatype, its two values as data, as TensorFlow sends them, and the second alone for three elements
GOLDEN = [
    ("FP32", struct.pack("<2f", 1.5, -2), "080112041202080222080000c03f000000c0", "08011204120208032a04000000c0"),
    (
        "FP64",
        struct.pack("<2d", 1.5, -2),
        "08021204120208022210000000000000f83f00000000000000c0",
        "0802120412020803320800000000000000c0",
    ),
    (
        "INT32",
        struct.pack("<2i", 1, -2),
        "0803120412020802220801000000feffffff",
        "08031204120208033a0afeffffffffffffffff01",
    ),
    ("UINT8", b"\x01\xc8", "0804120412020802220201c8", "08041204120208033a02c801"),
    ("INT16", struct.pack("<2h", 1, -2), "080512041202080222040100feff", "08051204120208033a0afeffffffffffffffff01"),
    ("INT8", b"\x01\xfe", "0806120412020802220201fe", "08061204120208033a0afeffffffffffffffff01"),
    (
        "INT64",
        struct.pack("<2q", 2**53 + 1, -1),
        "080912041202080222100100000000002000ffffffffffffffff",
        "0809120412020803520affffffffffffffffff01",
    ),
    ("BOOL", b"\x01\x00", "080a1204120208025a020100", "080a1204120208035a0100"),
    ("UINT16", struct.pack("<2H", 1, 60000), "08111204120208023a0401e0d403", "08111204120208033a03e0d403"),
    ("FP16", bytes.fromhex("003e00c0"), "08131204120208022204003e00c0", "08131204120208036a03808003"),
    ("BF16", bytes.fromhex("c03f00c0"), "080e1204120208022204c03f00c0", "080e1204120208036a03808003"),
    (
        "UINT32",
        struct.pack("<2I", 1, 2**32 - 1),
        "0816120412020802220801000000ffffffff",
        "0816120412020803820105ffffffff0f",
    ),
    (
        "UINT64",
        struct.pack("<2Q", 1, 2**64 - 1),
        "081712041202080222100100000000000000ffffffffffffffff",
        "08171204120208038a010affffffffffffffffff01",
    ),
    ("BYTES", encode_bytes([b"ab", b"a\0"]), "08071204120208024202616242026100", "080712041202080342026100"),
]
IDS = [golden[0] for golden in GOLDEN]


def read(message: str) -> tuple[str, list[int], bytes]:
    found = given("x", pb.TensorProto.FromString(bytes.fromhex(message)))
    assert found.name == "x"
    return found.datatype, list(found.shape), bytes(found.data)


@pytest.mark.parametrize(("datatype", "data", "whole", "one"), GOLDEN, ids=IDS)
def test_what_tensorflow_writes_is_read(datatype: str, data: bytes, whole: str, one: str) -> None:
    second = encode_bytes([b"a\0"]) if datatype == "BYTES" else data[len(data) // 2 :]

    assert read(whole) == (datatype, [2], data)
    assert read(one) == (datatype, [3], second * 3)


@pytest.mark.parametrize(("datatype", "data", "whole", "one"), GOLDEN, ids=IDS)
def test_an_output_is_written_by_value_and_is_the_same_when_read(
    datatype: str, data: bytes, whole: str, one: str
) -> None:
    written = tensor_proto("y", datatype, [2], data)

    assert written.tensor_content == b""
    assert given("y", written)[1:] == (datatype, [2], data)


def test_a_scalar_has_one_element_and_an_empty_tensor_none() -> None:
    assert read("080112002a040000e040") == ("FP32", [], struct.pack("<f", 7))
    empty = tensor_proto("y", "FP32", [0, 3], b"")
    assert given("y", empty)[2:] == ([0, 3], b"")


def test_the_last_value_stands_for_all_that_follow() -> None:
    tensor = tensor_proto("x", "INT32", [2], struct.pack("<2i", 5, 6))
    tensor.tensor_shape.dim[0].size = 4

    assert given("x", tensor).data == struct.pack("<4i", 5, 6, 6, 6)


def test_many_values_are_taken_as_they_are() -> None:
    data = struct.pack("<300f", *range(300))
    message = tensor_proto("x", "FP32", [3, 100], data)

    assert given("x", message)[2:] == ([3, 100], data)


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (pb.TensorProto(dtype=pb.DT_COMPLEX64), "dtype DT_COMPLEX64 is not served; DT_FLOAT, "),
        (pb.TensorProto(), "dtype DT_INVALID is not served"),
        (pb.TensorProto(dtype=99), "dtype 99 is not served"),  # type: ignore[arg-type]
        (pb.TensorProto(dtype=pb.DT_FLOAT, tensor_shape=pb.TensorShapeProto(unknown_rank=True)), "unknown_rank"),
        (pb.TensorProto(dtype=pb.DT_FLOAT, int_val=[1]), "DT_FLOAT is in tensor_content or float_val, not in int_val"),
        (
            pb.TensorProto(dtype=pb.DT_FLOAT, float_val=[1, 2]),
            "float_val has 2 values; shape [] takes 1",
        ),
        (pb.TensorProto(dtype=pb.DT_FLOAT), "float_val has 0 values; shape [] takes 1"),
        (pb.TensorProto(dtype=pb.DT_INT8, int_val=[300]), "a value of int_val is outside DT_INT8"),
        (pb.TensorProto(dtype=pb.DT_STRING, tensor_content=b"a"), "text travels in string_val"),
    ],
)
def test_what_is_no_tensor_is_refused_with_what_would_be(message: pb.TensorProto, says: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        given("x", message)

    assert str(refused.value).startswith("input 'x': ")
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ([-1], "negative dimension"),
        ([1 << 40, 1 << 40], "elements, over the limit"),
        ([1 << 30], "one value for 1073741823 elements makes 4294967292 bytes"),
    ],
)
def test_no_shape_makes_one_value_into_more_than_a_message_holds(sizes: list[int], says: str) -> None:
    tensor = pb.TensorProto(dtype=pb.DT_FLOAT, float_val=[1])
    tensor.tensor_shape.dim.extend([pb.TensorShapeProto.Dim(size=size) for size in sizes])

    with pytest.raises(InvalidRequestError, match=says):
        given("x", tensor)


def test_an_output_that_no_tensor_proto_holds_is_our_fault() -> None:
    with pytest.raises(InternalError, match="output 'y' is FP8"):
        tensor_proto("y", "FP8", [1], b"0")
