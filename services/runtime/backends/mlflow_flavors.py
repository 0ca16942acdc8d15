"""Which of our backends serves a model that MLflow saved: its MLmodel says what is in which file, and no code runs."""

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from services.runtime.backends import KINDS, BadArtifactError


class _Flavor(NamedTuple):
    """What a flavor is called with us, and which of its fields names the file or folder."""

    framework: str
    field: str


_FLAVORS = {
    "onnx": _Flavor("onnx", "data"),
    "xgboost": _Flavor("xgboost", "data"),
    "lightgbm": _Flavor("lightgbm", "data"),
    "sklearn": _Flavor("sklearn", "pickled_model"),
    "tensorflow": _Flavor("tensorflow", "saved_model_dir"),
    "pytorch": _Flavor("torch", "model_data"),
    "sentence_transformers": _Flavor("transformers", "model_binary"),
    "transformers": _Flavor("transformers", "model_binary"),
}
_LIGHTGBM_TEXT = ".lgb"  # MLflow's own name for what LightGBM saves as text


def mapped(mark: Path) -> tuple[str, Path] | None:
    """Framework and file (or mark) of the first flavor that a backend of ours serves as it is; None = there is none.

    Raises BadArtifactError for an MLmodel that cannot be read, or that names what is not there.
    """
    for name, fields in _read(mark).items():
        flavor = _FLAVORS.get(name)
        if flavor is None or flavor.framework not in KINDS or not isinstance(fields, Mapping):
            continue
        given = fields.get(flavor.field)
        if not isinstance(given, str):
            continue
        path = mark.parent / given
        if ".." in Path(given).parts or Path(given).is_absolute() or not path.exists():
            raise BadArtifactError(f"{mark.name}: flavor {name} names {given!r}, which is not in its folder")
        found = next(_served(flavor.framework, path), None)
        if found is not None:
            return flavor.framework, found
    return None


def _read(mark: Path) -> dict[str, Any]:
    """The flavors by name. Raises BadArtifactError."""
    try:
        import yaml  # noqa: PLC0415 - comes with the extra
    except ImportError:
        raise BadArtifactError(
            f"{mark.name} needs PyYAML, which this pod has not installed: it comes with the extra mlflow; or name the"
            " framework in the model's spec"
        ) from None
    try:
        described = yaml.safe_load(mark.read_text())
    except (ValueError, RecursionError, yaml.YAMLError) as error:  # ValueError: of numbers, dates and text
        problem = " ".join(str(error).split())
        raise BadArtifactError(f"{mark.name}: expected YAML as MLflow writes it, found {problem}") from None
    flavors = described.get("flavors") if isinstance(described, dict) else None
    if not isinstance(flavors, dict) or not flavors:
        raise BadArtifactError(f"{mark.name}: expected flavors, found none")
    return flavors


def _served(framework: str, path: Path) -> Iterator[Path]:
    """What of a file or folder the framework's backend loads."""
    kind = KINDS[framework]
    if path.is_dir():
        mark = kind.folder.find(path) if kind.folder is not None else None
        if mark is not None and (framework != "transformers" or _has_tokenizer(mark.parent)):
            yield mark
        paths = sorted(each for each in path.iterdir() if each.is_file() and each.stem == "model")
    else:
        paths = [path]
    for each in paths:
        if framework == "torch" and each.suffix == ".pth" and not _is_script(each):
            continue  # a module as a pickle: only with the code that it was made by
        if each.suffix in kind.suffixes or (framework == "lightgbm" and each.suffix == _LIGHTGBM_TEXT):
            yield each


def _has_tokenizer(folder: Path) -> bool:
    """MLflow may keep it apart, and only its own loader brings the two together."""
    return any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"))


def _is_script(file: Path) -> bool:
    """Whether it is TorchScript, which carries its code along."""
    try:
        with zipfile.ZipFile(file) as archive:
            return any("/code/" in name for name in archive.namelist())
    except zipfile.BadZipFile:
        return False
