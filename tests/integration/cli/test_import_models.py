"""turnout models import, as an operator types it, against a real etcd."""

import asyncio
import json
from pathlib import Path

import pytest

from services.chassis.etcd import EtcdClient, EtcdProcess
from services.cli.app import run
from services.core.model_spec import ModelSpec
from services.core.route_spec import RouteSpec


async def value(etcd: EtcdProcess, key: str) -> bytes | None:
    client = EtcdClient([etcd.endpoint])
    entry = await client.get(key)
    await client.close()
    return entry.value if entry else None


async def typed(etcd: EtcdProcess, *words: str) -> int:
    return await asyncio.to_thread(run, ["models", "import", *words, "--etcd", etcd.endpoint])


async def test_models_of_triton_and_labels_of_tensorflow_serving_are_written(
    etcd: EtcdProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = tmp_path / "models"
    for place in ("digits/1", "half/1", "half/2", "chain/1"):
        (models / place).mkdir(parents=True)
    (models / "digits" / "config.pbtxt").write_text("max_batch_size: 8 response_cache { enable: true }")
    (models / "chain" / "config.pbtxt").write_text('platform: "ensemble"')
    config = tmp_path / "models.config"
    config.write_text(
        f'model_config_list {{ config {{ name: "half" base_path: "{models}/half"'
        ' version_labels { key: "best" value: 1 } } }'
    )
    tried = await typed(etcd, str(models), "digits", "--dry-run")
    not_yet = await value(etcd, "models/digits")
    whole = await typed(etcd, str(models))
    said = capsys.readouterr()
    labelled = await typed(etcd, str(config), "--replace", "--json")
    (outcome,) = json.loads(capsys.readouterr().out)
    again = await typed(etcd, str(config), "--json")
    (unlabelled,) = json.loads(capsys.readouterr().out)
    digits = ModelSpec.parse(await value(etcd, "models/digits") or b"")
    half = RouteSpec.parse(await value(etcd, "routes/half") or b"")

    assert (tried, whole, labelled, again) == (0, 1, 0, 0)
    assert not_yet is None
    assert (digits.batching.max_batch_size, digits.default_version) == (8, "1")
    assert "note: response_cache" in said.out
    assert "chain: refused: ensembles are not run" in said.out
    assert "not imported: chain" in said.err
    assert await value(etcd, "models/chain") is None
    assert (half.stable, half.labels) == ("2", {"best": "1"})
    assert outcome["spec"]["framework"] == "tensorflow"
    assert "a route was made" in outcome["notes"][-1]
    assert "there is a route already" in unlabelled["notes"][-1]
