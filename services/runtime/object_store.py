"""s3://BUCKET/PREFIX and gs://BUCKET/PREFIX through fsspec; credentials and endpoints come from the environment."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any

from services.runtime.remote_repository import LISTING_TIMEOUT_S, Listing, Reader, said
from services.runtime.source import Stat, UnreachableError

_BLOCK_BYTES = 8 << 20
_TAGS = ("ETag", "etag", "generation", "md5Hash", "crc32c")
_TIMES = ("LastModified", "updated", "mtime", "created")


class ObjectStore:
    """`filesystem` is fsspec's; `root` is BUCKET or BUCKET/PREFIX, `url` the same as it was given."""

    def __init__(self, filesystem: Any, root: str, url: str) -> None:
        self.name = root.rpartition("/")[2]
        self._filesystem = filesystem
        self._root = root
        self._url = url

    def __str__(self) -> str:
        return self._url

    def find_model(self, path: str) -> Listing:
        return Listing(self.find(path))

    def find(self, path: str) -> list[Stat]:
        top = self._path(path)
        with said(f"{self._url}/{path}"):
            try:
                found = self._filesystem.find(top, detail=True, timeout=LISTING_TIMEOUT_S)
            except FileNotFoundError:
                return []
        prefix = f"{top.lstrip('/')}/"
        stats = []
        for key, info in found.items():
            name = key.lstrip("/").removeprefix(prefix)
            is_marker = name.endswith("/") or not name  # what some tools make so that an empty folder is seen
            if key.lstrip("/").startswith(prefix) and not is_marker and info.get("type") != "directory":
                stats.append(_stat(name, info))
        return stats

    def check_root(self) -> None:
        with said(self._url):
            try:
                self._filesystem.ls(self._root, detail=False, timeout=LISTING_TIMEOUT_S)
            except FileNotFoundError as error:
                raise UnreachableError(f"repository {self._url} is not there") from error

    def open(self, path: str) -> AbstractContextManager[Reader]:
        """Read in blocks, one request each; the store is asked that all be of one content."""
        stream: AbstractContextManager[Reader] = self._filesystem.open(
            self._path(path), "rb", block_size=_BLOCK_BYTES, cache_type="readahead"
        )
        return stream

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root


def _stat(name: str, info: Mapping[str, Any]) -> Stat:
    size = info.get("size")
    tag = " ".join(str(info[key]) for key in (*_TAGS, *_TIMES) if info.get(key))
    changed_s = next((_seconds(info[key]) for key in _TIMES if info.get(key)), 0.0)
    return Stat(name, -1 if size is None else int(size), tag, changed_s)


def _seconds(moment: object) -> float:
    """Wall-clock of a time as client libraries give it; 0 when that is none."""
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError:
            return 0.0
    if not isinstance(moment, datetime):
        return 0.0
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
