"""What is known of remote repositories, kept over restarts: nothing is fetched twice, and an outage unloads nothing."""

import hashlib
import json
import threading
from pathlib import Path
from typing import Any

from services.runtime.kept_json import KeptJson
from services.runtime.remote_repository import RemoteFolder, RemoteRepository
from services.runtime.source import Artifact, Look, Stat

_MOST_DIGESTS = 4096


class Remembered:
    """Digests by what an artifact looks like, and the last listing of each model; safe from any thread.

    The file is a convenience: a lost one costs a download.
    """

    def __init__(self, file: Path) -> None:
        self._kept = KeptJson(file, "remembered_repositories", folder_mode=0o700)
        self._lock = threading.Lock()
        held = self._kept.read(_parsed) or {}
        self._digests: dict[str, str] = held.get("digests", {})
        self._listings: dict[str, dict[str, Any]] = held.get("listings", {})

    def digest_of(self, artifact: Artifact) -> str | None:
        """The content's digest, if this artifact has been fetched as it looks now."""
        return self._digests.get(_look_of(artifact))

    def note_digest(self, artifact: Artifact, digest: str) -> None:
        with self._lock:
            look = _look_of(artifact)
            if self._digests.get(look) == digest:
                return
            self._digests.pop(look, None)
            self._digests[look] = digest
            for oldest in list(self._digests)[:-_MOST_DIGESTS]:
                del self._digests[oldest]
            self._save()

    def listing(self, repository: RemoteRepository, model: str) -> Look:
        """A model as it was last seen."""
        held = self._listings.get(f"{repository} {model}", {})
        versions = {
            version: Artifact(
                repository.folder(path),
                tuple(Stat(*stat) for stat in stats),
                sums=tuple((name, each) for name, each in sums),
            )
            for version, (path, stats, sums) in held.get("versions", {}).items()
        }
        return Look(versions, config=held.get("config"))

    def note_listing(self, repository: RemoteRepository, model: str, look: Look) -> None:
        versions = {
            version: [
                folder.path,
                [list(stat) for stat in artifact.fingerprint],
                [list(each) for each in artifact.sums],
            ]
            for version, artifact in look.versions.items()
            if isinstance(folder := artifact.folder, RemoteFolder) and not artifact.fault
        }
        seen = {"versions": versions, "config": look.config}
        with self._lock:
            key = f"{repository} {model}"
            if self._listings.get(key) != seen:
                self._listings[key] = seen
                self._save()

    def _save(self) -> None:
        self._kept.write(json.dumps({"digests": self._digests, "listings": self._listings}))


def _parsed(held: Any) -> dict[str, Any]:
    return held if isinstance(held, dict) else {}


def _look_of(artifact: Artifact) -> str:
    """A key for the place and everything that is known of its files without reading them."""
    look = json.dumps([str(artifact.folder), [list(stat) for stat in artifact.fingerprint]])
    return hashlib.sha256(look.encode()).hexdigest()
