"""Models in an object store that speaks S3: what a pod loads from it, and goes on serving when it is gone."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from services.runtime.repositories import Repositories
from services.runtime.source import Repository, UnreachableError
from tests.support.mischief import Mischief
from tests.support.object_server import ObjectServer, object_server
from tests.support.relay import Proxy
from tests.support.runtime_pod import READY, Batcher, Pod, output

QUICKLY = {"REMOTE_SCAN_S": "1", "SETTLE_S": "1"}


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectServer]:
    with object_server() as server:
        yield server


@pytest.fixture
def repository(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Repository:
    for name, value in server.environ().items():
        monkeypatch.setenv(name, value)
    return Repositories().of("s3://seen/models")


@pytest.fixture
async def relay(server: ObjectServer) -> AsyncIterator[Proxy]:
    relay = Proxy(server.endpoint)
    await relay.open()
    yield relay
    await relay.cut()


def test_an_object_store_is_a_repository(server: ObjectServer, repository: Repository) -> None:
    with pytest.raises(UnreachableError, match="s3://seen/models is not there"):
        repository.scan("m")
    server.make("seen")
    with pytest.raises(UnreachableError, match="s3://seen/models is not there"):
        repository.scan("m")
    content = os.urandom(17_000_000)  # of several requests
    server.put("seen", "models/m/1/model.onnx", content)
    server.put("seen", "models/m/1/", b"")  # as consoles make folders
    server.put("seen", "models/m/config.pbtxt", b"max_batch_size: 8")
    found = repository.scan("m")

    assert [stat[:2] for stat in found.versions["1"].fingerprint] == [("model.onnx", 17_000_000)]
    assert b"".join(found.versions["1"].folder.chunks("model.onnx")) == content
    assert repository.read("m", "config.pbtxt") == b"max_batch_size: 8"
    assert repository.read("m", "other") is None
    assert repository.scan("m") == found
    assert repository.scan("none").versions == {}

    half_read = found.versions["1"].folder.chunks("model.onnx")
    next(half_read)
    server.put("seen", "models/m/1/model.onnx", content[::-1])
    with pytest.raises(UnreachableError, match="no longer exists"):
        list(half_read)
    assert repository.scan("m").versions["1"] != found.versions["1"]


async def test_a_pod_loads_from_it_once_and_serves_on_without_it(
    server: ObjectServer, relay: Proxy, pod: Pod, tmp_path: Path
) -> None:
    server.make("models")
    server.put_folder("models", "prod/sum/1", pod.save("sum", "1", Mischief(factor=1)))
    await pod.put("models/sum", {"trusted": True, "repository": "s3://models/prod"})
    pod.settings |= server.environ(relay.endpoint) | {f"TURNOUT_RUNTIME_{key}": each for key, each in QUICKLY.items()}
    async with pod.running():
        first = await pod.instance("sum", "1")
        await relay.cut()
        inventory = await pod.inventory(lambda inventory: "sum" in inventory.faults)
        async with Batcher(first) as batcher:
            reply = await batcher.run((1, 2))
        assert pod.find("sum", "1", READY)
        downloads = [event for event in pod.process.events() if event["event"] == "artifact_downloaded"]

    assert output(reply, "y").tolist() == [3]
    assert "s3://models/prod" in inventory.faults["sum"]
    assert inventory.models["sum"]["1"].state == "READY"
    assert [event["artifact"] for event in downloads] == ["s3://models/prod/sum/1"]

    async with pod.running():  # begins while the store is away
        again = await pod.instance("sum", "1")
        assert again.digest == first.digest
        server.put_folder("models", "prod/sum/2", pod.save("sum", "2", Mischief(factor=2)))
        await relay.open()
        await pod.instance("sum", "2")
        await pod.inventory(lambda inventory: not inventory.faults)
        downloads = [event for event in pod.process.events() if event["event"] == "artifact_downloaded"]

    assert [event["artifact"] for event in downloads] == ["s3://models/prod/sum/2"]
