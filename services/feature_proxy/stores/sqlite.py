"""sqlite:///PATH: one file on this host, read in a thread of its own.

Table features(view, entity, value). Reading never creates the file: a mistyped path is an error, not an empty store.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import BoundedSemaphore
from typing import TypeVar

from services.feature_proxy.stores.store import StoreError

_CREATE = """CREATE TABLE IF NOT EXISTS features (
  view TEXT NOT NULL, entity BLOB NOT NULL, value BLOB NOT NULL, PRIMARY KEY (view, entity)
) WITHOUT ROWID"""
_PUT = "INSERT OR REPLACE INTO features (view, entity, value) VALUES (?, ?, ?)"
_MAX_KEYS = 16_384  # of one SELECT; SQLite takes 32,766 parameters
_BUSY_S = 1.0  # waited for another process's write

T = TypeVar("T")


class SqliteStore:
    def __init__(self, path: str, queue: int) -> None:
        self._path = Path(path)
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="sqlite")
        self._places = BoundedSemaphore(queue)
        self._connection: sqlite3.Connection | None = None  # touched by the thread only
        self._file: tuple[int, int] | None = None  # device and inode that the connection has open

    async def get_many(self, view: str, keys: Sequence[bytes]) -> list[bytes | None]:
        return await self._in_thread(lambda: self._get(view, keys))

    async def put_many(self, view: str, blobs: Mapping[bytes, bytes]) -> None:
        await self._in_thread(lambda: self._put(view, blobs))

    async def close(self) -> None:
        closed = self._executor.submit(self._disconnect)
        self._executor.shutdown(wait=False)
        await asyncio.wait_for(asyncio.wrap_future(closed), 2 * _BUSY_S)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if not self._places.acquire(blocking=False):
            raise StoreError(f"{self._path}: too many calls wait for its thread")
        try:
            future: Future[T] = self._executor.submit(work)
        except RuntimeError as error:
            self._places.release()
            raise StoreError(f"{self._path}: closed") from error
        future.add_done_callback(lambda _: self._places.release())
        return await asyncio.wrap_future(future)

    def _get(self, view: str, keys: Sequence[bytes]) -> list[bytes | None]:
        try:
            connection = self._connect(create=False)
            found: dict[bytes, bytes] = {}
            for start in range(0, len(keys), _MAX_KEYS):
                found.update(_select(connection, view, keys[start : start + _MAX_KEYS]))
        except (sqlite3.Error, OSError) as error:
            self._disconnect()
            raise StoreError(f"{self._path}: {error}") from error
        return [found.get(key) for key in keys]

    def _put(self, view: str, blobs: Mapping[bytes, bytes]) -> None:
        try:
            connection = self._connect(create=True)
            with connection:
                connection.executemany(_PUT, ((view, key, blob) for key, blob in blobs.items()))
        except (sqlite3.Error, OSError) as error:
            self._disconnect()
            raise StoreError(f"{self._path}: {error}") from error

    def _connect(self, *, create: bool) -> sqlite3.Connection:
        """The connection, opened anew when the path leads to another file than before."""
        if create and not self._path.exists():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.touch(mode=0o640)
        status = self._path.stat()
        if self._connection is None or self._file != (status.st_dev, status.st_ino):
            self._disconnect()
            uri = f"{self._path.absolute().as_uri()}?mode=rw"
            self._connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_S)
            self._file = (status.st_dev, status.st_ino)
        if create:
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=NORMAL")
            self._connection.execute(_CREATE)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _select(connection: sqlite3.Connection, view: str, keys: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    # Padded to a power of two, so that few statements exist and SQLite's cache of them is of use.
    places = 1 << max(0, len(keys) - 1).bit_length()
    marks = ",".join("?" * places)
    statement = f"SELECT entity, value FROM features WHERE view = ? AND entity IN ({marks})"  # noqa: S608 - marks only
    padding = [None] * (places - len(keys))
    return connection.execute(statement, (view, *keys, *padding)).fetchall()
