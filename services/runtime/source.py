"""What a model repository holds: versions, each a folder of files. Where: local_repository, remote_repository."""

import hashlib
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from services.core import triton_config

CONFIG = triton_config.FILE  # beside a model's versions
SUMS = "SHA256SUMS"  # optional, as sha256sum(1) writes it: a version is whole once every file in it matches
MAX_FILES = 10_000  # of a version
MAX_DEPTH = 16  # folders in folders
CHUNK_BYTES = 1 << 20
_TEMPORARY = (".tmp", ".temp", ".part", ".partial", ".crdownload", ".swp", ".filepart", "~")
_MAX_PART_BYTES, _MAX_NAME_BYTES = 255, 1024
_SKEW_S = 60.0  # how far another host's clock may be off


class BadRepositoryError(Exception):
    """A repository that this runtime cannot read, or a version in it that it will not."""


class ChangedError(Exception):
    """The artifact changed while it was read, or is not whole yet: look again."""


class UnreachableError(OSError):
    """A server that did not answer, or not as it should: another try may help."""


class Stat(NamedTuple):
    """One file as it looks without reading it."""

    name: str  # relative to the version's folder, with "/"
    size: int  # -1 = unknown
    tag: str  # changes with the content: times and inode, or what the server says
    changed_s: float = 0.0  # wall-clock of its last change; 0 = unknown


class Folder(Protocol):
    """Where a version's files lie. Values: equal ones are the same place. Everything blocks."""

    @property
    def is_remote(self) -> bool: ...

    def stats(self) -> tuple[Stat, ...]:
        """Its files as they are now, sorted. Raises OSError, BadRepositoryError."""

    def chunks(self, name: str) -> Iterator[bytes]:
        """The bytes of one file. Raises OSError."""

    def __str__(self) -> str:
        """For people; without credentials."""


class Artifact(NamedTuple):
    """One version's folder; equal ones mean that nothing was touched between two looks."""

    folder: Folder
    fingerprint: tuple[Stat, ...]
    fault: str = ""  # why it is not even read
    sums: tuple[tuple[str, str], ...] = ()  # name and SHA-256 of every file, where the listing itself gives them

    def touched_s_ago(self, now_s: float) -> float:
        """Seconds of wall-clock since any file was last changed; 0 where that is unknown."""
        if not all(stat.changed_s for stat in self.fingerprint):
            return 0.0
        return now_s - max((stat.changed_s for stat in self.fingerprint), default=now_s)


class Look(NamedTuple):
    """One look at a model."""

    versions: dict[str, Artifact]
    ignored: tuple[str, ...] = ()  # folders and files beside them that are no versions
    config: str | None = None  # what a file config.pbtxt beside them says


class Repository(Protocol):
    """MODEL/VERSION/files, somewhere. Everything blocks."""

    @property
    def is_remote(self) -> bool: ...

    def scan(self, model: str) -> Look:
        """Every version of a model that has at least one file. Raises OSError when it cannot be read.

        A model without a folder has no versions; a repository that is not there is an error, so that an unmounted disk
        or a wrong bucket does not look like a deletion.
        """

    def read(self, model: str, name: str) -> bytes | None:
        """A small file beside a model's versions; None when there is none. Raises OSError."""

    def __str__(self) -> str:
        """For people; without credentials."""


def is_settled(artifact: Artifact, unchanged_for_s: float, now_s: float, settle_s: float) -> bool:
    """Whether nobody writes to it any more: by its files' own times, or by what this process has seen.

    `unchanged_for_s` lies between two looks that found the same; `now_s` is wall-clock.
    """
    margin_s = settle_s + _SKEW_S if artifact.folder.is_remote else settle_s
    return bool(artifact.sums) or unchanged_for_s >= settle_s or artifact.touched_s_ago(now_s) >= margin_s


def is_hidden(name: str) -> bool:
    """Whether a file or folder, or one that it lies in, is hidden or not written to its end: no part of a version."""
    return any(part.startswith(".") or part.endswith(_TEMPORARY) for part in name.split("/"))


def why_unsafe(name: str) -> str:
    """What is wrong with a relative name that somebody else gave us; "" = nothing."""
    parts = name.split("/")
    if not name or any(part in {"", ".", ".."} for part in parts):
        return "does not lead to a file below the version"
    if any(unicodedata.category(letter) == "Cc" for letter in name):
        return "has control characters"
    if any(unicodedata.category(letter) == "Cs" for letter in name):  # as Python reads bytes that are none
        return "is not UTF-8"
    if len(name.encode(errors="replace")) > _MAX_NAME_BYTES or len(parts) > MAX_DEPTH:
        return f"is longer than {_MAX_NAME_BYTES} bytes or {MAX_DEPTH} folders deep"
    if any(len(part.encode(errors="replace")) > _MAX_PART_BYTES for part in parts):
        return f"has a part of over {_MAX_PART_BYTES} bytes"
    return ""


def checked(stats: list[Stat]) -> tuple[Stat, ...]:
    """Files of a version, sorted. Raises BadRepositoryError for names that lead elsewhere, and for too many."""
    if len(stats) > MAX_FILES:
        raise BadRepositoryError(f"it has over {MAX_FILES} files")
    for stat in stats:
        if reason := why_unsafe(stat.name):
            raise BadRepositoryError(f"the name {stat.name[:200]!r} {reason}")
    return tuple(sorted(stats))


def parse_sums(text: str) -> dict[str, str]:
    """Name -> SHA-256 of a file as sha256sum(1) writes it. Raises BadRepositoryError for what is none."""
    sums = {}
    for number, line in enumerate(text.splitlines(), 1):
        expected, _, name = line.strip().partition(" ")
        name = name.strip().removeprefix("*").removeprefix("./")
        if not expected or expected.startswith("#"):
            continue
        if len(expected) != 64 or not all(digit in "0123456789abcdefABCDEF" for digit in expected):
            raise BadRepositoryError(f"{SUMS}, line {number}: expected 64 hexadecimal digits and a name")
        if reason := why_unsafe(name):
            raise BadRepositoryError(f"{SUMS}, line {number}: the name {name[:200]!r} {reason}")
        sums[name] = expected.lower()
    return sums


def digest(folder: Path, names: Mapping[str, int]) -> str:
    """SHA-256 over names, sizes and bytes of the files `names` (name -> size) in `folder`. Raises OSError."""
    total = hashlib.sha256()
    for name in sorted(names):
        total.update(digest_label(name, names[name]))
        for chunk in chunks(folder / name):
            total.update(chunk)
    return total.hexdigest()


def digest_label(name: str, size: int) -> bytes:
    """What stands before a file's bytes in a digest, so that no two files run together."""
    label = name.encode()
    return b"%d %s %d\n" % (len(label), label, size)


def chunks(file: Path) -> Iterator[bytes]:
    with file.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            yield chunk
