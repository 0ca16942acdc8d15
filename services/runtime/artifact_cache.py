"""Copies of artifacts by content: what a worker loads can no longer change, whatever happens to the repository."""

import asyncio
import shutil
import tempfile
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import structlog

from services.runtime.aside import aside
from services.runtime.backends import BadArtifactError
from services.runtime.backends.detect import Found, detect
from services.runtime.fetching import Fetching
from services.runtime.remembered import Remembered
from services.runtime.source import Artifact, BadRepositoryError, digest

_AT_ONCE = 2  # copies; more would only wait for the disk, or the network
_INCOMING = "incoming-"
_KEPT = ".kept"

log = structlog.get_logger()


class Fetched(NamedTuple):
    """An artifact that is ready to load; `fault` says why it never will be, and then there is nothing to load."""

    digest: str
    found: Found | None
    fault: str = ""


class ArtifactCache:
    """A folder of folders named by digest. One process owns it."""

    def __init__(self, folder: Path, remembered: Remembered | None = None, *, timeout_s: float = 3600) -> None:
        self._folder = folder
        self._remembered = remembered or Remembered(folder.with_name(f"{folder.name}-remembered.json"))
        self._timeout_s = timeout_s
        self._local_slots = asyncio.Semaphore(_AT_ONCE)
        self._remote_slots = asyncio.Semaphore(_AT_ONCE)

    async def fetch(self, artifact: Artifact, framework: str | None) -> Fetched:
        """Copy and check an artifact, off the loop.

        Raises BadRepositoryError for one that is not even read, ChangedError, or OSError where it cannot be read.
        """
        if artifact.fault:
            raise BadRepositoryError(artifact.fault)
        async with self._remote_slots if artifact.folder.is_remote else self._local_slots:
            return await aside("fetch", self._fetch, artifact, framework)

    def kept(self, digest: str) -> Path | None:
        """A folder for what workers keep of an artifact for their next start; it goes with the copy."""
        folder = self._folder / f"{digest}{_KEPT}"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            return None
        return folder

    async def keep_only(self, digests: Collection[str]) -> None:
        """Remove every copy but these, and what was kept of them; no fetch may be running."""
        await asyncio.to_thread(self._keep_only, frozenset(digests))

    def _fetch(self, artifact: Artifact, framework: str | None) -> Fetched:
        identity = self._remembered.digest_of(artifact)
        if identity is None or not self._is_whole(artifact, identity):
            identity = self._bring(artifact)
            self._remembered.note_digest(artifact, identity)
        try:
            return Fetched(identity, detect(self._folder / identity, framework))
        except BadArtifactError as error:
            return Fetched(identity, None, str(error))

    def _is_whole(self, artifact: Artifact, identity: str) -> bool:
        """Whether there is a copy, as it was made; one that is not is a disk's fault, or a hand's, and removed."""
        copy = self._folder / identity
        if not copy.is_dir():
            return False  # and another fetch of the same content may be about to put it there
        try:
            sizes = {stat.name: (copy / stat.name).stat().st_size for stat in artifact.fingerprint}
            is_whole = digest(copy, sizes) == identity
        except OSError:
            is_whole = False
        if not is_whole:
            shutil.rmtree(copy, ignore_errors=True)
        return is_whole

    def _bring(self, artifact: Artifact) -> str:
        """Copy it into the cache, where it appears whole or not at all."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        incoming = Path(tempfile.mkdtemp(prefix=_INCOMING, dir=self._folder))
        began_s = time.monotonic()
        known_bytes = sum(max(0, stat.size) for stat in artifact.fingerprint)
        if artifact.folder.is_remote:
            log.info("artifact_download_began", artifact=str(artifact.folder), bytes=known_bytes)
        try:
            identity = Fetching(artifact, incoming, self._timeout_s).run()
            if not self._is_whole(artifact, identity):
                self._put(incoming, artifact, identity)
        finally:
            shutil.rmtree(incoming, ignore_errors=True)
        if artifact.folder.is_remote:
            taken_s = round(time.monotonic() - began_s, 3)
            log.info("artifact_downloaded", artifact=str(artifact.folder), digest=identity, took_s=taken_s)
        return identity

    def _put(self, incoming: Path, artifact: Artifact, identity: str) -> None:
        try:
            incoming.rename(self._folder / identity)
        except OSError:
            if not self._is_whole(artifact, identity):  # nobody else has just brought the same
                raise

    def _keep_only(self, digests: frozenset[str]) -> None:
        if not self._folder.is_dir():
            return
        for entry in self._folder.iterdir():
            if entry.name.removesuffix(_KEPT) not in digests:
                shutil.rmtree(entry, ignore_errors=True)
