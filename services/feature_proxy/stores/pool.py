"""The open stores of this process, by URL."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Sequence

import structlog

from services.feature_proxy.stores import OnlineStore, StoreLimits, open_store

_CLOSE_S = 5.0


class StorePool:
    """Opens a store when it is first read and closes it once no view names it and nobody reads it."""

    def __init__(self, limits: StoreLimits, log: structlog.typing.FilteringBoundLogger) -> None:
        self._limits = limits
        self._log = log
        self._open: dict[str, OnlineStore] = {}
        self._readers: Counter[str] = Counter()
        self._wanted: Collection[str] = ()
        self._closing: set[asyncio.Task[None]] = set()

    async def get_many(self, url: str, view: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Raises StoreError."""
        store = self._open.get(url)
        if store is None:
            store = self._open[url] = open_store(url, self._limits)
        self._readers[url] += 1
        try:
            return await store.get_many(view, keys)
        finally:
            self._readers[url] -= 1
            self._close_unwanted()

    def keep(self, urls: Collection[str]) -> None:
        """From now on only the stores at `urls` stay open."""
        self._wanted = urls
        self._close_unwanted()

    async def close(self) -> None:
        """Close all stores, also those still read."""
        for url in list(self._open):
            self._start_closing(url)
        if self._closing:
            await asyncio.wait(self._closing, timeout=_CLOSE_S)

    def _close_unwanted(self) -> None:
        for url in [url for url in self._open if url not in self._wanted and not self._readers[url]]:
            del self._readers[url]
            self._start_closing(url)

    def _start_closing(self, url: str) -> None:
        task = asyncio.get_running_loop().create_task(
            _quietly(self._open.pop(url).close, self._log), name="close-store"
        )
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def _quietly(
    close: Callable[[], Coroutine[None, None, None]], log: structlog.typing.FilteringBoundLogger
) -> None:
    try:
        await close()
    except Exception as error:  # noqa: BLE001 - the store is not used any more
        log.info("store_close_failed", error=str(error))
