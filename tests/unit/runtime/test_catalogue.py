"""What a pod knows of its repositories, also while they are away."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from services.core.model_spec import ModelSpec
from services.runtime import catalogue
from services.runtime.catalogue import Catalogue
from services.runtime.remembered import Remembered
from services.runtime.remote_repository import Listing, RemoteRepository
from services.runtime.repositories import Repositories
from services.runtime.source import Repository, Stat, UnreachableError

AFAR, HERE = ModelSpec(repository="test://afar"), ModelSpec(repository="local")


class Store:
    """A server that a test can take away, or make slow."""

    name = "afar"

    def __init__(self, *names: str) -> None:
        self.names = names
        self.is_away = False
        self.looks = 0

    def __str__(self) -> str:
        return "test://afar"

    def find_model(self, path: str) -> Listing:
        return Listing(self.find(path))

    def find(self, path: str) -> list[Stat]:
        self.looks += 1
        if self.is_away:
            raise UnreachableError("test://afar: no answer")
        return [Stat(name, 1, "tag", 1.0) for name in self.names]

    def check_root(self) -> None: ...

    def open(self, path: str) -> Any: ...


class Known(Repositories):
    def __init__(self, store: Store, local: Path) -> None:
        super().__init__()
        self._afar = RemoteRepository(store)
        self._local = local

    def of(self, url: str) -> Repository:
        return self._afar if url == "test://afar" else super().of(str(self._local))


class Pod:
    """A catalogue whose tasks are kept and whose wakes are events."""

    def __init__(self, store: Store, folder: Path, **settings: float) -> None:
        self.woken = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        (folder / "models").mkdir(exist_ok=True)
        self.catalogue = Catalogue(
            "", Known(store, folder / "models"), Remembered(folder / "remembered.json"),
            self._spawn, self.woken.set, settle_s=0, **settings,
        )  # fmt: skip

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def look(self, *, is_due: bool = True, **specs: ModelSpec) -> dict[str, set[str]]:
        """Everything that is available after a look at all."""
        if is_due:
            self.catalogue._due_s.clear()
        await self.catalogue.look(specs)
        async with asyncio.timeout(30):
            while self._tasks:
                await asyncio.wait(self._tasks)
        return {model: set(versions) for model, versions in self.catalogue.available().items()}


async def test_a_listing_that_fails_keeps_what_it_showed_and_says_why(tmp_path: Path) -> None:
    store = Store("1/model.onnx", "2/model.onnx")
    pod = Pod(store, tmp_path)
    await pod.look(m=AFAR)
    store.is_away = True
    kept = await pod.look(m=AFAR)
    faults = dict(pod.catalogue.faults)
    store.is_away, store.names = False, ("2/model.onnx",)
    after = await pod.look(m=AFAR)

    assert kept == {"m": {"1", "2"}}
    assert faults == {"m": "test://afar: no answer"}
    assert after == {"m": {"2"}}
    assert pod.catalogue.faults == {}


async def test_a_pod_that_starts_in_an_outage_goes_by_the_last_listing(tmp_path: Path) -> None:
    store = Store("1/model.onnx", "2/model.onnx")
    before = Pod(store, tmp_path)
    await before.look(m=AFAR)
    store.is_away = True
    after = Pod(store, tmp_path)

    assert await after.look(m=AFAR, other=AFAR) == {"m": {"1", "2"}, "other": set()}
    assert after.catalogue.versions["m"]["1"].artifact == before.catalogue.versions["m"]["1"].artifact


async def test_a_server_that_takes_its_time_delays_no_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "_PATIENCE_S", 0.01)
    store = Store("1/model.onnx")
    await Pod(store, tmp_path).look(m=AFAR)
    slow, hung = Pod(store, tmp_path), asyncio.Event()

    async def hang(name: str, work: Any, *arguments: Any) -> Any:
        await hung.wait()
        return work(*arguments)

    monkeypatch.setattr(catalogue, "aside", hang)
    await slow.catalogue.look({"m": AFAR})
    async with asyncio.timeout(30):
        await slow.woken.wait()
    meanwhile = slow.catalogue.available()
    hung.set()

    assert meanwhile == {"m": {"1"}}
    assert await slow.look(m=AFAR) == {"m": {"1"}}


async def test_a_remote_repository_is_asked_when_it_is_due_and_a_local_one_each_time(tmp_path: Path) -> None:
    store = Store("1/model.onnx")
    pod = Pod(store, tmp_path, remote_scan_s=3600)
    await pod.look(m=AFAR, here=HERE)
    file = tmp_path / "models" / "here" / "1" / "model.onnx"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"x")
    available = await pod.look(is_due=False, m=AFAR, here=HERE)

    assert available == {"m": {"1"}, "here": {"1"}}
    assert store.looks == 1


async def test_another_repository_is_asked_at_once_and_until_then_the_versions_stay(tmp_path: Path) -> None:
    store = Store("7/model.onnx")
    file = tmp_path / "models" / "m" / "1" / "model.onnx"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"x")
    pod = Pod(store, tmp_path, remote_scan_s=3600)
    first = await pod.look(m=HERE)
    store.is_away = True
    kept = await pod.look(is_due=False, m=AFAR)
    store.is_away = False
    moved = await pod.look(m=AFAR)
    back = await pod.look(is_due=False, m=HERE)

    assert (first, kept, moved, back) == ({"m": {"1"}}, {"m": {"1"}}, {"m": {"7"}}, {"m": {"1"}})


async def test_a_models_folder_may_have_another_name(tmp_path: Path) -> None:
    file = tmp_path / "models" / "m_v2" / "1" / "model.onnx"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"x")
    pod = Pod(Store(), tmp_path)

    assert await pod.look(m=ModelSpec(repository="local", folder="m_v2")) == {"m": {"1"}}


async def test_a_model_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    pod = Pod(Store("1/model.onnx"), tmp_path)
    await pod.look(m=AFAR)

    assert await pod.look() == {}
    assert pod.catalogue.versions == {}


async def test_a_url_that_nobody_can_read_is_a_fault_of_the_model(tmp_path: Path) -> None:
    pod = Pod(Store(), tmp_path)
    pod.catalogue._repositories = Repositories()
    await pod.look(m=ModelSpec(repository="ftp://ana:secret@host/models"))

    assert pod.catalogue.faults == {
        "m": "repository ftp://host/models: expected a path, file://, s3://, gs://, http:// or https://"
    }


async def test_a_look_that_nobody_expected_to_fail_is_a_fault_of_its_model_only(tmp_path: Path) -> None:
    store = Store("1/model.onnx")
    pod = Pod(store, tmp_path)
    await pod.look(m=AFAR)
    store.find = lambda _path: 1 / 0  # type: ignore[assignment, return-value]
    kept = await pod.look(m=AFAR, n=HERE)

    assert kept == {"m": {"1"}, "n": set()}
    assert pod.catalogue.faults == {"m": "repository test://afar could not be read: ZeroDivisionError"}
