import asyncio
from pathlib import Path

import numpy as np
import pytest

from services.cli.data_dir import DataDir
from services.cli.demo.held_out import HeldOut
from services.cli.demo.keys import MODELS, ROUTES
from services.cli.demo.prepare import columns, is_prepared, prepare
from services.runtime.backends import Options, backend_for
from services.runtime.backends.detect import detect


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataDir:
    folder = DataDir(tmp_path_factory.mktemp("demo")).create()
    asyncio.run(prepare(folder, lambda _: None))
    return folder


def test_what_was_made_is_not_made_again(data: DataDir) -> None:
    assert is_prepared(data)


def test_an_older_recipe_or_a_lost_file_is_made_again(data: DataDir, tmp_path: Path) -> None:
    assert not is_prepared(DataDir(tmp_path))
    manifest = data.demo / "manifest.json"
    good = manifest.read_text()
    try:
        manifest.write_text(good.replace('"recipe": "', '"recipe": "x'))
        assert not is_prepared(data)
        manifest.write_text("{")
        assert not is_prepared(data)
    finally:
        manifest.write_text(good)


@pytest.mark.parametrize("version", ["1", "2", "3"])
def test_every_version_of_digits_loads_in_its_backend_and_is_right(data: DataDir, version: str) -> None:
    found = detect(data.models / "digits" / version)
    backend = backend_for(found.framework)
    rows = HeldOut.load(data.demo / "held_out.npz")

    signature = backend.load(found.file, Options())
    outputs = backend.run({"x": rows.digits})

    assert [spec.name for spec in signature.inputs] == ["x"]
    assert {(spec.name, spec.datatype, spec.shape) for spec in signature.outputs} == {
        ("label", "INT64", (-1,)),
        ("probabilities", "FP32", (-1, 10)),
    }
    assert np.mean(outputs["label"] == rows.digit_labels) > 0.93
    assert np.allclose(outputs["probabilities"].sum(axis=1), 1, atol=1e-3)


def test_the_ranker_answers_what_numpy_does(data: DataDir) -> None:
    backend = backend_for("onnx")
    rows = HeldOut.load(data.demo / "held_out.npz")
    backend.load(data.models / "ranker" / "1" / "model.onnx", Options())

    assert np.allclose(backend.run({"x": rows.candidates})["y"][:, 0], rows.scores, atol=1e-4)


def test_the_patients_are_held_out_and_their_features_lie_in_the_store(data: DataDir) -> None:
    rows = HeldOut.load(data.demo / "held_out.npz")

    assert len(set(rows.patients.tolist())) == len(rows.patients) == 171
    assert len(columns(data)) == 30
    assert data.features.stat().st_size > 569 * 30 * 4


def test_models_that_were_added_by_hand_survive_a_new_recipe(tmp_path: Path) -> None:
    folder = DataDir(tmp_path).create()
    own = folder.models / "own" / "1" / "model.onnx"
    own.parent.mkdir(parents=True)
    own.write_bytes(b"mine")

    asyncio.run(prepare(folder, lambda _: None))

    assert own.read_bytes() == b"mine"


def test_routes_name_models_that_exist() -> None:
    assert ROUTES.keys() == MODELS.keys()
