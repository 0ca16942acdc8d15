"""The words that name models, versions, labels and routing keys, checked once."""

import re
from typing import Annotated, NamedTuple

from pydantic import AfterValidator

MODEL_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]*"
VERSION_PATTERN = r"(0|[1-9][0-9]{0,17})"

_MODEL = re.compile(MODEL_PATTERN)
_VERSION = re.compile(VERSION_PATTERN)
_KEY_SOURCE = re.compile(r"header:[A-Za-z0-9_.-]+|input:.+|[^:]+")
_MAX_NAME = 128
_SHOWN = 64
_INTERNAL = ("x-turnout-", "x_turnout_", "turnout_")


class ModelVersion(NamedTuple):
    """One version of one model; versions order as numbers."""

    model: str
    version: str

    def __str__(self) -> str:
        return f"{self.model}/{self.version}"


def is_model_name(text: str) -> bool:
    return len(text) <= _MAX_NAME and _MODEL.fullmatch(text) is not None


def is_version(text: str) -> bool:
    return _VERSION.fullmatch(text) is not None


def version_order(version: str) -> int:
    """Sort key of a version: decimal strings order as numbers, so "10" comes after "9"."""
    return int(version)


def checked_model_name(text: str) -> str:
    """`text`, which may name a model. Raises ValueError saying what does."""
    if not is_model_name(text):
        raise ValueError(
            f"{_shown(text)} is no name: letters, digits, '.', '_' and '-', at most {_MAX_NAME},"
            " the first a letter or digit"
        )
    return text


def checked_version(text: str) -> str:
    """`text`, which is a version. Raises ValueError saying what one is."""
    if not is_version(text):
        raise ValueError(f"{_shown(text)} is no version: a decimal number without leading zeros, at most 18 digits")
    return text


def is_internal(name: str) -> bool:
    """Whether a header or parameter is one of the mesh's own, which counts only from callers it trusts."""
    return name.lower().startswith(_INTERNAL)


def _label(text: str) -> str:
    if is_version(text):
        raise ValueError(f"{_shown(text)} is no label: it would hide the version of that number")
    return checked_model_name(text)


def _key_source(text: str) -> str:
    if _KEY_SOURCE.fullmatch(text) is None:
        raise ValueError(
            f"{_shown(text)} names no source of a key: give NAME (a request parameter), header:NAME or input:NAME"
        )
    return text


def _shown(text: str) -> str:
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}…"


ModelName = Annotated[str, AfterValidator(checked_model_name)]
Version = Annotated[str, AfterValidator(checked_version)]
Label = Annotated[str, AfterValidator(_label)]
# Where a key comes from in a request: NAME (a parameter), header:NAME or input:NAME.
KeySource = Annotated[str, AfterValidator(_key_source)]
