import struct
from typing import Any

import pytest

from services.batcher.sequence_inputs import Controls, Row
from services.core.batching_spec import ControlInput
from services.core.signature import Signature, TensorSpec

ROWS = [Row(7, 1, starts=True, ends=False), None, Row(8, 2, starts=False, ends=True)]


def controls(kind: str, datatype: str, **fields: Any) -> Controls:
    given = ControlInput.model_validate({"name": "c", "kind": kind, **fields})
    return Controls(Signature((TensorSpec("c", datatype, (-1, 1)),), (), batches=True), [given])


class Member:
    """As much of a request as matters here: it has no inputs of its own."""

    class bucket:  # noqa: N801 - an attribute's name
        inner = ()

        class intake:  # noqa: N801 - likewise
            signature = Signature((), (), batches=True)


def written(found: Controls, rows: list[Row | None]) -> bytes:
    (tensor,) = found.joined([Member] * len(rows), rows)  # type: ignore[list-item]
    assert tensor.shape == [len(rows), 1]
    return b"".join(tensor.pieces)


@pytest.mark.parametrize(("datatype", "code"), [("BOOL", "?"), ("INT32", "i"), ("FP32", "f")])
@pytest.mark.parametrize(("kind", "values"), [("START", [1, 0, 0]), ("READY", [1, 0, 1]), ("END", [0, 0, 1])])
def test_flags_are_of_the_datatype_that_the_artifact_has(
    kind: str, values: list[int], datatype: str, code: str
) -> None:
    assert list(struct.unpack(f"<3{code}", written(controls(kind, datatype), ROWS))) == values


def test_flags_may_have_other_values() -> None:
    found = controls("READY", "FP32", false_true=[-1, 0.5])

    assert struct.unpack("<3f", written(found, ROWS)) == (0.5, -1, 0.5)


@pytest.mark.parametrize(("datatype", "code"), [("UINT64", "Q"), ("INT64", "q"), ("UINT32", "I"), ("INT32", "i")])
def test_ids_are_of_the_datatype_that_the_artifact_has(datatype: str, code: str) -> None:
    assert struct.unpack(f"<3{code}", written(controls("CORRID", datatype), ROWS)) == (7, 0, 8)


def test_ids_of_text_are_spelt() -> None:
    rows: list[Row | None] = [Row("ü", 1, starts=True, ends=False), Row(12, 2, starts=True, ends=False)]

    assert written(controls("CORRID", "BYTES"), rows) == b"\2\0\0\0\xc3\xbc\2\0\0\x0012"


@pytest.mark.parametrize(
    ("datatype", "name", "fault"),
    [
        ("UINT64", (1 << 64) - 1, ""),
        ("INT64", (1 << 64) - 1, ""),
        ("UINT32", (1 << 32) - 1, ""),
        ("UINT32", 1 << 32, "is too large: the model takes numbers of 32 bits"),
        ("INT32", 1 << 31, "is too large: the model takes numbers of 31 bits"),
        ("BYTES", 1 << 63, ""),
        ("BYTES", "a", ""),
        ("UINT64", "a", "is text, and the model takes a number"),
    ],
)
def test_an_id_that_the_model_cannot_be_told_is_a_fault(datatype: str, name: int | str, fault: str) -> None:
    assert controls("CORRID", datatype).fault(name) == fault


def test_a_model_that_is_told_no_ids_takes_any() -> None:
    assert [controls("START", "BOOL").fault(name) for name in (1 << 63, "a")] == ["", ""]
