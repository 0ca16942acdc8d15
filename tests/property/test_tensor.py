"""The BYTES codec, and the check of any data against any shape."""

from itertools import pairwise
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core import arrays
from services.core.tensor import DATATYPES, ELEMENT_BYTES, check_data, decode_bytes, element_offsets, encode_bytes

elements = st.lists(st.binary(max_size=20), max_size=8)
shapes = st.lists(st.integers(0, 4), max_size=4)


def accepts(datatype: str, shape: list[int], data: bytes | memoryview) -> bool:
    try:
        check_data(datatype, shape, data)
    except ValueError:
        return False
    return True


@given(elements)
def test_bytes_come_back_as_they_went(values: list[bytes]) -> None:
    data = encode_bytes(values)

    assert accepts("BYTES", [len(values)], data)
    assert decode_bytes(data) == decode_bytes(memoryview(data)) == values
    assert arrays.decode("BYTES", [len(values)], data).tolist() == values


@given(elements, st.integers(0, 9))
def test_no_other_count_of_elements_is_accepted(values: list[bytes], count: int) -> None:
    assert accepts("BYTES", [count], encode_bytes(values)) == (count == len(values))


@given(elements.filter(bool), st.data())
def test_cut_data_is_refused(values: list[bytes], data: st.DataObject) -> None:
    encoded = encode_bytes(values)
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]

    assert not accepts("BYTES", [len(values)], cut)


@given(elements, st.binary(min_size=1, max_size=9))
def test_left_over_bytes_are_refused(values: list[bytes], rest: bytes) -> None:
    assert not accepts("BYTES", [len(values)], encode_bytes(values) + rest)


@given(st.lists(st.sampled_from([0, 1, 2, 5, 255]), max_size=16).map(bytes), st.integers(0, 5))
def test_what_is_accepted_is_what_encoding_gives(data: bytes, count: int) -> None:
    if accepts("BYTES", [count], data):
        values = decode_bytes(data)

        assert (len(values), encode_bytes(values)) == (count, data)
    else:
        with pytest.raises(ValueError, match="BYTES"):
            check_data("BYTES", [count], data)


@given(st.sampled_from(list(ELEMENT_BYTES)), shapes, st.integers(-8, 8))
def test_numbers_take_exactly_their_bytes(datatype: str, shape: list[int], off: int) -> None:
    size = prod(shape) * ELEMENT_BYTES[datatype]

    assert accepts(datatype, shape, bytes(max(0, size + off))) == (max(0, size + off) == size)


@given(st.sampled_from(DATATYPES), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=80), st.binary(max_size=64))
def test_any_shape_gets_an_answer(datatype: str, shape: list[int], data: bytes) -> None:
    if accepts(datatype, shape, data):
        assert min(shape, default=0) >= 0


@given(st.sampled_from(list(arrays.NUMPY_DTYPE)), shapes, st.data())
def test_arrays_of_any_bits_come_back_bit_by_bit(datatype: str, shape: list[int], data: st.DataObject) -> None:
    size = prod(shape) * ELEMENT_BYTES[datatype]
    raw = data.draw(st.binary(min_size=size, max_size=size))

    assert arrays.encode(arrays.decode(datatype, shape, raw)) == (datatype, raw)


@given(st.lists(st.one_of(st.binary(max_size=5), st.sampled_from([b"x" * 300, b"\0" * 4])), max_size=40), st.data())
def test_offsets_are_where_elements_begin_and_end(values: list[bytes], data: st.DataObject) -> None:
    encoded = encode_bytes(values)
    offsets = element_offsets(len(values), data.draw(st.sampled_from([bytes, memoryview]))(encoded))

    assert [encoded[begin + 4 : end] for begin, end in pairwise(offsets)] == values
    assert (offsets[0], offsets[-1], len(offsets)) == (0, len(encoded), len(values) + 1)


@given(st.lists(st.binary(max_size=3), min_size=20, max_size=30), st.data())
def test_spoilt_data_is_accepted_only_where_it_is_other_elements(values: list[bytes], data: st.DataObject) -> None:
    spoilt = bytearray(encode_bytes(values))
    spoilt[data.draw(st.integers(0, len(spoilt) - 1))] = data.draw(st.integers(0, 255))
    walked = walk(len(values), bytes(spoilt))
    try:
        offsets = list(element_offsets(len(values), bytes(spoilt)))
    except ValueError:
        offsets = None

    assert offsets == walked


def walk(count: int, data: bytes) -> list[int] | None:
    """Offsets found one element after the other; None when there are not exactly `count`."""
    offsets = [0]
    while offsets[-1] + 4 <= len(data):
        offsets.append(offsets[-1] + 4 + int.from_bytes(data[offsets[-1] : offsets[-1] + 4], "little"))
    return offsets if offsets[-1] == len(data) and len(offsets) == count + 1 else None


@pytest.mark.parametrize("length", [3, 8, 300])
def test_many_elements_of_one_length_take_no_walk(length: int) -> None:
    count = 100_000
    offsets = element_offsets(count, encode_bytes([b"x" * length] * count))

    assert offsets == range(0, count * (length + 4) + 1, length + 4)
