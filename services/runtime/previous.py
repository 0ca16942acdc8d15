"""Versions that were served and no longer are, by model: what `keep_previous` keeps warm. Remembered over restarts."""

import asyncio
import json
from collections.abc import Collection
from pathlib import Path

import structlog

from services.core.names import is_model_name, is_version
from services.runtime.wanted import remember

log = structlog.get_logger()


class Previous:
    """`versions` holds the latest dropped first. The file is a convenience: a lost one costs a warm version."""

    def __init__(self, file: Path) -> None:
        self._file = file
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
        try:
            text = await asyncio.to_thread(self._file.read_text)
            held = json.loads(text)
            self.versions = {
                model: [version for version in versions if is_version(version)]
                for model, versions in held.items()
                if is_model_name(model)
            }
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, AttributeError) as error:
            log.warning("previous_versions_ignored", path=str(self._file), reason=str(error))

    async def save(self) -> None:
        try:
            await asyncio.to_thread(self._write, json.dumps(self.versions))
        except OSError as error:
            log.warning("previous_versions_not_written", path=str(self._file), reason=str(error))

    def _write(self, text: str) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        incoming = self._file.with_suffix(".new")
        incoming.write_text(text)
        incoming.replace(self._file)
