"""A model repository behind a network. How a kind of server is asked: object_store, web_store."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from services.core.names import is_version
from services.runtime.source import (
    CONFIG,
    SUMS,
    Artifact,
    BadRepositoryError,
    Look,
    Stat,
    UnreachableError,
    checked,
    is_hidden,
)

LISTING_TIMEOUT_S = 60.0
MAX_LISTED = 200_000  # files of a model, all versions together
_BLOCK_BYTES = 8 << 20
_MAX_READ_BYTES = 4 << 20
_DETAILS_SHOWN = 300


class Listing(NamedTuple):
    """Files below a path, by names relative to it; `sums` where a manifest gave the SHA-256 of each."""

    stats: list[Stat]
    sums: Mapping[str, str] = {}


class Reader(Protocol):
    def read(self, length: int) -> bytes: ...


class Store(Protocol):
    """A server and a root on it; paths are relative to that, "" is the root. Raises UnreachableError."""

    name: str  # the last part of the root

    def __str__(self) -> str:
        """For people; without credentials."""

    def find_model(self, path: str) -> Listing:
        """Every file below; none when there is no such path."""

    def find(self, path: str) -> list[Stat]:
        """Every file below; none when there is no such path."""

    def check_root(self) -> None:
        """Raise UnreachableError when the root is not there."""

    def open(self, path: str) -> AbstractContextManager[Reader]: ...


@dataclass(frozen=True, slots=True)
class RemoteFolder:
    """A version's folder: equal when the place is."""

    store: Store = field(compare=False)
    path: str
    place: str
    is_remote: bool = True

    def stats(self) -> tuple[Stat, ...]:
        return checked([stat for stat in self.store.find(self.path) if not is_hidden(stat.name)])

    def chunks(self, name: str) -> Iterator[bytes]:
        with said(f"{self.place}/{name}"), self.store.open(f"{self.path}/{name}") as stream:
            while chunk := stream.read(_BLOCK_BYTES):
                yield chunk

    def __str__(self) -> str:
        return self.place


class RemoteRepository:
    """MODEL/VERSION/files below a store's root, or VERSION/files where the root is the model's own folder."""

    is_remote = True

    def __init__(self, store: Store) -> None:
        self._store = store
        self._configs: dict[str, tuple[Stat, str]] = {}  # by model, as last read

    def __str__(self) -> str:
        return str(self._store)

    def scan(self, model: str) -> Look:
        path, listing = model, self._store.find_model(model)
        if not listing.stats and self._store.name == model:
            path, listing = "", self._store.find_model("")
        if not listing.stats:
            self._store.check_root()
        if len(listing.stats) > MAX_LISTED:
            raise UnreachableError(f"{self._store}/{path} has over {MAX_LISTED} files")
        by_version: dict[str, list[Stat]] = {}
        ignored, config = set(), None
        for stat in listing.stats:
            version, _, name = stat.name.partition("/")
            if stat.name == CONFIG:
                config = self._config(model, stat, listing.sums.get(CONFIG, ""))
            elif not (is_version(version) and name):
                ignored.add(version)
            elif not is_hidden(name):
                by_version.setdefault(version, []).append(stat._replace(name=name))
        versions = {
            version: self._artifact(f"{path}/{version}".lstrip("/"), stats, _below(listing.sums, version))
            for version, stats in by_version.items()
        }
        return Look(versions, tuple(sorted(name for name in ignored if not is_hidden(name))), config)

    def read(self, model: str, name: str) -> bytes | None:
        paths = [f"{model}/{name}", name] if self._store.name == model else [f"{model}/{name}"]
        for path in paths:
            content = b""
            try:
                with said(f"{self._store}/{path}"), self._store.open(path) as stream:
                    while chunk := stream.read(_MAX_READ_BYTES):
                        content += chunk
                        if len(content) > _MAX_READ_BYTES:
                            raise UnreachableError(f"{self._store}/{path} has over {_MAX_READ_BYTES} bytes")
            except FileNotFoundError:
                continue
            return content
        return None

    def _config(self, model: str, stat: Stat, expected: str) -> str:
        """What config.pbtxt says, read again when it looks otherwise."""
        known = self._configs.get(model)
        if known is None or known[0] != stat:
            content = self.read(model, CONFIG) or b""
            if expected and hashlib.sha256(content).hexdigest() != expected:
                raise UnreachableError(f"{self._store}/{model}/{CONFIG} does not match {SUMS}")
            known = self._configs[model] = (stat, content.decode(errors="replace"))
        return known[1]

    def folder(self, path: str) -> RemoteFolder:
        """A version's folder by its path below the root."""
        return RemoteFolder(self._store, path, f"{self._store}/{path}")

    def _artifact(self, path: str, stats: list[Stat], sums: dict[str, str]) -> Artifact:
        folder = self.folder(path)
        try:
            return Artifact(folder, checked(stats), sums=tuple(sorted(sums.items())))
        except BadRepositoryError as error:
            return Artifact(folder, (), str(error))


@contextmanager
def said(place: str) -> Iterator[None]:
    """Turn whatever a client library raises into UnreachableError naming the place; FileNotFoundError stays."""
    try:
        yield
    except (UnreachableError, BadRepositoryError, FileNotFoundError):
        raise
    except TimeoutError as error:
        raise UnreachableError(f"{place}: no answer in time") from error
    except Exception as error:
        details = " ".join(str(error).split())[:_DETAILS_SHOWN] or "no details"
        raise UnreachableError(f"{place}: {type(error).__name__}: {details}") from error


def _below(sums: Mapping[str, str], version: str) -> dict[str, str]:
    prefix = f"{version}/"
    return {name.removeprefix(prefix): each for name, each in sums.items() if name.startswith(prefix)}
