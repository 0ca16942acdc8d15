"""Which framework an artifact is of, from its files' names and first bytes."""

from pathlib import Path
from typing import NamedTuple

from services.runtime.backends import KINDS, BadArtifactError, is_installed
from services.runtime.backends.folders import MLFLOW
from services.runtime.backends.mlflow_flavors import mapped
from services.runtime.backends.torch_files import NETWORK

_OLD_XGBOOST = (".bst", ".model", ".deprecated")
_LISTED = 8
_HEAD_BYTES = 4096
_PICKLE_SUFFIXES = (".joblib", ".pkl")
_MAGIC = (
    (b"", "nothing: the file is empty"),
    (b"version https://git-lfs", "a Git LFS pointer: fetch the real file with `git lfs pull`"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ", "xz data"),
    (b"\x04\x22\x4d\x18", "lz4 data"),
    (b"\x89HDF", "an HDF5 file"),
    (b"tree\n", "a LightGBM model"),
    (b"tree\r\n", "a LightGBM model"),
    (b"binf", "a model in the old binary format of XGBoost"),
    (b"<", "a web page or XML"),
    (b"\x80", "a pickle"),
    (b"x\x01", "zlib data"),
    (b"x\x5e", "zlib data"),
    (b"x\x9c", "zlib data"),
    (b"x\xda", "zlib data"),
)
_PICKLED = {"a pickle", "gzip data", "bzip2 data", "xz data", "lz4 data", "zlib data"}
_SAVE_AGAIN = "save it again with Booster.save_model('model.ubj') or XGBClassifier.save_model('model.json')"
_WEAK_SUFFIXES = (".json", ".txt", ".py")  # of much that lies beside a model


class Found(NamedTuple):
    framework: str
    file: Path  # of an artifact that is a folder: its mark


def detect(folder: Path, framework: str | None = None) -> Found:
    """The model file in a version's folder, of `framework` when it is given; of a model that is a folder its mark.

    What lies beside a mark is that model's own, unless another framework's model.* is there too. Raises
    BadArtifactError when there is none or several, when its first bytes belong to something else, or when the
    framework is not installed.
    """
    described = _described(folder, framework)
    if described is not None:
        return _usable(described)
    files = sorted(entry for entry in folder.iterdir() if entry.is_file())
    allowed = (framework,) if framework else tuple(KINDS)
    found = [Found(name, file) for file in files for name in allowed if file.suffix in KINDS[name].suffixes]
    if not framework:
        found = _by_content(found)
    if len(found) > 1:
        found = [each for each in found if each.file.stem == "model"] or found
    if any(each.file.suffix == ".skops" for each in found):  # the same without code of its own
        found = [each for each in found if each.file.suffix not in _PICKLE_SUFFIXES]
    marked = _marked(folder, allowed)
    if marked:
        own = _WEAK_SUFFIXES + tuple(suffix for each in marked for suffix in _own(each.framework))
        found = marked + [each for each in found if each.file.stem == "model" and each.file.suffix not in own]
    if len(found) != 1:
        raise BadArtifactError(_not_one(folder, found, allowed))
    return _usable(found[0])


def _usable(found: Found) -> Found:
    """The same. Raises BadArtifactError where its content is not what its name says, or its framework is not there."""
    if found.file.suffix in KINDS[found.framework].suffixes:
        _check_content(found)
    if not is_installed(found.framework):
        needs = KINDS[found.framework].needs
        raise BadArtifactError(f"{found.file.name} needs {needs}, which this pod has not installed")
    return found


def content(head: bytes) -> str:
    """What the first bytes of a file say it is."""
    if not head:
        return _MAGIC[0][1]
    for magic, name in _MAGIC[1:]:
        if head.startswith(magic):
            return name
    if head[:1] == b"{":
        return "JSON" if head[1:].lstrip()[:1] in (b'"', b"}", b"") else "UBJSON"
    return "unknown data"


def _by_content(found: list[Found]) -> list[Found]:
    """Those of `found` whose suffix says too little and whose content agrees; text and code only where nothing else is.

    Notes end in .txt and helpers in .py: they are a model if they look like one, or are named model.* and alone.
    """
    sure, unsure = [], []
    for each in found:
        match each.file.suffix:
            case ".json":
                if each.framework == ("lightgbm" if _has_lightgbm_fields(each.file) else "xgboost"):
                    sure.append(each)
            case ".txt" if not _head(each.file).startswith((b"tree\n", b"tree\r\n")):
                unsure.append(each)
            case ".safetensors" if not each.file.with_name(NETWORK).is_file():
                pass  # weights that nothing here can run
            case ".py":
                unsure.append(each)
            case _:
                sure.append(each)
    return sure or [each for each in unsure if each.file.stem == "model"]


def _own(framework: str) -> tuple[str, ...]:
    """Suffixes of files that belong to a model that is a folder."""
    folder = KINDS[framework].folder
    return folder.own if folder is not None else ()


def _described(folder: Path, framework: str | None) -> Found | None:
    """What an MLmodel says is there, of `framework` when it is given; "mlflow" means MLflow's own way to load it."""
    mark = MLFLOW.find(folder)
    if mark is None or framework == "mlflow":
        return None
    try:
        flavor = mapped(mark)
    except BadArtifactError:
        if framework is None:
            raise
        return None  # the file may be found without it
    if framework is not None:
        return Found(*flavor) if flavor is not None and flavor[0] == framework else None
    return Found(*flavor) if flavor is not None else Found("mlflow", mark)


def _marked(folder: Path, allowed: tuple[str, ...]) -> list[Found]:
    """Models that are folders."""
    kinds = [(name, KINDS[name].folder) for name in allowed]
    marks = [(name, kind.find(folder)) for name, kind in kinds if kind is not None]
    return [Found(name, mark) for name, mark in marks if mark is not None]


def _has_lightgbm_fields(file: Path) -> bool:
    head = _head(file)
    return b'"learner"' not in head and any(
        name in head for name in (b'"name": "tree"', b'"name":"tree"', b'"tree_info"')
    )


def _head(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(_HEAD_BYTES)


def _not_one(folder: Path, found: list[Found], allowed: tuple[str, ...]) -> str:
    if found:
        names = ", ".join(each.file.name for each in found)
        if len({each.framework for each in found}) > 1 and any(KINDS[each.framework].folder for each in found):
            return f"expected one model, found {names}: name the right framework in the model's spec"
        return f"expected one model file, found {names}: name the right one model.*"
    entries = sorted(folder.iterdir())
    old = [entry.name for entry in entries if entry.suffix in _OLD_XGBOOST]
    if old:
        return f"{old[0]}: the old binary format of XGBoost is not loaded; {_SAVE_AGAIN}"
    suffixes = {name: [f"*{suffix}" for suffix in KINDS[name].suffixes] for name in allowed}
    expected = [f"{' '.join(each)} ({name})" for name, each in suffixes.items() if each]
    expected += [f"{kind.described} ({name})" for name in allowed if (kind := KINDS[name].folder)]
    names = ", ".join(f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries[:_LISTED]) or "no file"
    return f"expected one of {', '.join(expected)}; found {names}{' …' if len(entries) > _LISTED else ''}"


def _check_content(model: Found) -> None:
    file = model.file
    found = content(_head(file)[:64])
    match file.suffix:
        case ".onnx":
            expected, fits = "an ONNX model (protobuf)", found == "unknown data"
        case ".skops":
            expected, fits = "a skops file (zip)", found == "a zip archive"
        case ".json":
            name = "a LightGBM" if model.framework == "lightgbm" else "an XGBoost"
            expected, fits = f"{name} model in JSON", found == "JSON"
        case ".ubj":
            expected, fits = "an XGBoost model in UBJSON", found == "UBJSON"
        case ".txt":
            expected, fits = "a LightGBM model in text", found == "a LightGBM model"
        case ".pt" | ".pth" | ".jit" | ".ts" | ".pt2":
            expected = "TorchScript, an exported program or an AOTInductor package (zip)"
            fits = found in {"a zip archive", "a pickle"}  # the second may be weights
        case ".py":
            expected, fits = "Python code with a class Model", found == "unknown data"
        case ".joblib" | ".pkl":
            expected, fits = "a joblib file (pickle)", found in _PICKLED
        case _:
            return
    if not fits:
        hint = f"; {_SAVE_AGAIN}" if found.endswith("of XGBoost") else ""
        raise BadArtifactError(f"{file.name}: expected {expected}, found {found}{hint}")
