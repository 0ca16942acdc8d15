"""Copies of artifacts by content: what a worker loads can no longer change, whatever happens to the repository."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from services.runtime.backends import BadArtifactError
from services.runtime.backends.detect import Found, detect
from services.runtime.source import Artifact, chunks, digest, mismatch

_AT_ONCE = 2  # copies; more would only wait for the disk
_INCOMING = "incoming-"


class ChangedError(Exception):
    """The artifact changed while it was read: look again."""


class Fetched(NamedTuple):
    """An artifact that is ready to load; `fault` says why it never will be, and then there is nothing to load."""

    digest: str
    found: Found | None
    fault: str = ""


class ArtifactCache:
    """A folder of folders named by digest. One process owns it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def fetch(self, artifact: Artifact, framework: str | None) -> Fetched:
        """Copy and check an artifact, off the loop. Raises ChangedError, or OSError where it cannot be read."""
        async with self._slots:
            return await asyncio.to_thread(self._fetch, artifact, framework)

    async def keep_only(self, digests: Collection[str]) -> None:
        """Remove every copy but these; no fetch may be running."""
        await asyncio.to_thread(self._keep_only, frozenset(digests))

    def _fetch(self, artifact: Artifact, framework: str | None) -> Fetched:
        if reason := mismatch(artifact.folder):
            raise ChangedError(reason)
        sizes = {stat.name: stat.size for stat in artifact.fingerprint}
        identity = digest(artifact.folder, sizes)
        copy = self._folder / identity
        if copy.is_dir() and digest(copy, sizes) != identity:
            shutil.rmtree(copy)  # a disk's fault, or a hand's
        if not copy.is_dir():
            self._copy(artifact, sizes, identity)
        try:
            return Fetched(identity, detect(copy, framework))
        except BadArtifactError as error:
            return Fetched(identity, None, str(error))

    def _copy(self, artifact: Artifact, sizes: dict[str, int], identity: str) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        incoming = Path(tempfile.mkdtemp(prefix=_INCOMING, dir=self._folder))
        try:
            for name in sizes:
                target = incoming / name
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("xb") as stream:
                    for chunk in chunks(artifact.folder / name):
                        stream.write(chunk)
                    stream.flush()
                    os.fsync(stream.fileno())
            if digest(incoming, sizes) != identity:
                raise ChangedError("its files changed while they were copied")
            incoming.rename(self._folder / identity)
        finally:
            shutil.rmtree(incoming, ignore_errors=True)

    def _keep_only(self, digests: frozenset[str]) -> None:
        if not self._folder.is_dir():
            return
        for entry in self._folder.iterdir():
            if entry.name not in digests:
                shutil.rmtree(entry, ignore_errors=True)
