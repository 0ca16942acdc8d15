import math
from collections.abc import Sequence

import numpy as np
import pytest

from services.core.arrays import decode, encode
from services.core.errors import InvalidRequestError
from services.router.classification import classified
from turnout.v1.tensor_pb2 import Tensor


def tensor(values: object, dtype: str) -> Tensor:
    array = np.array(values, dtype)
    datatype, data = encode(array)
    return Tensor(name="y", datatype=datatype, shape=array.shape, data=data)


def said(given: Tensor, k: int, labels: Sequence[str] = (), *, batches: bool = True) -> list[object]:
    answer = classified(given, k, labels, batches=batches)
    assert (answer.name, answer.datatype) == ("y", "BYTES")
    words = decode(answer.datatype, answer.shape, answer.data).tolist()
    return [[each.decode() for each in row] for row in words] if batches else [each.decode() for each in words]


def test_the_largest_come_first_row_by_row() -> None:
    scores = tensor([[0.25, 1.5, -2.0], [7.0, 3.0, 5.0]], "f4")

    assert said(scores, 2) == [["1.500000:1", "0.250000:0"], ["7.000000:0", "5.000000:2"]]


def test_labels_are_named_as_far_as_there_are_any() -> None:
    assert said(tensor([[3, 1, 2]], "i8"), 3, ("cat", "dog")) == [["3:0:cat", "2:2", "1:1:dog"]]


def test_k_is_cut_to_the_number_of_classes() -> None:
    assert said(tensor([[1.0, 2.0]], "f8"), 99) == [["2.000000:1", "1.000000:0"]]


def test_a_model_without_rows_gives_one_list() -> None:
    assert said(tensor([1, 3, 2], "u1"), 2, batches=False) == ["3:1", "2:2"]


def test_of_equal_values_the_first_and_nan_last() -> None:
    assert said(tensor([[math.nan, 1.0, 1.0, math.inf]], "f4"), 4) == [["inf:3", "1.000000:1", "1.000000:2", "nan:0"]]


@pytest.mark.parametrize("dtype", ["i1", "i8", "u1", "u8"])
def test_the_ends_of_an_integers_range_are_in_order(dtype: str) -> None:
    ends = np.iinfo(dtype)

    assert said(tensor([[ends.min, ends.max, 5]], dtype), 3) == [[f"{ends.max}:1", "5:2", f"{ends.min}:0"]]


def test_inner_dimensions_are_one_list_of_classes_and_no_rows_are_none() -> None:
    assert said(tensor([[[1, 9], [3, 4]]], "i4"), 2) == [["9:1", "4:3"]]
    assert said(tensor(np.empty((0, 3)), "f4"), 2) == []


def test_half_precision_has_values_too() -> None:
    brain = Tensor(name="y", datatype="BF16", shape=[1, 2], data=bytes.fromhex("c03f00c0"))

    assert said(brain, 1) == [["1.500000:0"]]
    assert said(tensor([[1.5, 2.5]], "f2"), 1) == [["2.500000:1"]]


@pytest.mark.parametrize("datatype", ["BYTES", "BOOL"])
def test_what_has_no_order_is_refused(datatype: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"output 'y' is {datatype}"):
        classified(Tensor(name="y", datatype=datatype, shape=[1, 0]), 1, (), batches=True)
