"""Where feature rows live: one small class a kind of store, chosen by the URL of the view.

Entity keys are bytes: text as UTF-8, integers in decimal, BYTES as they are (the rule of routing keys), so that one
entity is found over every protocol, also where a header or a JSON string can only carry digits. Hence 3 and "3" are
the same entity.
"""

from dataclasses import dataclass
from urllib.parse import urlsplit

from services.core.spec import BadValueError
from services.feature_proxy.stores.memory import MemoryStore
from services.feature_proxy.stores.redis import RedisStore
from services.feature_proxy.stores.sqlite import SqliteStore
from services.feature_proxy.stores.store import OnlineStore, StoreError

__all__ = ["MAX_KEY_BYTES", "OnlineStore", "StoreError", "StoreLimits", "check_url", "open_store"]


MAX_KEY_BYTES = 1024  # of an entity key


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """Bounds of one open store."""

    sqlite_queue: int = 64  # calls that may wait for the file's thread
    redis_connections: int = 8
    redis_connect_s: float = 1.0


def check_url(url: str) -> None:
    """Raise BadValueError, saying what would be right, unless `open_store` takes `url`."""
    try:
        parts = urlsplit(url)
        port_ok = parts.port is None or parts.port > 0
    except ValueError as error:
        raise BadValueError(f"store: {error}; expected redis://HOST:PORT/DB") from None
    if parts.scheme == "sqlite" and (parts.netloc or len(parts.path) < 2):
        raise BadValueError("store: expected sqlite:///PATH with the absolute path of a file")
    if parts.scheme == "memory" and (not parts.netloc or parts.path not in ("", "/")):
        raise BadValueError("store: expected memory://NAME")
    number = parts.path.removeprefix("/")
    if parts.scheme == "redis" and not (parts.hostname and port_ok and (not number or number.isdecimal())):
        raise BadValueError("store: expected redis://HOST:PORT/DB")


def open_store(url: str, limits: StoreLimits = StoreLimits()) -> OnlineStore:
    """The store at `url`; nothing is connected before the first call. Raises BadValueError for a malformed one."""
    check_url(url)
    parts = urlsplit(url)
    if parts.scheme == "memory":
        return MemoryStore(parts.netloc)
    if parts.scheme == "sqlite":
        return SqliteStore(parts.path, limits.sqlite_queue)
    if parts.scheme == "redis":
        return RedisStore(url, limits.redis_connections, limits.redis_connect_s)
    raise BadValueError(f"store: {parts.scheme!r} is none of sqlite, memory, redis")
