"""Which framework an artifact is of."""

from pathlib import Path

import pytest

from services.runtime import backends
from services.runtime.backends import KINDS, BadArtifactError, Kind
from services.runtime.backends import detect as module
from services.runtime.backends.detect import content, detect
from services.runtime.backends.folders import CHECKPOINT, SAVED_MODEL

HEADS = {
    "model.onnx": b"\x08\x09\x12",
    "model.skops": b"PK\x03\x04",
    "model.joblib": b"\x80\x04\x95",
    "model.pkl": b"\x80\x04\x95",
    "model.json": b'{"learner":{',
    "model.ubj": b"{L\x00\x00",
    "model.txt": b"tree\nversion=v4\n",
    "model.py": b"class Model: ...",
}


def put(folder: Path, *names: str, **contents: bytes) -> Path:
    for name in names:
        (folder / name).write_bytes(HEADS.get(name, b"\x08\x09"))
    for name, text in contents.items():
        (folder / name.replace("__", ".")).write_bytes(text)
    return folder


@pytest.mark.parametrize(
    ("name", "framework"),
    [
        ("model.onnx", "onnx"),
        ("model.skops", "sklearn"),
        ("model.joblib", "sklearn"),
        ("model.pkl", "sklearn"),
        ("model.json", "xgboost"),
        ("model.ubj", "xgboost"),
        ("model.txt", "lightgbm"),
        ("model.py", "python"),
    ],
)
def test_the_suffix_names_the_framework(tmp_path: Path, name: str, framework: str) -> None:
    put(tmp_path, name, "README.md", "weights.bin")

    assert detect(tmp_path) == (framework, tmp_path / name)
    assert detect(tmp_path, framework) == (framework, tmp_path / name)


def test_any_single_file_of_a_known_suffix_will_do(tmp_path: Path) -> None:
    put(tmp_path, "ranker-final.onnx", "ranker-final.onnx.data")

    assert detect(tmp_path).file.name == "ranker-final.onnx"


def test_of_several_the_one_named_model_is_meant(tmp_path: Path) -> None:
    put(tmp_path, "model.onnx", metadata__json=b"{}")

    assert detect(tmp_path).file.name == "model.onnx"


def test_the_given_framework_decides_between_two(tmp_path: Path) -> None:
    put(tmp_path, "model.onnx", "model.json")
    with pytest.raises(BadArtifactError, match=r"expected one model file, found model.json, model.onnx"):
        detect(tmp_path)

    assert detect(tmp_path, "xgboost").file.name == "model.json"


def test_json_is_of_the_framework_whose_fields_it_has(tmp_path: Path) -> None:
    put(tmp_path, model__json=b'{"name": "tree", "version": "v4", "num_class": 1')

    assert detect(tmp_path) == ("lightgbm", tmp_path / "model.json")
    assert detect(tmp_path, "lightgbm") == ("lightgbm", tmp_path / "model.json")


def test_notes_and_helpers_beside_a_model_are_no_models(tmp_path: Path) -> None:
    put(tmp_path, "model.onnx", "model.py", model__txt=b"what it is", train__py=b"", requirements__txt=b"")

    assert detect(tmp_path) == ("onnx", tmp_path / "model.onnx")
    assert detect(tmp_path, "python") == ("python", tmp_path / "model.py")


def test_a_skops_file_is_preferred_to_the_same_as_a_pickle(tmp_path: Path) -> None:
    put(tmp_path, "model.skops", "model.joblib", "model.pkl")

    assert detect(tmp_path) == ("sklearn", tmp_path / "model.skops")


def test_no_model_file_says_what_would_be_one(tmp_path: Path) -> None:
    put(tmp_path, "weights.h5", "notes.txt")
    with pytest.raises(BadArtifactError) as caught:
        detect(tmp_path, "xgboost")

    assert str(caught.value) == "expected one of *.json *.ubj (xgboost); found notes.txt, weights.h5"


@pytest.mark.parametrize(
    ("name", "head", "found"),
    [
        ("model.txt", b"notes about it", "unknown data"),
        ("model.py", b"\x80\x04", "a pickle"),
        ("model.onnx", b"tree\n", "a LightGBM model"),
        ("model.onnx", b"", "nothing: the file is empty"),
        ("model.onnx", b"version https://git-lfs.github.com/spec/v1", "a Git LFS pointer"),
        ("model.onnx", b"<!doctype html>", "a web page or XML"),
        ("model.skops", b"\x80\x04", "a pickle"),
        ("model.joblib", b"PK\x03\x04", "a zip archive"),
        ("model.json", b"{L\x00\x00", "UBJSON"),
        ("model.ubj", b'{"learner":', "JSON"),
        ("model.ubj", b"binf\x00\x00", "a model in the old binary format of XGBoost; save it again with"),
    ],
)
def test_foreign_content_is_named(tmp_path: Path, name: str, head: bytes, found: str) -> None:
    (tmp_path / name).write_bytes(head)
    with pytest.raises(BadArtifactError) as caught:
        detect(tmp_path)

    assert str(caught.value).startswith(f"{name}: expected ")
    assert f", found {found}" in str(caught.value)


def test_xgboosts_old_format_is_refused_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "model.bst").write_bytes(b"binf")
    with pytest.raises(BadArtifactError, match=r"model.bst: the old binary format.*save_model\('model.ubj'\)"):
        detect(tmp_path)


def test_a_framework_that_is_not_installed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "model.onnx")
    monkeypatch.setattr(module, "is_installed", lambda _: False)
    with pytest.raises(BadArtifactError, match=r"model.onnx needs onnxruntime, which this pod has not installed"):
        detect(tmp_path)


def test_what_is_installed_is_known_without_importing_it() -> None:
    assert all(backends.is_installed(framework) for framework in backends.KINDS)


def test_content_of_unknown_data_is_unknown() -> None:
    assert content(b"\x08\x01") == "unknown data"


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frameworks whose artifacts are folders, as if they were installed."""
    monkeypatch.setitem(KINDS, "tensorflow", Kind("none", "json", folder=SAVED_MODEL))
    monkeypatch.setitem(KINDS, "transformers", Kind("none", "json", folder=CHECKPOINT))


def put_checkpoint(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    put(folder, config__json=b'{"model_type": "bert"}', tokenizer__json=b"{}", model__safetensors=b"\x08\x00")
    return folder


@pytest.mark.parametrize("inside", ["", "model.savedmodel"])
@pytest.mark.usefixtures("folders")
def test_a_saved_model_is_where_its_graph_is(tmp_path: Path, inside: str) -> None:
    (tmp_path / inside).mkdir(exist_ok=True)
    put(tmp_path / inside, "saved_model.pb", fingerprint__pb=b"\x08", keras_metadata__json=b"{}")
    put(tmp_path, readme__txt=b"notes")

    assert detect(tmp_path) == ("tensorflow", tmp_path / inside / "saved_model.pb")
    assert detect(tmp_path, "tensorflow") == ("tensorflow", tmp_path / inside / "saved_model.pb")


@pytest.mark.parametrize("inside", ["", "checkpoint"])
@pytest.mark.usefixtures("folders")
def test_a_checkpoint_is_where_its_configuration_and_weights_are(tmp_path: Path, inside: str) -> None:
    put_checkpoint(tmp_path / inside)

    assert detect(tmp_path) == ("transformers", tmp_path / inside / "config.json")


@pytest.mark.usefixtures("folders")
def test_a_configuration_without_weights_or_model_type_marks_no_checkpoint(tmp_path: Path) -> None:
    (put_checkpoint(tmp_path / "a") / "model.safetensors").unlink()
    put(put_checkpoint(tmp_path / "b"), config__json=b'{"vocab_size": 3}')
    put(put_checkpoint(tmp_path / "c"), config__json=b"model_type")

    with pytest.raises(BadArtifactError, match=r"expected one of a checkpoint: config\.json .*; found a/, b/, c/$"):
        detect(tmp_path, "transformers")


@pytest.mark.usefixtures("folders")
def test_two_checkpoints_are_not_chosen_from(tmp_path: Path) -> None:
    put_checkpoint(tmp_path / "a")
    put_checkpoint(tmp_path / "b")

    with pytest.raises(BadArtifactError, match=r"a checkpoint.*; found a/, b/$"):
        detect(tmp_path)


@pytest.mark.usefixtures("folders")
def test_beside_a_folder_only_a_file_named_model_is_another_model(tmp_path: Path) -> None:
    put(put_checkpoint(tmp_path), "model.json", "optimizer.onnx", "model.py")
    assert detect(tmp_path).framework == "transformers"

    put(tmp_path, "model.onnx")
    with pytest.raises(BadArtifactError, match=r"found config\.json, model\.onnx: name the right framework"):
        detect(tmp_path)
    assert detect(tmp_path, "transformers").framework == "transformers"
    assert detect(tmp_path, "onnx").file.name == "model.onnx"


def test_a_model_of_another_server_is_known_by_its_file_whatever_lies_beside_it(tmp_path: Path) -> None:
    put(tmp_path, "remote.json", ca__pem=b"----", notes__txt=b"tree of life", model__json=b'{"learner": {}}')

    assert detect(tmp_path) == ("triton", tmp_path / "remote.json")
