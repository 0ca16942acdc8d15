"""When stores are opened and closed; SQLite's, whose connection shows whether it is."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import structlog

from services.feature_proxy.stores import StoreError, StoreLimits
from services.feature_proxy.stores.pool import StorePool
from services.feature_proxy.stores.sqlite import SqliteStore


@pytest.fixture
async def pool() -> AsyncIterator[StorePool]:
    opened = StorePool(StoreLimits(), structlog.get_logger())
    yield opened
    await opened.close()


@pytest.fixture
async def url(tmp_path: Path) -> str:
    store = SqliteStore(str(tmp_path / "f.db"), queue=4)
    await store.put_many("v", {b"1": b"one"})
    await store.close()
    return f"sqlite://{tmp_path}/f.db"


def open_stores(pool: StorePool) -> dict[str, SqliteStore]:
    return {url: store for url, store in pool._open.items() if isinstance(store, SqliteStore)}


async def test_a_store_is_opened_once_and_stays_open_while_a_view_names_it(pool: StorePool, url: str) -> None:
    pool.keep({url})

    assert await pool.get_many(url, "v", [b"1"]) == [b"one"]
    first = open_stores(pool)[url]
    assert await pool.get_many(url, "v", [b"1", b"2"]) == [b"one", None]
    assert open_stores(pool) == {url: first}


async def test_a_store_that_no_view_names_is_closed_after_its_last_reader(pool: StorePool, url: str) -> None:
    pool.keep({url})
    await pool.get_many(url, "v", [b"1"])
    store, gate = open_stores(pool)[url], threading.Event()
    store._executor.submit(gate.wait, 10)
    reading = asyncio.ensure_future(pool.get_many(url, "v", [b"1"]))
    await asyncio.sleep(0)

    pool.keep(set())
    still_open = url in open_stores(pool)
    gate.set()

    assert await reading == [b"one"]
    assert still_open
    assert open_stores(pool) == {}
    await pool.close()
    with pytest.raises(StoreError, match="closed"):
        await store.get_many("v", [b"1"])


async def test_a_view_that_comes_back_opens_its_store_anew(pool: StorePool, url: str) -> None:
    pool.keep({url})
    await pool.get_many(url, "v", [b"1"])
    pool.keep(set())
    pool.keep({url})

    assert await pool.get_many(url, "v", [b"1"]) == [b"one"]


async def test_close_closes_what_is_open(pool: StorePool, url: str) -> None:
    pool.keep({url})
    await pool.get_many(url, "v", [b"1"])
    store = open_stores(pool)[url]

    await pool.close()

    assert store._connection is None
