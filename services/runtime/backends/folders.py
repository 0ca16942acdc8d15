"""Artifacts that are a folder: each is known by one file in it, its mark, and the folder is where the mark lies."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Folder(NamedTuple):
    """How the folders of one framework are known."""

    described: str
    find: Callable[[Path], Path | None]  # the mark of the one in a version's folder
    own: tuple[str, ...] = ()  # suffixes of model.* beside the mark that belong to it


def _saved_model(version: Path) -> Path | None:
    """As TF Serving has it, or as Triton has it."""
    marks = (version / "saved_model.pb", version / "model.savedmodel" / "saved_model.pb")
    return next((mark for mark in marks if mark.is_file()), None)


def _checkpoint(version: Path) -> Path | None:
    """In the version's folder or in one folder of it."""
    if _has_checkpoint(version):
        return version / "config.json"
    inside = [entry for entry in sorted(version.iterdir()) if entry.is_dir() and _has_checkpoint(entry)]
    return inside[0] / "config.json" if len(inside) == 1 else None


def _has_checkpoint(folder: Path) -> bool:
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(config, dict) and "model_type" in config and any(folder.glob("*.safetensors"))


def _remote(version: Path) -> Path | None:
    mark = version / "remote.json"
    return mark if mark.is_file() else None


def _mlflow(version: Path) -> Path | None:
    mark = version / "MLmodel"
    return mark if mark.is_file() else None


SAVED_MODEL = Folder("a SavedModel: saved_model.pb, also in model.savedmodel/", _saved_model)
CHECKPOINT = Folder("a checkpoint: config.json with a model_type and *.safetensors", _checkpoint, (".safetensors",))
REMOTE = Folder("remote.json", _remote)
MLFLOW = Folder("a model of MLflow: MLmodel", _mlflow)
