"""Blobs lately read, so that one entity asked for again and again costs one read a `ttl_s`."""

from collections import OrderedDict
from collections.abc import Iterable

Key = tuple[str, str, bytes]  # store, view, entity


class Cache:
    """At most `max_entries` blobs of together `max_bytes`, each for `ttl_s`; the longest held leave first."""

    def __init__(self, ttl_s: float, max_entries: int, max_bytes: int) -> None:
        self._ttl_s = ttl_s
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._entries: OrderedDict[Key, tuple[float, bytes]] = OrderedDict()  # oldest first
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get_many(self, store: str, view: str, entities: Iterable[bytes], now: float) -> dict[bytes, bytes | None]:
        """Those of `entities` that are held; `now` is monotonic, as in put."""
        found: dict[bytes, bytes | None] = {}
        if not self._entries:
            return found
        for entity in entities:
            key = (store, view, entity)
            entry = self._entries.get(key)
            if entry is None:
                continue
            if now < entry[0]:
                found[entity] = entry[1]
            else:
                self._drop(key)
        return found

    def put(self, store: str, view: str, entity: bytes, blob: bytes, now: float) -> None:
        if self._ttl_s <= 0 or len(blob) > self._max_bytes:
            return
        key = (store, view, entity)
        self._drop(key)
        self._entries[key] = (now + self._ttl_s, blob)
        self.size_bytes += len(blob)
        while len(self._entries) > self._max_entries or self.size_bytes > self._max_bytes:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.size_bytes -= len(entry[1])
