"""One artifact's way into a folder: copied or downloaded, hashed on the way, held against its checksums. Blocks."""

import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import structlog

from services.chassis.backoff import Backoff
from services.runtime.source import (
    SUMS,
    Artifact,
    BadRepositoryError,
    ChangedError,
    Stat,
    UnreachableError,
    digest,
    digest_label,
    is_hidden,
    parse_sums,
)

_TRIES = 4  # of a file of a remote repository
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 8.0  # between them
_RESERVE_BYTES = 64 << 20  # of the disk, for others
_MOST_SUMS_BYTES = 16 << 20

log = structlog.get_logger()


class NoRoomError(OSError):
    """The artifact does not fit the disk."""


class Fetching:
    """`folder` is empty and this fetch's own; when `run` returns, all of the artifact is in it and on disk."""

    def __init__(self, artifact: Artifact, folder: Path, timeout_s: float) -> None:
        self._artifact = artifact
        self._folder = folder
        self._timeout_s = timeout_s
        self._ends_s = time.monotonic() + timeout_s
        self._sums = dict(artifact.sums)

    def run(self) -> str:
        """The content's digest. Raises ChangedError when it is not whole, OSError when it cannot be read or written."""
        self._check_room(sum(max(0, stat.size) for stat in self._artifact.fingerprint))
        self._read_sums()
        total, sizes = hashlib.sha256(), {}
        for stat in self._artifact.fingerprint:
            total = self._take(stat, total)
            sizes[stat.name] = (self._folder / stat.name).stat().st_size
        self._check_unchanged()
        _sync(self._folder)
        if all(stat.size >= 0 for stat in self._artifact.fingerprint):
            return total.hexdigest()
        return digest(self._folder, sizes)  # a digest begins with sizes, which were not known

    def _take(self, stat: Stat, total: Any) -> Any:
        """`total` after this file, which is tried again where it came from afar."""
        backoff = Backoff(_FIRST_WAIT_S, _LONGEST_WAIT_S)
        tries_left = _TRIES if self._artifact.folder.is_remote else 1
        while True:
            backoff.begin()
            try:
                return self._write(stat, total.copy())
            except UnreachableError as error:
                tries_left -= 1
                wait_s = backoff.next_s()
                if not tries_left or time.monotonic() + wait_s > self._ends_s:
                    raise
                log.info("artifact_file_tried_again", file=stat.name, wait_s=round(wait_s, 2), reason=str(error))
                time.sleep(wait_s)

    def _write(self, stat: Stat, total: Any) -> Any:
        expected, actual, size = self._sums.get(stat.name), hashlib.sha256(), 0
        total.update(digest_label(stat.name, stat.size))
        target = self._folder / stat.name
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as stream:
            for chunk in self._chunks(stat.name):
                size += len(chunk)
                if 0 <= stat.size < size:
                    break
                stream.write(chunk)
                total.update(chunk)
                if expected:
                    actual.update(chunk)
            stream.flush()
            os.fsync(stream.fileno())
        if stat.size not in {-1, size}:
            raise ChangedError(f"{stat.name} has not the {stat.size} bytes that were listed")
        if expected and actual.hexdigest() != expected:
            raise ChangedError(f"{stat.name} does not match {SUMS}")
        return total

    def _chunks(self, name: str) -> Iterator[bytes]:
        for chunk in self._artifact.folder.chunks(name):
            if time.monotonic() > self._ends_s:
                raise OSError(f"not here after {self._timeout_s:g} s")
            self._check_room(len(chunk))
            yield chunk

    def _check_room(self, needed_bytes: int) -> None:
        free = shutil.disk_usage(self._folder).free - _RESERVE_BYTES
        if needed_bytes > free:
            raise NoRoomError(f"{needed_bytes} bytes do not fit {self._folder.parent}, where {max(0, free)} are free")

    def _read_sums(self) -> None:
        """What the version's own SHA256SUMS says. Raises ChangedError when it names files that are not there."""
        names = {stat.name: stat.size for stat in self._artifact.fingerprint}
        if SUMS not in names:
            return
        content = b""
        for chunk in self._chunks(SUMS):
            content += chunk
            if len(content) > _MOST_SUMS_BYTES:
                raise OSError(f"{SUMS} has over {_MOST_SUMS_BYTES} bytes")
        try:
            sums = parse_sums(content.decode())
        except (BadRepositoryError, UnicodeDecodeError) as error:
            raise ChangedError(str(error)) from error
        for name in sums:
            if name not in names and not is_hidden(name):
                raise ChangedError(f"{SUMS} names {name}, which is not there")
        self._sums = sums | self._sums

    def _check_unchanged(self) -> None:
        if not self._artifact.sums and self._artifact.folder.stats() != self._artifact.fingerprint:
            raise ChangedError("its files changed while they were copied")


def _sync(folder: Path) -> None:
    """Have the names of all files below `folder` on disk."""
    for place in [folder, *(path for path in folder.rglob("*") if path.is_dir())]:
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
