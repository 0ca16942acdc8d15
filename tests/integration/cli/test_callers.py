import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import orjson
import pytest

from services.chassis.etcd import EtcdClient, EtcdProcess
from services.cli.app import run
from services.cli.caller_edit import with_key, without_keys
from services.cli.callers import change_caller
from services.cli.errors import CliError
from services.core import api_key
from services.core.caller_spec import CallerSpec


@pytest.fixture
async def client(etcd: EtcdProcess) -> AsyncIterator[EtcdClient]:
    made = EtcdClient([etcd.endpoint])
    yield made
    await made.close()


async def stored(client: EtcdClient) -> CallerSpec:
    entry = await client.get("callers/shop")
    assert entry
    return CallerSpec.parse(entry.value)


async def test_a_caller_is_made_given_another_key_and_ended(
    client: EtcdClient, etcd: EtcdProcess, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    where = ["--etcd", etcd.endpoint, "--data-dir", str(tmp_path / "none")]

    async def turnout(*arguments: str, code: int = 0) -> str:
        """What a command of callers prints."""
        assert await asyncio.to_thread(run, ["callers", *arguments, *where]) == code
        said = capsys.readouterr()
        return said.err if code else said.out

    lines = (await turnout("add", "shop", "--model", "shop-*", "--requests-per-s", "5")).splitlines()
    assert lines[:2] == [
        "shop: predict on shop-*; requests_per_s 5; no router runs",
        "its key, which is shown this once:",
    ]
    old = api_key.parse(lines[2])
    assert old
    assert api_key.matches(old, (await stored(client)).keys[old.id].hmac_sha256)

    assert "there is a caller shop: `turnout callers rotate shop`" in await turnout("add", "shop", code=1)
    rotated = orjson.loads(await turnout("rotate", "shop", "--expires-in-days", "30", "--json"))
    new = api_key.parse(rotated["key"])
    assert new
    assert set((await stored(client)).keys) == {old.id, new.id}

    shown = await turnout("show", "shop") + await turnout("list") + await turnout("list", "--json")
    assert (new.id in shown, new.secret in shown, "hmac" in shown) == (True, False, False)
    await turnout("revoke", "shop", old.id)
    assert set((await stored(client)).keys) == {new.id}
    assert f"shop has no key {old.id}" in await turnout("revoke", "shop", old.text(), code=1)
    assert "or say --all" in await turnout("revoke", "shop", code=2)
    await turnout("revoke", "shop", "--all")
    assert await client.get("callers/shop") is None
    assert "there are no callers" in await turnout("list")


async def test_changes_at_the_same_time_are_all_kept(client: EtcdClient) -> None:
    keys = [api_key.make(bytes([number]) * 42) for number in range(3)]
    await client.put("callers/shop", b"{}")

    def add(key: api_key.ApiKey, before: CallerSpec | None) -> CallerSpec:
        assert before is not None
        return with_key(before, key, datetime.now(UTC), None)

    await asyncio.gather(*(change_caller(client, "shop", partial(add, key)) for key in keys))
    assert set((await stored(client)).keys) == {key.id for key in keys}

    await client.put("callers/shop", b'{"roles": ["god"]}')
    with pytest.raises(CliError, match="shop has a value that is no caller"):
        await change_caller(client, "shop", lambda before: without_keys("shop", before or CallerSpec(), []))
