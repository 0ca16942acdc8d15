"""A model repository on a local path: MODEL/VERSION/files. What is there, whether it is whole, and what it holds."""

import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from services.core.names import is_version

SUMS = "SHA256SUMS"  # optional, as sha256sum(1) writes it: a version is whole once every file in it matches
_TEMPORARY = (".tmp", ".temp", ".part", ".partial", ".crdownload", ".swp", ".filepart", "~")
_MAX_FILES = 10_000
_CHUNK_BYTES = 1 << 20


class BadRepositoryError(Exception):
    """A repository URL that this runtime cannot read."""


class Stat(NamedTuple):
    """One file as it looks without reading it."""

    name: str  # relative to the version's folder, with "/"
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int


class Artifact(NamedTuple):
    """One version's folder; equal fingerprints mean that nothing was touched between two looks."""

    folder: Path
    fingerprint: tuple[Stat, ...]

    def touched_s_ago(self, now_s: float) -> float:
        """Seconds of wall-clock since any file was last written, created or renamed."""
        return now_s - max((stat.ctime_ns for stat in self.fingerprint), default=0) / 1e9


def path_of(url: str) -> Path:
    """The local folder of file:///path or a plain path. Raises BadRepositoryError."""
    if not url:
        raise BadRepositoryError("no repository: set it in the model's spec or in the runtime's settings")
    if "://" not in url:
        return Path(url).absolute()
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in {"", "localhost"}:
        raise BadRepositoryError(f"repository {url!r} is neither a path nor file:///PATH")
    return Path(unquote(parts.path))


def model_folder(root: Path, model: str) -> Path:
    """Where a model's versions lie: ROOT/MODEL, or ROOT itself when that is the model's own folder."""
    inside = root / model
    return root if root.name == model and not inside.is_dir() else inside


def scan(root: Path, model: str) -> dict[str, Artifact]:
    """Every version of a model that has at least one file. Raises OSError when the repository cannot be read.

    A model without a folder has no versions; a repository without a folder is an error, so that an unmounted disk does
    not look like a deletion.
    """
    folder = model_folder(root, model)
    if not folder.is_dir():
        if not root.is_dir():
            raise FileNotFoundError(f"repository {root} is not there")
        return {}
    found = {}
    for entry in os.scandir(folder):
        if is_version(entry.name) and entry.is_dir():
            fingerprint = tuple(sorted(_stats(Path(entry.path), "")))
            if fingerprint:
                found[entry.name] = Artifact(Path(entry.path), fingerprint)
    return found


def digest(folder: Path, names: Mapping[str, int]) -> str:
    """SHA-256 over names, sizes and bytes of the files `names` (name -> size) in `folder`. Raises OSError."""
    total = hashlib.sha256()
    for name in sorted(names):
        label = name.encode()
        total.update(b"%d %s %d\n" % (len(label), label, names[name]))
        for chunk in chunks(folder / name):
            total.update(chunk)
    return total.hexdigest()


def chunks(file: Path) -> Iterator[bytes]:
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            yield chunk


def mismatch(folder: Path) -> str:
    """What of SHA256SUMS is not as it says; "" when all is, or when there is no such file."""
    sums = folder / SUMS
    if not sums.is_file():
        return ""
    for line in sums.read_text().splitlines():
        expected, _, name = line.strip().partition(" ")
        file = folder / name.strip().removeprefix("*")
        if not name:
            continue
        if not file.is_file():
            return f"{SUMS} names {file.name}, which is not there"
        actual = hashlib.sha256()
        for chunk in chunks(file):
            actual.update(chunk)
        if actual.hexdigest() != expected.lower():
            return f"{file.name} does not match {SUMS}"
    return ""


def is_settled(artifact: Artifact, unchanged_for_s: float, settle_s: float) -> bool:
    """Whether nobody writes to it any more: by its files' own times, or by what this process has seen."""
    return unchanged_for_s >= settle_s or artifact.touched_s_ago(time.time()) >= settle_s


def _stats(folder: Path, prefix: str) -> Iterator[Stat]:
    """Files of a version, without hidden and temporary ones."""
    count = 0
    for entry in os.scandir(folder):
        if entry.name.startswith(".") or entry.name.endswith(_TEMPORARY):
            continue
        try:
            if entry.is_dir():
                yield from _stats(Path(entry.path), f"{prefix}{entry.name}/")
                continue
            stat = entry.stat()
        except FileNotFoundError:
            continue  # renamed or removed since it was listed
        count += 1
        if count > _MAX_FILES:
            raise OSError(f"{folder} has over {_MAX_FILES} files")
        yield Stat(f"{prefix}{entry.name}", stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
