"""The words that name models and versions, checked once."""

import re
from typing import Annotated, NamedTuple

from pydantic import StringConstraints

MODEL_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]*"
VERSION_PATTERN = r"(0|[1-9][0-9]{0,17})"

ModelName = Annotated[str, StringConstraints(pattern=f"^{MODEL_PATTERN}$", max_length=128)]
Version = Annotated[str, StringConstraints(pattern=f"^{VERSION_PATTERN}$")]

_MODEL = re.compile(MODEL_PATTERN)
_VERSION = re.compile(VERSION_PATTERN)


class ModelVersion(NamedTuple):
    """One version of one model; versions order as numbers."""

    model: str
    version: str

    def __str__(self) -> str:
        return f"{self.model}/{self.version}"


def is_model_name(text: str) -> bool:
    return len(text) <= 128 and _MODEL.fullmatch(text) is not None


def is_version(text: str) -> bool:
    return _VERSION.fullmatch(text) is not None


def version_order(version: str) -> int:
    """Sort key of a version: decimal strings order as numbers, so "10" comes after "9"."""
    return int(version)
