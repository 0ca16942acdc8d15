"""What holds for every kind of store that needs no server; Redis is met in the integration tests."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.core.spec import BadValueError
from services.feature_proxy.stores import OnlineStore, check_url, open_store


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OnlineStore]:
    opened = open_store(f"memory://{uuid.uuid4().hex}" if request.param == "memory" else f"sqlite://{tmp_path}/f.db")
    yield opened
    await opened.close()


async def test_values_come_in_the_order_of_the_keys_with_none_for_what_is_not_there(store: OnlineStore) -> None:
    await store.put_many("v", {b"1": b"one", b"2": b"two"})

    assert await store.get_many("v", [b"2", b"9", b"1", b"2"]) == [b"two", None, b"one", b"two"]
    assert await store.get_many("other", [b"1"]) == [None]
    assert await store.get_many("v", []) == []


async def test_keys_are_bytes_of_any_kind_and_later_values_replace(store: OnlineStore) -> None:
    keys = [b"\x00\xff", b"'; --", "schlüssel".encode(), b"x" * 1024]
    await store.put_many("v", dict.fromkeys(keys, b"old"))
    await store.put_many("v", {key: b"new" + key for key in keys})

    assert await store.get_many("v", keys) == [b"new" + key for key in keys]


async def test_tens_of_thousands_of_keys_are_read_at_once(store: OnlineStore) -> None:
    keys = [b"%d" % i for i in range(40_000)]
    await store.put_many("v", {key: key for key in keys[::2]})

    assert await store.get_many("v", keys) == [key if i % 2 == 0 else None for i, key in enumerate(keys)]


@pytest.mark.parametrize(
    ("url", "right"),
    [
        ("sqlite://file.db", "sqlite:///PATH"),
        ("sqlite:///", "sqlite:///PATH"),
        ("memory://", "memory://NAME"),
        ("memory://a/b", "memory://NAME"),
        ("redis:///0", "redis://HOST:PORT/DB"),
        ("redis://h:99999/0", "redis://HOST:PORT/DB"),
        ("redis://h:1/x", "redis://HOST:PORT/DB"),
    ],
)
def test_a_malformed_url_is_refused_with_what_would_be_right(url: str, right: str) -> None:
    with pytest.raises(BadValueError, match=f"store: .*{right}"):
        check_url(url)


def test_an_unknown_kind_of_store_is_refused() -> None:
    with pytest.raises(BadValueError, match="'mongo' is none of sqlite, memory, redis"):
        open_store("mongo://h/0")
