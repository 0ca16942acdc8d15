"""What MLflow saved is served by the backend of its flavor, where that can."""

import io
import zipfile
from pathlib import Path

import pytest
import yaml

from services.runtime.backends import KINDS, BadArtifactError, Kind
from services.runtime.backends.detect import detect
from services.runtime.backends.folders import CHECKPOINT

SKOPS, PICKLE, TREES = b"PK\x03\x04", b"\x80\x04\x95", b"tree\nversion=v4\n"


def write(folder: Path, flavors: object, **contents: bytes) -> Path:
    """An MLmodel and other files; `__` in a name stands for a dot, `___` for a folder's end."""
    (folder / "MLmodel").write_text(yaml.safe_dump({"flavors": flavors, "mlflow_version": "3.17.2"}))
    (folder / "python_env.yaml").write_text("python: 3.11")
    for name, content in contents.items():
        path = folder / name.replace("___", "/").replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def script(inside: str) -> bytes:
    """An archive as torch writes it."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(inside, "")
    return made.getvalue()


@pytest.fixture(autouse=True)
def _backends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every backend that a flavor may be mapped to, as if all were installed."""
    monkeypatch.setitem(KINDS, "torch", Kind("none", "json", (".pt", ".pth", ".pt2")))
    monkeypatch.setitem(KINDS, "transformers", Kind("none", "json", folder=CHECKPOINT))
    monkeypatch.setitem(KINDS, "tensorflow", KINDS["tensorflow"]._replace(needs="json"))
    monkeypatch.setitem(KINDS, "mlflow", KINDS["mlflow"]._replace(needs="json"))


@pytest.mark.parametrize(
    ("flavor", "fields", "files", "found"),
    [
        ("onnx", {"data": "model.onnx"}, {"model__onnx": b"\x08\x09"}, ("onnx", "model.onnx")),
        ("sklearn", {"pickled_model": "model.skops"}, {"model__skops": SKOPS}, ("sklearn", "model.skops")),
        ("sklearn", {"pickled_model": "model.pkl"}, {"model__pkl": PICKLE}, ("sklearn", "model.pkl")),
        ("xgboost", {"data": "model.ubj"}, {"model__ubj": b"{L\x00"}, ("xgboost", "model.ubj")),
        ("xgboost", {"data": "model.xgb"}, {"model__xgb": b"binf"}, ("mlflow", "MLmodel")),
        ("lightgbm", {"data": "model.lgb"}, {"model__lgb": TREES}, ("lightgbm", "model.lgb")),
        ("lightgbm", {"data": "model.pkl"}, {"model__pkl": PICKLE}, ("mlflow", "MLmodel")),
        ("tensorflow", {"saved_model_dir": "tf2model"}, {"tf2model___saved_model__pb": b"\x08"},
         ("tensorflow", "tf2model/saved_model.pb")),
        ("tensorflow", {"data": "data"}, {"data___model__keras": SKOPS}, ("mlflow", "MLmodel")),
        ("pytorch", {"model_data": "data"}, {"data___model__pth": script("model/code/x.py")},
         ("torch", "data/model.pth")),
        ("pytorch", {"model_data": "data"}, {"data___model__pth": script("model/data.pkl")}, ("mlflow", "MLmodel")),
        ("pytorch", {"model_data": "data"}, {"data___model__pt2": SKOPS}, ("torch", "data/model.pt2")),
        ("transformers", {"model_binary": "model"},
         {"model___config__json": b'{"model_type": "bert"}', "model___a__safetensors": b"",
          "model___tokenizer__json": b"{}"}, ("transformers", "model/config.json")),
        ("transformers", {"model_binary": "model"},
         {"model___config__json": b'{"model_type": "bert"}', "model___a__safetensors": b""}, ("mlflow", "MLmodel")),
        ("python_function", {"loader_module": "m"}, {"model__onnx": b"\x08\x09"}, ("mlflow", "MLmodel")),
        ("spark", {"model_data": "sparkml"}, {"sparkml___x": b""}, ("mlflow", "MLmodel")),
    ],
)  # fmt: skip
def test_a_flavor_is_served_by_its_own_backend_where_that_can(
    tmp_path: Path, flavor: str, fields: dict[str, str], files: dict[str, bytes], found: tuple[str, str]
) -> None:
    write(tmp_path, {"python_function": {"loader_module": f"mlflow.{flavor}"}, flavor: fields}, **files)

    assert detect(tmp_path) == (found[0], tmp_path / found[1])
    assert detect(tmp_path, "mlflow") == ("mlflow", tmp_path / "MLmodel")
    if found[0] != "mlflow":
        assert detect(tmp_path, found[0]) == (found[0], tmp_path / found[1])


def test_a_named_framework_is_looked_for_without_the_flavors(tmp_path: Path) -> None:
    write(tmp_path, {"python_function": {}}, model__onnx=b"\x08\x09")
    assert detect(tmp_path, "onnx") == ("onnx", tmp_path / "model.onnx")

    (tmp_path / "MLmodel").write_text("{")
    assert detect(tmp_path, "onnx") == ("onnx", tmp_path / "model.onnx")


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"flavors: {", "expected YAML as MLflow writes it, found "),
        (b"\xff", "expected YAML as MLflow writes it, found "),
        (b"flavors: !!python/object/apply:os.getcwd []", "expected YAML as MLflow writes it, found "),
        (b"- 1", "expected flavors, found none"),
        (b"flavors: {}", "expected flavors, found none"),
        (b"flavors: {onnx: {data: gone.onnx}}", "flavor onnx names 'gone.onnx', which is not in its folder"),
        (b"flavors: {onnx: {data: ../model.onnx}}", "flavor onnx names '../model.onnx', which is not in its folder"),
        (b"flavors: {onnx: {data: /etc/hosts}}", "flavor onnx names '/etc/hosts', which is not in its folder"),
    ],
)
def test_what_is_no_description_is_refused(tmp_path: Path, content: bytes, fault: str) -> None:
    (tmp_path / "model.onnx").write_bytes(b"\x08\x09")
    version = tmp_path / "1"
    version.mkdir()
    (version / "MLmodel").write_bytes(content)

    with pytest.raises(BadArtifactError) as caught:
        detect(version)
    assert str(caught.value).startswith(f"MLmodel: {fault}")


def test_the_file_of_a_flavor_must_be_what_its_name_says(tmp_path: Path) -> None:
    write(tmp_path, {"onnx": {"data": "model.onnx"}}, model__onnx=b"<html>")

    with pytest.raises(BadArtifactError, match=r"^model\.onnx: expected an ONNX model \(protobuf\), found a web page"):
        detect(tmp_path)


def test_the_backend_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "mlflow", KINDS["mlflow"]._replace(needs="not_installed_here"))
    write(tmp_path, {"python_function": {}})

    with pytest.raises(BadArtifactError, match=r"^MLmodel needs not_installed_here, which this pod has not installed$"):
        detect(tmp_path)


@pytest.mark.parametrize("text", ["flavors: 2001-99-99", "flavors: {a: 0b_}", "flavors: " + "[" * 20_000])
def test_what_yaml_stumbles_over_is_a_fault_of_the_artifact(tmp_path: Path, text: str) -> None:
    (tmp_path / "MLmodel").write_text(text)

    with pytest.raises(BadArtifactError, match="MLmodel: expected YAML as MLflow writes it, found "):
        detect(tmp_path)
