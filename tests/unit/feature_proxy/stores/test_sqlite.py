import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.feature_proxy.stores import StoreError
from services.feature_proxy.stores.sqlite import SqliteStore


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore(str(tmp_path / "a #folder?" / "f%20.db"), queue=4)
    yield opened
    await opened.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "a #folder?" / "f%20.db"


def is_there(file: Path) -> bool:
    return file.exists()


def write(file: Path, content: bytes) -> None:
    file.parent.mkdir()
    file.write_bytes(content)


async def test_reading_a_file_that_is_not_there_is_an_error_and_makes_none(store: SqliteStore, file: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        await store.get_many("v", [b"1"])

    assert not is_there(file)


async def test_a_file_that_appears_or_is_replaced_is_read_without_a_restart(store: SqliteStore, file: Path) -> None:
    with pytest.raises(StoreError):
        await store.get_many("v", [b"1"])
    await store.put_many("v", {b"1": b"first"})
    before = await store.get_many("v", [b"1"])
    for leftover in file.parent.iterdir():
        leftover.unlink()
    other = SqliteStore(str(file), queue=4)
    await other.put_many("v", {b"1": b"second"})
    await other.close()

    assert before == [b"first"]
    assert await store.get_many("v", [b"1"]) == [b"second"]


async def test_what_another_process_writes_is_seen(store: SqliteStore, file: Path) -> None:
    await store.put_many("v", {b"1": b"old"})
    await store.get_many("v", [b"1"])
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE features SET value = ?", (b"new",))
    connection.close()

    assert await store.get_many("v", [b"1"]) == [b"new"]


async def test_a_file_that_is_no_database_is_an_error(store: SqliteStore, file: Path) -> None:
    write(file, b"not a database" * 100)

    with pytest.raises(StoreError, match="not a database"):
        await store.get_many("v", [b"1"])


async def test_more_calls_than_may_wait_are_refused_at_once_and_the_rest_answered(store: SqliteStore) -> None:
    await store.put_many("v", {b"1": b"one"})

    gate = threading.Event()
    store._executor.submit(gate.wait, 10)

    calls = [asyncio.ensure_future(store.get_many("v", [b"1"])) for _ in range(9)]
    await asyncio.wait(calls[4:])
    gate.set()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)

    assert outcomes[:4] == [[b"one"]] * 4
    assert all(isinstance(outcome, StoreError) and "too many calls wait" in str(outcome) for outcome in outcomes[4:])
    assert await store.get_many("v", [b"1"]) == [b"one"]


async def test_a_cancelled_call_leaves_its_place(store: SqliteStore) -> None:
    await store.put_many("v", {b"1": b"one"})
    for _ in range(20):
        call = asyncio.ensure_future(store.get_many("v", [b"1"]))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        assert await store.get_many("v", [b"1"]) == [b"one"]


async def test_after_close_calls_are_errors(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "f.db"), queue=4)
    await store.close()

    with pytest.raises(StoreError, match="closed"):
        await store.get_many("v", [b"1"])
