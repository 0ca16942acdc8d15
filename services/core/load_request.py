"""What a caller may give with a load: `config` (JSON) and `file:VERSION/PATH` (content), checked before any is used."""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from services.core.errors import InvalidRequestError
from services.core.model_config import in_our_words
from services.core.names import is_version

CONFIG, FILE, UNLOAD_DEPENDENTS = "config", "file:", "unload_dependents"
MAX_FILES = 1000
_MAX_PATH = 255


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """Fields of models/MODEL to override, and files that are the model's only versions from now on."""

    overrides: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)  # VERSION/PATH -> content


def parse_load(model: str, parameters: Mapping[str, Any]) -> LoadRequest:
    """A load's parameters as they come over the wire: a file is bytes, or base64 text. Raises InvalidRequestError."""
    files: dict[str, bytes] = {}
    overrides: dict[str, Any] = {}
    for name, value in parameters.items():
        if name == CONFIG:
            overrides = parse_config(model, value)
        elif name.startswith(FILE):
            files[checked_path(name.removeprefix(FILE))] = _content(name, value)
        else:
            raise InvalidRequestError(f"load parameter {name!r} is unknown: give config, or file:VERSION/PATH")
    if files and CONFIG not in parameters:
        raise InvalidRequestError("load parameter file:VERSION/PATH needs config too, if only {}")
    if len(files) > MAX_FILES:
        raise InvalidRequestError(f"a load has {len(files)} files, over {MAX_FILES}")
    return LoadRequest(overrides, files)


def check_unload(parameters: Mapping[str, Any]) -> None:
    """Raise InvalidRequestError for a parameter that no unload takes. No model has dependents."""
    for name, value in parameters.items():
        if name != UNLOAD_DEPENDENTS:
            raise InvalidRequestError(f"unload parameter {name!r} is unknown: there is unload_dependents only")
        if not isinstance(value, bool):
            raise InvalidRequestError(f"unload parameter unload_dependents is {value!r}: true or false")


def checked_path(path: str) -> str:
    """VERSION/PATH of an uploaded file, which stays below its version. Raises InvalidRequestError."""
    parts = path.split("/")
    is_inside = len(parts) > 1 and is_version(parts[0]) and len(path) <= _MAX_PATH
    if not is_inside or any(not part or part.startswith(".") or not _is_plain(part) for part in parts):
        raise InvalidRequestError(
            f"file:{path[:_MAX_PATH]!r} is no place for a file: VERSION/PATH, of names that are not hidden, as in"
            " file:1/model.onnx"
        )
    return str(PurePosixPath(*parts))


def parse_config(model: str, text: object) -> dict[str, Any]:
    """Fields of models/MODEL that `config` sets. Raises InvalidRequestError, with the field's name."""
    if not isinstance(text, str):
        raise InvalidRequestError("load parameter config is no text: a JSON object as a string")
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"load parameter config is no JSON: {error}") from None
    if not isinstance(config, dict):
        raise InvalidRequestError('load parameter config is no JSON object, as in {"max_batch_size": 8}')
    return in_our_words(model, config)


def _content(name: str, value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    try:
        return base64.b64decode(value if isinstance(value, str) else "?", validate=True)
    except (ValueError, binascii.Error):
        raise InvalidRequestError(f"load parameter {name!r} is neither bytes nor base64") from None


def _is_plain(part: str) -> bool:
    return part.isprintable() and not any(sign in part for sign in '\\:*?"<>|')
