"""What the repositories of this pod's models hold, looked at again and again."""

import asyncio
import time
from collections.abc import Mapping
from typing import NamedTuple

import structlog

from services.core.model_spec import ModelSpec
from services.runtime.source import Artifact, BadRepositoryError, is_settled, path_of, scan

log = structlog.get_logger()


class Sighting(NamedTuple):
    """A version as the last look found it, unchanged since `since_s` (monotonic)."""

    artifact: Artifact
    since_s: float


class Catalogue:
    """Versions by model. A repository that cannot be read keeps what it last showed."""

    def __init__(self, default_repository: str, settle_s: float) -> None:
        self._default = default_repository
        self._settle_s = settle_s
        self._whole: dict[str, set[str]] = {}  # seen settled once; a later change does not make a version disappear
        self.versions: dict[str, dict[str, Sighting]] = {}
        self.faults: dict[str, str] = {}  # by model

    async def look(self, specs: Mapping[str, ModelSpec]) -> None:
        """Look at the repositories of these models, off the loop."""
        found = await asyncio.to_thread(self._scan, dict(specs))
        now_s = time.monotonic()
        for model, result in found.items():
            self._take(model, result, now_s)
        for gone in [model for model in self.versions if model not in specs]:
            del self.versions[gone]
            self._whole.pop(gone, None)
            self.faults.pop(gone, None)

    def available(self) -> dict[str, set[str]]:
        """The versions that a policy may choose from: a half-copied one is not the latest yet."""
        for model, versions in self.versions.items():
            whole = {version for version, sighting in versions.items() if self.is_settled(sighting)}
            self._whole[model] = (self._whole.get(model, set()) & set(versions)) | whole
        return self._whole

    def is_settled(self, sighting: Sighting) -> bool:
        """Whether a version is whole, as far as one can see."""
        return is_settled(sighting.artifact, time.monotonic() - sighting.since_s, self._settle_s)

    def _scan(self, specs: dict[str, ModelSpec]) -> dict[str, dict[str, Artifact] | str]:
        found: dict[str, dict[str, Artifact] | str] = {}
        for model, spec in specs.items():
            try:
                found[model] = scan(path_of(spec.repository or self._default), model)
            except (OSError, BadRepositoryError) as error:
                found[model] = str(error)
        return found

    def _take(self, model: str, result: dict[str, Artifact] | str, now_s: float) -> None:
        known = self.versions.setdefault(model, {})
        if isinstance(result, str):
            if self.faults.get(model) != result:
                log.warning("repository_unreadable", model=model, reason=result)
            self.faults[model] = result
            return
        self.faults.pop(model, None)
        self.versions[model] = {
            version: before
            if (before := known.get(version)) and before.artifact == artifact
            else Sighting(artifact, now_s)
            for version, artifact in result.items()
        }
