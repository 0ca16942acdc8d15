from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.chassis.etcd import EtcdClient, EtcdProcess
from services.cli.demo.keys import VIEW, write_demo, write_repository
from services.core.feature_spec import FeatureViewSpec
from services.core.model_spec import ModelSpec

COLUMNS = ["a", "b"]


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[EtcdClient]:
    async with EtcdProcess(tmp_path / "etcd", fsync=False) as etcd:
        made = EtcdClient([etcd.endpoint])
        yield made
        await made.close()


async def test_what_operators_changed_is_kept(client: EtcdClient, tmp_path: Path) -> None:
    await write_demo(client, tmp_path / "features.sqlite", COLUMNS)
    await client.put("routes/digits", b'{"stable":"2"}')

    await write_demo(client, tmp_path / "features.sqlite", COLUMNS)

    entry = await client.get("routes/digits")
    assert entry
    assert entry.value == b'{"stable":"2"}'


async def test_the_feature_view_follows_a_data_folder_that_was_moved(client: EtcdClient, tmp_path: Path) -> None:
    await write_demo(client, tmp_path / "old.sqlite", COLUMNS)

    await write_demo(client, tmp_path / "new.sqlite", COLUMNS)

    entry = await client.get(f"feature_views/{VIEW}")
    assert entry
    assert FeatureViewSpec.parse(entry.value).store == f"sqlite://{tmp_path}/new.sqlite"


async def test_a_feature_view_that_was_moved_to_another_store_stays_there(client: EtcdClient, tmp_path: Path) -> None:
    spec = FeatureViewSpec.model_validate({"store": "redis://h:1/0", "entity": "e", "columns": [{"name": "a"}]})
    await client.put(f"feature_views/{VIEW}", spec.dump())

    await write_demo(client, tmp_path / "new.sqlite", COLUMNS)

    entry = await client.get(f"feature_views/{VIEW}")
    assert entry
    assert FeatureViewSpec.parse(entry.value) == spec


async def test_the_newest_version_of_a_new_model_serves(client: EtcdClient) -> None:
    await client.put("models/known", b'{"default_version":"1"}')

    await write_repository(client, {"fresh": ["9", "10"], "known": ["1", "2"]})

    fresh, known = await client.get("models/fresh"), await client.get("models/known")
    assert fresh
    assert known
    assert ModelSpec.parse(fresh.value).default_version == "10"
    assert ModelSpec.parse(known.value).default_version == "1"
