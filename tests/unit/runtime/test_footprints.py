"""How much memory a worker will need."""

from pathlib import Path

import pytest

from services.runtime.footprints import Footprints, Need, size_of

MIB = 1 << 20


def test_what_was_measured_comes_before_the_limit_and_that_before_a_guess(tmp_path: Path) -> None:
    footprints = Footprints(tmp_path / "f.json")
    footprints.note("d", 100 * MIB)

    assert footprints.need("d", "onnx", 10 * MIB, 900 * MIB) == Need(110 * MIB, is_guess=False)
    assert footprints.need("d", "onnx", 10 * MIB, 105 * MIB) == Need(105 * MIB, is_guess=False)
    assert footprints.need("e", "onnx", 10 * MIB, 900 * MIB) == Need(900 * MIB, is_guess=False)
    assert footprints.need("e", "onnx", 10 * MIB, None) == Need(170 * MIB, is_guess=True)
    assert footprints.need("e", "tensorflow", 0, None) == Need(700 * MIB, is_guess=True)


async def test_what_was_measured_is_known_after_a_restart(tmp_path: Path) -> None:
    before = Footprints(tmp_path / "state" / "f.json")
    before.note("d", 100 * MIB)
    await before.save()
    before.note("d", 101 * MIB)
    after = Footprints(tmp_path / "state" / "f.json")
    await after.load()

    assert after.need("d", "onnx", 0, None) == Need(110 * MIB, is_guess=False)
    assert not before.is_unsaved


@pytest.mark.parametrize("text", ["{", "[]", '{"d": "much"}'])
async def test_a_file_that_cannot_be_read_costs_a_guess(tmp_path: Path, text: str) -> None:
    (tmp_path / "f.json").write_text(text)
    footprints = Footprints(tmp_path / "f.json")
    await footprints.load()

    assert footprints.need("d", "onnx", 0, None).is_guess


def test_the_memory_of_artifacts_is_bounded(tmp_path: Path) -> None:
    footprints = Footprints(tmp_path / "f.json")
    for number in range(5000):
        footprints.note(str(number), MIB)

    assert footprints.need("0", "onnx", 0, None).is_guess
    assert not footprints.need("4999", "onnx", 0, None).is_guess


def test_an_artifact_has_the_size_of_all_its_files(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "a").write_bytes(b"123")
    (tmp_path / "model" / "b").write_bytes(b"4567")

    assert size_of(tmp_path / "model") == size_of(tmp_path / "model" / "a") == 7
