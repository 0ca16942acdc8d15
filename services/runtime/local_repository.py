"""A model repository on a local path. Links are followed within it; out of it only with the operator's word."""

import errno
import os
import stat as modes
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from services.core.names import is_version
from services.runtime.source import (
    CHUNK_BYTES,
    CONFIG,
    MAX_DEPTH,
    Artifact,
    BadRepositoryError,
    Look,
    Stat,
    checked,
    is_hidden,
)

_MAX_READ_BYTES = 4 << 20


def path_of(url: str) -> Path:
    """The local folder of file:///path or a plain path. Raises BadRepositoryError."""
    if "://" not in url:
        return Path(url).absolute()
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in {"", "localhost"}:
        raise BadRepositoryError(f"repository {url!r} is neither a path nor file:///PATH")
    return Path(unquote(parts.path))


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """A version's folder. `within` is the resolved folder that links may not leave; None = they lead anywhere."""

    path: Path
    within: Path | None
    is_remote: bool = False

    def stats(self) -> tuple[Stat, ...]:
        self._check_place(self.path)
        return checked(list(self._stats(self.path, "", 0)))

    def chunks(self, name: str) -> Iterator[bytes]:
        """The file is judged once it is open: a link may have come since the last look, or a pipe."""
        descriptor = os.open(self.path / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb") as stream:  # noqa: PTH123 - of a descriptor
            if not modes.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(f"{name} is no regular file")
            place = Path(f"/proc/self/fd/{descriptor}").resolve()
            if self.within is not None and not place.is_relative_to(self.within):
                raise OSError(f"{name} leads out of the repository")
            while chunk := stream.read(CHUNK_BYTES):
                yield chunk

    def __str__(self) -> str:
        return str(self.path)

    def _stats(self, folder: Path, prefix: str, depth: int) -> Iterator[Stat]:
        """Files of a version, without hidden and temporary ones."""
        if depth > MAX_DEPTH:
            raise BadRepositoryError(f"it has over {MAX_DEPTH} folders in each other at {prefix[:100]}")
        with os.scandir(folder) as entries:
            for entry in entries:
                if not is_hidden(entry.name):
                    yield from self._stats_of(entry, prefix, depth)

    def _stats_of(self, entry: os.DirEntry[str], prefix: str, depth: int) -> Iterator[Stat]:
        try:
            if entry.is_symlink():
                self._check_place(Path(entry.path))
            if entry.is_dir():
                yield from self._stats(Path(entry.path), f"{prefix}{entry.name}/", depth + 1)
                return
            stat = entry.stat()
        except FileNotFoundError:
            return  # renamed or removed since it was listed
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise BadRepositoryError(f"{prefix}{entry.name} is a link that leads nowhere") from error
            raise
        if not modes.S_ISREG(stat.st_mode):
            raise BadRepositoryError(f"{prefix}{entry.name} is neither a file nor a folder")
        tag = f"{stat.st_mtime_ns} {stat.st_ctime_ns} {stat.st_ino}"
        yield Stat(f"{prefix}{entry.name}", stat.st_size, tag, stat.st_ctime_ns / 1e9)

    def _check_place(self, path: Path) -> None:
        if self.within is None:
            return
        target = Path(os.path.realpath(path, strict=True))
        if not target.is_relative_to(self.within):
            raise BadRepositoryError(
                f"{path.name} leads to {target}, which is outside the repository {self.within}: copy it there,"
                " or start the runtime with TURNOUT_RUNTIME_LINKS_OUTSIDE=true"
            )


class LocalRepository:
    """MODEL/VERSION/files below `root`, or VERSION/files where `root` is the model's own folder."""

    is_remote = False

    def __init__(self, root: Path, *, links_outside: bool) -> None:
        self._root = root
        self._links_outside = links_outside

    def __str__(self) -> str:
        return str(self._root)

    def scan(self, model: str) -> Look:
        folder = self._folder(model)
        if not folder.is_dir():
            if not self._root.is_dir():
                raise FileNotFoundError(f"repository {self._root} is not there")
            return Look({})
        within = None if self._links_outside else self._root.resolve()
        with os.scandir(folder) as entries:
            names = {entry.name: Path(entry.path).is_dir() for entry in entries if not is_hidden(entry.name)}
        versions = {
            name: artifact
            for name, is_folder in names.items()
            if is_folder and is_version(name)
            if (artifact := _artifact(LocalFolder(folder / name, within))).fingerprint or artifact.fault
        }
        config = self.read(model, CONFIG) if CONFIG in names else None
        ignored = sorted(name for name in names if name != CONFIG and not (names[name] and is_version(name)))
        return Look(versions, tuple(ignored), None if config is None else config.decode(errors="replace"))

    def read(self, model: str, name: str) -> bytes | None:
        folder = LocalFolder(self._folder(model), None if self._links_outside else self._root.resolve())
        content = b""
        try:
            for chunk in folder.chunks(name):
                content += chunk
                if len(content) > _MAX_READ_BYTES:
                    raise OSError(f"{name} has over {_MAX_READ_BYTES} bytes")
        except (FileNotFoundError, NotADirectoryError):
            return None
        return content

    def _folder(self, model: str) -> Path:
        inside = self._root / model
        return self._root if self._root.name == model and not inside.is_dir() else inside


def _artifact(folder: LocalFolder) -> Artifact:
    try:
        return Artifact(folder, folder.stats())
    except BadRepositoryError as error:
        reason = str(error).encode(errors="backslashreplace").decode()  # names may be no UTF-8, and others read it
        return Artifact(folder, (), reason)
