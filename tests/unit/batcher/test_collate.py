"""Columns: tensors that are cut by rows, and along dimension 1."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.batcher.collate import Column, WrongRowsError, columns_of
from services.core.arrays import decode, encode
from turnout.v1 import tensor_pb2 as pb


def column(array: np.ndarray) -> Column:
    datatype, data = encode(array)
    return Column("y", datatype, len(array), array.shape[1:], data)


def texts(shape: tuple[int, ...]) -> np.ndarray:
    array = np.empty(shape, dtype=object)
    for place in np.ndindex(shape):
        array[place] = b"a\0b\0" * sum(place)
    return array


@pytest.mark.parametrize("array", [np.arange(4 * 5 * 2, dtype=np.int16).reshape(4, 5, 2), texts((4, 5, 2))])
@given(start=st.integers(0, 4), rows=st.integers(0, 4), length=st.integers(0, 5))
def test_rows_and_their_heads_are_cut_as_numpy_cuts_them(array: np.ndarray, start: int, rows: int, length: int) -> None:
    stop = min(4, start + rows)
    whole = column(array)

    cut = decode(whole.datatype, (stop - start, 5, 2), whole.slice(start, stop))
    heads = decode(whole.datatype, (stop - start, length, 2), whole.heads(start, stop, length))
    assert np.array_equal(cut, array[start:stop])
    assert np.array_equal(heads, array[start:stop, :length])


@pytest.mark.parametrize(
    "array", [np.zeros((0, 4), np.float32), np.zeros((3, 0), np.int64), texts((3, 2, 0)), texts((0, 2, 3))]
)
def test_nothing_is_cut_to_nothing(array: np.ndarray) -> None:
    whole = column(array)

    assert whole.slice(0, len(array)) == whole.heads(0, len(array), array.shape[1]) == b""


def test_bytes_that_end_early_are_told_with_their_offset() -> None:
    output = pb.Tensor(name="y", datatype="BYTES", shape=[2], data=b"\1\0\0\0a\5\0\0\0b")

    with pytest.raises(WrongRowsError, match="output 'y' of shape \\[2\\]: BYTES element 1 at offset 5: its length 5"):
        columns_of([output], 2)
