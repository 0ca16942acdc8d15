"""Recorded requests as a version's warm-up."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from services.chassis.recordings import RecordingWriter
from services.core.batching_spec import Padding
from services.core.model_spec import WarmUp
from services.core.signature import Signature, TensorSpec
from services.runtime.job import Job
from services.runtime.recorded import of_file
from turnout.v1.recorded_pb2 import Recorded
from turnout.v1.tensor_pb2 import Tensor

SIGNATURE = Signature((TensorSpec("x", "FP32", (-1, 2)), TensorSpec("name", "BYTES", (-1,))), (), batches=True)


def job(folder: Path, **fields: Any) -> Job:
    place = {"file": folder / "model.onnx", "socket": Path("s"), "framework": "onnx"}
    return Job(id="w", model="m", version="1", digest="d", **place, **fields)


def request(value: float, rows: int = 1, **fields: Any) -> Recorded:
    data = np.full((rows, 2), value, np.float32)
    x = Tensor(name="x", datatype="FP32", shape=data.shape, data=data.tobytes())
    name = Tensor(name="name", datatype="BYTES", shape=[rows], data=b"\2\0\0\0a\0" * rows)
    return Recorded(**{"model": "m", "inputs": [x], "filled": [name], **fields})


def written(path: Path, *records: Recorded) -> None:
    with RecordingWriter(path) as writer:
        for record in records:
            writer.write(record)


@pytest.mark.parametrize("name", ["warmup.recorded", "warmup.recorded.gz", "mine.recorded"])
def test_a_versions_folder_may_hold_requests(tmp_path: Path, name: str) -> None:
    written(tmp_path / name, request(1), request(2, 3))
    spec = WarmUp(file=name if name.startswith("mine") else None)
    found = of_file(job(tmp_path, warm_up=spec), SIGNATURE)

    assert (found.left_out, found.reason) == (0, "")
    assert [each["x"].tolist() for each in found.fitting] == [[[1, 1]], [[2, 2]] * 3]
    assert [each["name"].tolist() for each in found.fitting] == [[b"a\0"], [b"a\0"] * 3]


def test_what_was_refused_is_passed_over_and_what_does_not_fit_left_out(tmp_path: Path) -> None:
    written(tmp_path / "warmup.recorded", request(1, code=13), request(2, inputs=[]), request(3))
    found = of_file(job(tmp_path), SIGNATURE)

    assert [each["x"][0, 0] for each in found.fitting] == [3]
    assert (found.left_out, found.reason) == (1, "found inputs name; expected x, name")


def test_requests_for_a_signature_are_those_that_named_it(tmp_path: Path) -> None:
    first, second, third = request(1), request(2), request(3)
    second.parameters["signature_name"].string_value = "other"
    third.parameters["signature_name"].string_value = "usual"
    written(tmp_path / "warmup.recorded", first, second, third)
    usual = of_file(job(tmp_path), replace(SIGNATURE, name="usual"))
    other = of_file(job(tmp_path), replace(SIGNATURE, name="other"), usual=False)

    assert [each["x"][0, 0] for each in usual.fitting] == [1, 3]
    assert [each["x"][0, 0] for each in other.fitting] == [2]
    assert usual.left_out == other.left_out == 0


def test_no_more_run_than_the_spec_allows(tmp_path: Path) -> None:
    written(tmp_path / "warmup.recorded", *(request(number) for number in range(9)))

    assert len(of_file(job(tmp_path, warm_up=WarmUp(max_requests=4)), SIGNATURE).fitting) == 4


def test_a_folder_without_requests_has_none(tmp_path: Path) -> None:
    assert of_file(job(tmp_path), SIGNATURE) == ((), 0, "")


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "gone is not in the version's folder"), (b"rubbish", "BadRecordingError: gone: ex")]
)
def test_a_file_that_is_missing_or_rubbish_is_said(tmp_path: Path, content: bytes | None, reason: str) -> None:
    if content is not None:
        (tmp_path / "gone").write_bytes(content)
    found = of_file(job(tmp_path, warm_up=WarmUp(file="gone")), SIGNATURE)

    assert (found.fitting, found.left_out) == ((), 1)
    assert found.reason.startswith(reason)


def test_the_folder_is_the_one_named_by_its_digest(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    (folder / "model").mkdir(parents=True)
    written(folder / "warmup.recorded", request(1))

    assert len(of_file(job(folder / "model"), SIGNATURE).fitting) == 1


def test_what_the_mesh_tells_of_padding_is_filled_in(tmp_path: Path) -> None:
    ragged = Signature((TensorSpec("x", "FP32", (-1, -1)), TensorSpec("length", "INT32", (-1,))), (), batches=True)
    written(tmp_path / "warmup.recorded", request(1, 2, filled=[]))
    found = of_file(job(tmp_path, pad_to=Padding(inputs={"x": 0}, length="length")), ragged)

    assert [each["length"].tolist() for each in found.fitting] == [[2, 2]]
