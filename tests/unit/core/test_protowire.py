import pytest

from inference import grpc_service_pb2 as pb
from services.core import protowire
from turnout.v1 import link_pb2

NUMBERS = [0, 1, 127, 128, 300, (1 << 14) - 1, 1 << 14, (1 << 21) - 1, 1 << 32, (1 << 63) - 1, (1 << 64) - 1]


@pytest.mark.parametrize(
    ("field", "wire_type", "hexadecimal"), [(1, 0, "08"), (7, 2, "3a"), (15, 1, "79"), (16, 2, "8201"), (19, 5, "9d01")]
)
def test_a_tag_is_the_field_and_the_kind_of_what_follows(field: int, wire_type: int, hexadecimal: str) -> None:
    assert protowire.tag(field, wire_type) == bytes.fromhex(hexadecimal)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_scalar_field_is_protobufs(number: int) -> None:
    written = protowire.varint_field(10, number)

    assert written == link_pb2.Request(queue_timeout_us=number).SerializeToString()


@pytest.mark.parametrize("data", [b"", b"x", bytes(127), bytes(128), bytes(20_000)])
def test_a_bytes_field_is_protobufs(data: bytes) -> None:
    written = protowire.bytes_field(1, data)

    assert written == pb.ModelInferRequest(model_name=data.decode()).SerializeToString()


@pytest.mark.parametrize("numbers", [[], [0], [1, 224, 224, 3], [1 << 40]])
def test_a_packed_field_is_protobufs(numbers: list[int]) -> None:
    tensor = pb.ModelInferRequest.InferInputTensor(shape=numbers)

    assert protowire.packed_field(3, numbers) == tensor.SerializeToString()


@pytest.mark.parametrize("numbers", [[], [0], [1, (1 << 64) - 1], list(range(100))])
def test_a_packed_fixed64_field_is_protobufs(numbers: list[int]) -> None:
    written = protowire.packed_fixed64_field(11, numbers)

    assert written == link_pb2.Frame(releases=numbers).SerializeToString()


def test_fields_that_hold_their_default_are_left_out() -> None:
    assert (protowire.varint_field(4, 0), protowire.bytes_field(4, b""), protowire.packed_field(4, [])) == (b"",) * 3
