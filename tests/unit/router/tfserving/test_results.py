import struct

import pytest

from services.core.errors import InvalidRequestError
from services.core.tensor import encode_bytes
from services.router.tfserving import results
from turnout.v1.tensor_pb2 import Tensor


def floats(name: str, shape: list[int], *values: float) -> Tensor:
    return Tensor(name=name, datatype="FP32", shape=shape, data=struct.pack(f"<{len(values)}f", *values))


CLASSES = Tensor(name="classes", datatype="BYTES", shape=[2, 2], data=encode_bytes([b"a", b"b", b"a", b"c"]))
SCORES = floats("scores", [2, 2], 0.25, 0.75, 0.5, 0.5)
LABEL = Tensor(name="label", datatype="INT64", shape=[2], data=struct.pack("<2q", 1, 0))


def test_classes_and_scores_are_pairs() -> None:
    found = results.classified("m", [CLASSES, SCORES])

    assert found == [[("a", 0.25), ("b", 0.75)], [("a", 0.5), ("c", 0.5)]]
    assert results.write(found) == b'{"results":[[["a",0.25],["b",0.75]],[["a",0.5],["c",0.5]]]}'


def test_one_of_them_is_enough_and_so_are_probabilities_by_another_name() -> None:
    named = floats("probabilities", [2, 2], 0.25, 0.75, 0.5, 0.5)

    assert results.classified("m", [SCORES]) == [[("", 0.25), ("", 0.75)], [("", 0.5), ("", 0.5)]]
    assert results.classified("m", [LABEL, named]) == results.classified("m", [SCORES])
    assert results.classified("m", [CLASSES])[1] == [("a", 0), ("c", 0)]


def test_one_number_a_row_is_a_regression() -> None:
    assert results.regressed("m", [floats("outputs", [2, 1], 0.1, 2)]) == pytest.approx([0.1, 2])
    assert results.write(results.regressed("m", [LABEL, floats("y", [2], 0.1, 2)])) == b'{"results":[0.1,2.0]}'


def test_what_is_not_finite_is_written() -> None:
    assert results.write(results.regressed("m", [floats("y", [1], float("inf"))])) == b'{"results":[Infinity]}'
    assert results.write(results.classified("m", [floats("y", [1, 1], float("nan"))])) == b'{"results":[[["",NaN]]]}'


def test_outputs_that_are_neither_are_refused_with_what_there_is() -> None:
    with pytest.raises(InvalidRequestError, match=r"model m does not classify: it needs .* gives label INT64\[2\]"):
        results.classified("m", [LABEL])
    with pytest.raises(InvalidRequestError, match="does not classify"):
        results.classified("m", [floats("p", [1, 2], 0, 1), floats("q", [1, 2], 0, 1)])
    with pytest.raises(InvalidRequestError, match="other numbers of classes than of scores"):
        results.classified("m", [CLASSES, floats("scores", [2, 1], 0, 1)])
    with pytest.raises(InvalidRequestError, match=r"model m does not regress: .* gives scores FP32\[2, 2\]"):
        results.regressed("m", [SCORES])
    with pytest.raises(InvalidRequestError, match="does not regress"):
        results.regressed("m", [Tensor(name="outputs", datatype="BYTES", shape=[1], data=encode_bytes([b"a"]))])
