"""redis://HOST:PORT/DB: blobs under `turnout:VIEW:ENTITY`; one MGET reads all keys of a round trip."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import cast

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from services.feature_proxy.stores.store import StoreError

_WRITE_KEYS = 1_000  # of one MSET
_SOCKET_S = 5.0  # a bound for writers; look-ups are cut off much earlier by their view's timeout


class RedisStore:
    def __init__(self, url: str, connections: int, connect_s: float) -> None:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=connections,
            timeout=_SOCKET_S,
            socket_timeout=_SOCKET_S,
            socket_connect_timeout=connect_s,
            socket_keepalive=True,
            retry=Retry(NoBackoff(), 1),  # pooled connections of a server that restarted fail once
            driver_info=None,  # what CLIENT SETINFO would say, at two round trips a connection
        )
        self._redis = Redis.from_pool(pool)

    async def get_many(self, view: str, keys: Sequence[bytes]) -> list[bytes | None]:
        prefix = _prefix(view)
        try:
            blobs = await self._redis.mget([prefix + key for key in keys])
        except (RedisError, OSError) as error:
            raise StoreError(f"{type(error).__name__}: {error}") from error
        return cast("list[bytes | None]", blobs)

    async def put_many(self, view: str, blobs: Mapping[bytes, bytes]) -> None:
        prefix = _prefix(view)
        rest = iter(blobs.items())
        try:
            while some := list(islice(rest, _WRITE_KEYS)):
                await self._redis.mset({prefix + key: blob for key, blob in some})
        except (RedisError, OSError) as error:
            raise StoreError(f"{type(error).__name__}: {error}") from error

    async def close(self) -> None:
        await self._redis.aclose()


def _prefix(view: str) -> bytes:
    return f"turnout:{view}:".encode()
