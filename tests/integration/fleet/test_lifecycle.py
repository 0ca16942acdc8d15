"""Load, unload and index of a fleet of one real pod: what is asked for comes about, or all is as it was before."""

import asyncio
import io
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import joblib
import pytest

from services.core.desired_state import IndexRow
from services.core.errors import DeadlineExceededError, InvalidRequestError, NotFoundError
from services.core.load_request import LoadRequest
from services.fleet.lifecycle import Lifecycle, LoadError
from tests.support.mischief import AbortsOnLoad, Mischief
from tests.support.runtime_pod import TIMEOUT_S, Batcher, Pod, output

SPEC = {"trusted": True}
GIVEN_UP_S = 3 * TIMEOUT_S  # three starts, one after the other
pytestmark = pytest.mark.timeout(240)


def pickled(value: object) -> bytes:
    stream = io.BytesIO()
    joblib.dump(value, stream)
    return stream.getvalue()


async def spec_of(pod: Pod, model: str) -> dict | None:
    entry = await pod.client.get(f"models/{model}")
    return json.loads(entry.value) if entry else None


def corrupt(folder: Path) -> None:
    """Replace a version's content by what no framework reads."""
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "model.joblib").write_bytes(b"nothing of the kind")


@asynccontextmanager
async def serving(pod: Pod, **settings: str) -> AsyncIterator[None]:
    """The pod runs and has said so."""
    async with pod.running(**settings):
        await pod.inventory(lambda _: True)
        yield


async def test_load_unload_and_load_again(pod: Pod, lifecycle: Lifecycle) -> None:
    pod.save("sum", "1", Mischief())
    async with serving(pod):
        first = await lifecycle.load("sum", LoadRequest(SPEC), TIMEOUT_S)
        loaded, pid = await lifecycle.index(), (await pod.instance("sum", "1")).pid
        await lifecycle.unload("sum", TIMEOUT_S)
        unloaded, held = await lifecycle.index(), list(pod.state.instances)
        again = await lifecycle.load("sum", LoadRequest(), TIMEOUT_S)
        new_pid = (await pod.instance("sum", "1")).pid
        await lifecycle.load("sum", LoadRequest(), TIMEOUT_S)
        await pod.until("other processes", lambda: pid_of(pod) not in {0, new_pid})

    assert first.pods == again.pods == 1
    assert loaded == [IndexRow("sum", "1", "READY", "", 1, 1)]
    assert unloaded == [IndexRow("sum", "1", "UNAVAILABLE", "unloaded", 0, 1)]
    assert held == []
    assert new_pid != pid


def pid_of(pod: Pod) -> int:
    pids = [each.pid for each in pod.state.instances if each.state == 2]
    return pids[0] if len(pids) == len(pod.state.instances) == 1 else 0


async def test_a_load_returns_when_new_content_serves(pod: Pod, lifecycle: Lifecycle) -> None:
    pod.save("sum", "1", Mischief(factor=1))
    async with serving(pod):
        await lifecycle.load("sum", LoadRequest(SPEC), TIMEOUT_S)
        pod.save("sum", "1", Mischief(factor=10))
        await lifecycle.load("sum", LoadRequest(), TIMEOUT_S)
        await pod.until("the end of the one before", lambda: pid_of(pod))
        async with Batcher(await pod.instance("sum", "1")) as batcher:
            reply = await batcher.run((1, 2))

    assert output(reply, "y").tolist() == [30]


@pytest.mark.parametrize("value", [None, AbortsOnLoad()], ids=["corrupt", "dies"])
async def test_a_load_that_fails_leaves_what_served_serving(
    pod: Pod, lifecycle: Lifecycle, value: object | None
) -> None:
    expected = "model.joblib: expected" if value is None else "was killed by SIGABRT while loading"
    folder = pod.save("sum", "1", Mischief())
    async with serving(pod):
        await lifecycle.load("sum", LoadRequest(SPEC), TIMEOUT_S)
        before = await spec_of(pod, "sum")
        instance = await pod.instance("sum", "1")
        if value is None:
            corrupt(folder)
        else:
            pod.save("sum", "1", value)
        with pytest.raises(LoadError, match="its spec of before is back") as failure:
            await lifecycle.load("sum", LoadRequest({"default_deadline_ms": 2}), GIVEN_UP_S)
        await pod.inventory(lambda found: expected in found.models["sum"]["1"].reason)
        (row,) = await lifecycle.index()
        after = await pod.instance("sum", "1")

    assert expected in str(failure.value)
    assert row.state == "READY"
    assert after.pid == instance.pid
    assert await spec_of(pod, "sum") == before


async def test_a_first_load_that_fails_leaves_nothing(pod: Pod, lifecycle: Lifecycle) -> None:
    pod.save("sum", "1", Mischief())
    async with serving(pod):
        with pytest.raises(LoadError, match=r"set trusted.*it had no spec before"):
            await lifecycle.load("sum", LoadRequest(), TIMEOUT_S)
        with pytest.raises(LoadError, match="its repository holds no version"):
            await lifecycle.load("nobody", LoadRequest(), TIMEOUT_S)
        with pytest.raises(InvalidRequestError, match="model sum: no_such: unknown field"):
            await lifecycle.load("sum", LoadRequest({"no_such": 1}), TIMEOUT_S)
        with pytest.raises(InvalidRequestError, match="is no name"):
            await lifecycle.load("../sum", LoadRequest(), TIMEOUT_S)
        with pytest.raises(NotFoundError, match="there is no model nobody"):
            await lifecycle.unload("nobody", TIMEOUT_S)

    assert await spec_of(pod, "sum") is await spec_of(pod, "nobody") is None


async def test_files_that_come_with_a_load_are_served_instead_until_another_load(
    pod: Pod, lifecycle: Lifecycle, tmp_path: Path
) -> None:
    pod.save("sum", "1", Mischief(factor=1))
    files = {"3/model.joblib": pickled(Mischief(factor=3))}
    async with serving(pod):
        await lifecycle.load("sum", LoadRequest(SPEC), TIMEOUT_S)
        before = await spec_of(pod, "sum")
        with pytest.raises(LoadError, match="its spec of before is back"):
            await lifecycle.load("sum", LoadRequest({}, {"2/model.joblib": b"nothing"}), TIMEOUT_S)
        restored, left = await spec_of(pod, "sum"), list((tmp_path / "uploads").glob("*/sum"))
        await lifecycle.load("sum", LoadRequest({}, files), TIMEOUT_S)
        async with Batcher(await pod.instance("sum", "3")) as batcher:
            reply = await batcher.run((1, 2))

    assert restored == before
    assert left == []
    assert output(reply, "y").tolist() == [9]
    assert [
        str(path.relative_to(folder)) for folder in (tmp_path / "uploads").iterdir() for path in folder.rglob("*.*")
    ] == ["sum/3/model.joblib"]


async def test_a_load_that_takes_too_long_says_what_it_waited_for_and_is_undone(pod: Pod, lifecycle: Lifecycle) -> None:
    pod.save("sum", "1", Mischief())
    async with serving(pod, settle_s="600"):
        with pytest.raises(DeadlineExceededError, match="version 1: its files are still written to; it had no spec"):
            await lifecycle.load("sum", LoadRequest(SPEC), 1.5)

    assert await spec_of(pod, "sum") is None


async def test_a_load_that_somebody_else_overtook_is_not_undone(pod: Pod, lifecycle: Lifecycle) -> None:
    pod.save("sum", "1", Mischief())
    async with serving(pod, settle_s="600"):
        overtaken = asyncio.Event()
        loading = asyncio.create_task(lifecycle.load("sum", LoadRequest(SPEC), 2.5, lambda _: overtaken.set()))
        await overtaken.wait()
        await pod.put("models/sum", {"default_deadline_ms": 3})
        with pytest.raises(DeadlineExceededError, match="somebody else has changed its spec"):
            await loading

    assert await spec_of(pod, "sum") == {"default_deadline_ms": 3}


async def test_without_a_pod_only_the_key_is_written(pod: Pod, lifecycle: Lifecycle) -> None:
    outcome = await lifecycle.load("sum", LoadRequest({"default_deadline_ms": 2}), GIVEN_UP_S)
    bare = Lifecycle(pod.client, None)
    with pytest.raises(InvalidRequestError, match="no folder for uploads"):
        await bare.load("sum", LoadRequest({}, {"1/a": b""}), TIMEOUT_S)

    assert outcome.pods == 0
    assert await spec_of(pod, "sum") == {"default_deadline_ms": 2}
    assert await lifecycle.index() == [IndexRow("sum", "", "UNAVAILABLE", "no pod knows a version of it", 0, 0)]


async def test_the_index_says_that_a_spec_is_refused(pod: Pod, lifecycle: Lifecycle) -> None:
    await pod.client.put("models/sum", b'{"no_such": 1}')

    (row,) = await lifecycle.index()

    assert row.notes == ("its spec is refused, so the last good one holds: no_such: unknown field",)
