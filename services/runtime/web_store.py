"""http(s)://HOST/PATH through fsspec: MODEL/SHA256SUMS says what there is, or else the server's pages of links do."""

import html
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote, unquote

from services.core.names import is_version
from services.runtime.remote_repository import LISTING_TIMEOUT_S, Listing, Reader, said
from services.runtime.source import MAX_DEPTH, SUMS, Stat, UnreachableError, is_hidden, parse_sums, why_unsafe

_AT_ONCE = 8  # questions about files
_MAX_FILES = 10_000
_TAGS = ("ETag", "Content-MD5", "Digest", "Last-Modified")
_ANY_SIZE = 1  # one keeps fsspec from asking for it; a stream does not use it


class WebStore:
    """`filesystem` is fsspec's; `root` is a URL without credentials and without a slash at its end."""

    def __init__(self, filesystem: Any, root: str) -> None:
        self.name = unquote(root.rpartition("/")[2])
        self._filesystem = filesystem
        self._root = root

    def __str__(self) -> str:
        return self._root

    def find_model(self, path: str) -> Listing:
        manifest = self._manifest(f"{path}/{SUMS}".lstrip("/"))
        if manifest is None:
            return Listing(self._find(path, only_versions=True))
        sums = parse_sums(manifest)
        return Listing([Stat(name, -1, each) for name, each in sums.items()], sums)

    def find(self, path: str) -> list[Stat]:
        return self._find(path, only_versions=False)

    def check_root(self) -> None:
        if self._links("") is None:
            raise UnreachableError(f"repository {self._root} is not there, or does not list what it holds")

    def open(self, path: str) -> AbstractContextManager[Reader]:
        headers = {**self._filesystem.kwargs.get("headers", {}), "Accept-Encoding": "identity"}
        stream: AbstractContextManager[Reader] = self._filesystem.open(
            self._url(path), "rb", block_size=0, size=_ANY_SIZE, headers=headers
        )
        return stream

    def _find(self, path: str, *, only_versions: bool) -> list[Stat]:
        names = list(self._walk(path, only_versions=only_versions))
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(lambda name: self._stat(path, name), names))

    def _walk(self, path: str, depth: int = 0, *, only_versions: bool = False) -> Iterator[str]:
        """Names of files below `path`, relative to it; of folders right below it perhaps only those of versions."""
        if depth > MAX_DEPTH:
            raise UnreachableError(f"{self._root}/{path} has over {MAX_DEPTH} folders in each other")
        links = self._links(path)
        if links is None and depth:  # its parent has just named it
            raise UnreachableError(f"{self._root}/{path} is not there any more")
        for name in links or ():
            folder = name.removesuffix("/")
            if is_hidden(folder) or why_unsafe(folder):
                continue
            if not name.endswith("/"):
                yield name
            elif not only_versions or is_version(folder):
                below = self._walk(f"{path}/{folder}".lstrip("/"), depth + 1)
                yield from (f"{folder}/{each}" for each in below)

    def _links(self, path: str) -> list[str] | None:
        """What a page of links names right below `path`, folders with a slash; None when there is no such page."""
        base = f"{self._url(path)}/"
        with said(base):
            try:
                found = self._filesystem.ls(base, detail=False, timeout=LISTING_TIMEOUT_S)
            except FileNotFoundError:
                return None
        links = {html.unescape(url.removeprefix(base)) for url in found if url.startswith(base)}
        names = {unquote(link.removeprefix("./")) for link in links if "?" not in link and "#" not in link}
        inside = sorted(name for name in names if name.removesuffix("/") and "/" not in name.removesuffix("/"))
        if not inside:  # a page of another kind must not look as if all had been deleted
            raise UnreachableError(f"{base} names no file: is it a listing?")
        if len(inside) > _MAX_FILES:
            raise UnreachableError(f"{base} names over {_MAX_FILES} files")
        return inside

    def _stat(self, path: str, name: str) -> Stat:
        url = self._url(f"{path}/{name}".lstrip("/"))
        with said(url):
            try:
                info: Mapping[str, Any] = self._filesystem.info(url, timeout=LISTING_TIMEOUT_S)
            except FileNotFoundError as error:  # fsspec says so of every answer but a good one
                raise UnreachableError(f"{url}: {error.__cause__ or 'is not there any more'}") from error
        size = info.get("size")
        tag = " ".join(str(info[key]) for key in _TAGS if info.get(key))
        return Stat(name, -1 if size is None else int(size), tag, _seconds(str(info.get("Last-Modified", ""))))

    def _manifest(self, path: str) -> str | None:
        with said(self._url(path)):
            try:
                content: bytes = self._filesystem.cat_file(self._url(path), timeout=LISTING_TIMEOUT_S)
            except FileNotFoundError:
                return None
            except Exception as error:
                if getattr(error, "status", 0) == 403:  # what some stores say of a file that is not there
                    return None
                raise
            return content.decode()

    def _url(self, path: str) -> str:
        return f"{self._root}/{quote(path)}" if path else self._root


def _seconds(date: str) -> float:
    try:
        return parsedate_to_datetime(date).timestamp()
    except ValueError:
        return 0.0
