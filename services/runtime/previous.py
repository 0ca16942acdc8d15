"""Versions that were served and no longer are, by model: what `keep_previous` keeps warm. Remembered over restarts."""

import asyncio
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from services.core.names import is_model_name, is_version
from services.runtime.kept_json import KeptJson
from services.runtime.wanted import remember


class Previous:
    """`versions` holds the latest dropped first. The file is a convenience: a lost one costs a warm version."""

    def __init__(self, file: Path) -> None:
        self._kept = KeptJson(file, "previous_versions")
        self._asked: dict[str, set[str]] = {}
        self.versions: dict[str, list[str]] = {}
        self.is_unsaved = False

    def note(self, model: str, asked: Collection[str], serving: Collection[str]) -> None:
        """Take what is asked for now, and which versions are ready: those drop into memory when no longer asked for."""
        before = self._asked.get(model, set()) & set(serving)
        versions = remember(self.versions.get(model, ()), before, asked)
        self._asked[model] = set(asked)
        if versions != self.versions.get(model, []):
            self.versions[model] = versions
            self.is_unsaved = True

    async def load(self) -> None:
        held = await asyncio.to_thread(lambda: self._kept.read(_parsed))
        if held is not None:
            self.versions = held

    async def save(self) -> None:
        await asyncio.to_thread(self._kept.write, json.dumps(self.versions))


def _parsed(held: Any) -> dict[str, list[str]]:
    return {
        model: [version for version in versions if is_version(version)]
        for model, versions in held.items()
        if is_model_name(model)
    }
