"""From a repository's URL to the means to read it; what a kind of URL needs is imported when one is there."""

import base64
import importlib
import logging
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from services.runtime.local_repository import LocalRepository, path_of
from services.runtime.object_store import ObjectStore
from services.runtime.remote_repository import RemoteRepository
from services.runtime.source import BadRepositoryError, Repository
from services.runtime.web_store import WebStore

_CONNECT_S, _READ_S = 10, 60
_EXTRAS = {"s3": "s3", "gs": "gs", "gcs": "gs", "http": "http", "https": "http"}
_NEEDS = {"s3": "s3fs", "gs": "gcsfs", "http": "aiohttp"}


class Repositories:
    """One for a URL, so that connections are shared."""

    def __init__(self, *, links_outside: bool = False) -> None:
        self._links_outside = links_outside
        self._known: dict[str, Repository] = {}

    def of(self, url: str) -> Repository:
        """Raises BadRepositoryError for a URL that this runtime cannot read."""
        if not url:
            raise BadRepositoryError("no repository: set it in the model's spec or in the runtime's settings")
        if url not in self._known:
            try:
                self._known[url] = self._make(url)
            except ValueError as error:  # which does not repeat the URL
                raise BadRepositoryError(f"a repository's URL cannot be read: {error}") from None
        return self._known[url]

    def _make(self, url: str) -> Repository:
        scheme = urlsplit(url).scheme.lower() if "://" in url else "file"
        if scheme == "file":
            return LocalRepository(path_of(url), links_outside=self._links_outside)
        if scheme not in _EXTRAS:
            raise BadRepositoryError(
                f"repository {public(url)}: expected a path, file://, s3://, gs://, http:// or https://"
            )
        return RemoteRepository(_web(url) if _EXTRAS[scheme] == "http" else _objects(url, _EXTRAS[scheme]))


def public(url: str) -> str:
    """A URL without what may be secret in it: user, password and query."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl().rstrip("/")


def _objects(url: str, extra: str) -> ObjectStore:
    parts = urlsplit(url)
    if not parts.netloc or "@" in parts.netloc or parts.query:
        raise BadRepositoryError(
            f"repository {public(url)}: expected {extra}://BUCKET/PREFIX; credentials come from the environment"
        )
    options: dict[str, dict[str, Any]] = {
        "s3": {  # s3fs tries five times by itself
            "config_kwargs": {
                "connect_timeout": _CONNECT_S,
                "read_timeout": _READ_S,
                "retries": {"total_max_attempts": 2},
            }
        },
        "gs": {"requests_timeout": _READ_S},
    }
    root = f"{parts.netloc}/{parts.path.strip('/')}".rstrip("/")
    return ObjectStore(_filesystem(extra, extra, options[extra]), root, public(url))


def _web(url: str) -> WebStore:
    parts = urlsplit(url)
    if not parts.hostname or parts.query or parts.fragment:
        raise BadRepositoryError(f"repository {public(url)}: expected http(s)://HOST/PATH without a query")
    client = _client(parts.username, parts.password)
    return WebStore(_filesystem("http", "http", {"client_kwargs": client}), public(url))


def _client(user: str | None, password: str | None) -> Mapping[str, Any]:
    aiohttp = importlib.import_module("aiohttp")
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=_READ_S)
    options: dict[str, Any] = {"timeout": timeout, "trust_env": True}  # proxies, and ~/.netrc
    if user:
        login = base64.b64encode(f"{unquote(user)}:{unquote(password or '')}".encode()).decode()
        options["headers"] = {"Authorization": f"Basic {login}"}
    return options


def _filesystem(protocol: str, extra: str, options: Mapping[str, Any]) -> Any:
    """Options of the environment (FSSPEC_S3 and the like) go before ours."""
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # what it raises is said once, by who looks
    if protocol == "gs":  # else each bucket's first listing asks over gRPC of which kind it is, for a minute if need be
        os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    try:
        fsspec = importlib.import_module("fsspec")
        importlib.import_module(_NEEDS[extra])
    except ImportError as error:
        raise BadRepositoryError(
            f"{protocol}:// needs {error.name}, which is not installed here: pip install 'turnout[{extra}]'"
        ) from None
    given = fsspec.config.conf.get(protocol, {})
    ours = {name: _joined(value, given.get(name)) for name, value in options.items()}
    try:
        return fsspec.filesystem(protocol, use_listings_cache=False, skip_instance_cache=True, **ours)
    except Exception as error:
        raise BadRepositoryError(f"{protocol}://: {type(error).__name__}: {' '.join(str(error).split())}") from error


def _joined(ours: Any, given: Any) -> Any:
    if isinstance(ours, Mapping) and isinstance(given, Mapping):
        return {**ours, **given}
    return ours if given is None else given
