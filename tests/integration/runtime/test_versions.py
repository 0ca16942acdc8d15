"""Which versions a pod holds as operators edit keys and files, and how one takes over from another."""

import asyncio
import hashlib
import json
import signal
from pathlib import Path

import aiohttp
import pytest

from services.chassis.etcd import EtcdProcess
from services.core.registry import InventoryVersion
from tests.support import mischief
from tests.support.mesh_probes import is_running
from tests.support.mischief import Mischief
from tests.support.runtime_pod import DRAINING, FAILED, READY, Batcher, Pod, output
from tests.support.service_process import started
from turnout.v1 import runtime_pb2

SPEC = {"trusted": True}
_UNKNOWN = InventoryVersion(state="UNKNOWN")


async def test_a_moving_stable_starts_first_and_the_one_before_stays_warm(pod: Pod) -> None:
    for version in ("1", "2", "3"):
        pod.save("sum", version, Mischief(factor=float(version)))
    await pod.put("models/sum", {**SPEC, "version_policy": {"specific": []}})
    await pod.put("routes/sum", {"stable": "1"})
    async with pod.running():
        await pod.instance("sum", "1")
        await pod.put("routes/sum", {"stable": "2"})
        await pod.instance("sum", "2")
        await pod.inventory(lambda inventory: inventory.models["sum"]["2"].state == "READY")
        assert pod.find("sum", "1", READY)
        await pod.put("routes/sum", {"stable": "3"})
        await pod.gone("sum", "1")
        inventory = await pod.inventory(lambda inventory: inventory.models["sum"]["1"].reason == "unloaded")

    first_gone = pod.states_seen.index(("1", DRAINING))
    assert ("3", READY) in pod.states_seen[:first_gone]
    assert {version: each.state for version, each in inventory.models["sum"].items()} == {
        "1": "UNAVAILABLE",
        "2": "READY",
        "3": "READY",
    }


async def test_every_version_that_a_route_names_is_loaded(pod: Pod) -> None:
    for version in "123456":
        pod.save("sum", version, Mischief())
    route = {"stable": "1", "canary": {"2": 10}, "shadow": {"3": 100}, "labels": {"best": "4"}, "pins": {"k": "5"}}
    await pod.put("models/sum", {**SPEC, "version_policy": {"specific": []}})
    await pod.put("routes/sum", route)
    async with pod.running():
        ready = await pod.until("five versions", lambda: _ready(pod) if len(_ready(pod)) == 5 else None)

    assert ready == {"1", "2", "3", "4", "5"}


def _ready(pod: Pod) -> set[str]:
    return {instance.version for instance in pod.state.instances if instance.state == READY}


async def test_content_replaced_in_place_takes_over_without_a_gap(pod: Pod) -> None:
    pod.save("sum", "1", Mischief(factor=1))
    await pod.put("models/sum", SPEC)
    async with pod.running():
        old = await pod.instance("sum", "1")
        served_always = asyncio.create_task(_always_ready(pod))
        pod.save("sum", "1", Mischief(factor=10))
        new = await pod.until("another digest", lambda: _other_digest(pod, old.digest))
        await pod.until("the end of the old one", lambda: len(pod.state.instances) == 1)
        async with Batcher(new) as batcher:
            reply = await batcher.run((1, 2))
        served_always.cancel()
        with pytest.raises(asyncio.CancelledError):
            await served_always

    assert output(reply, "y").tolist() == [30]
    assert reply.digest == new.digest != old.digest


async def _always_ready(pod: Pod) -> None:
    await pod.until("a state without a ready instance", lambda: not _ready(pod))
    raise AssertionError("there was a state without a ready instance")


def _other_digest(pod: Pod, digest: str) -> object:
    found = [each for each in pod.state.instances if each.state == READY and each.digest != digest]
    return found[0] if found else None


async def test_a_version_that_is_let_go_answers_what_still_comes(pod: Pod) -> None:
    pod.save("sum", "1", Mischief())
    await pod.put("models/sum", SPEC)
    async with pod.running(quiet_s="5"), Batcher(await pod.instance("sum", "1")) as batcher:
        slow = await batcher.send((mischief.SLEEP, 0))
        await pod.client.delete("models/sum")
        await batcher.drained.wait()
        late = await batcher.run((1, 2))
        first = await slow
        await batcher.client.close()
        async with asyncio.timeout(4):  # it need not wait to be quiet once its links are closed
            await pod.gone("sum", "1")

    assert output(first, "y").tolist() == [mischief.SLEEP]
    assert output(late, "y").tolist() == [3]


async def test_a_version_copied_bit_by_bit_is_loaded_once_and_whole(pod: Pod, tmp_path: Path) -> None:
    whole = pod.save("sum", "9", Mischief(factor=7)).joinpath("model.joblib").read_bytes()
    pod.save("sum", "1", Mischief())
    folder = pod.models / "sum" / "10"
    await pod.put("models/sum", SPEC)
    async with pod.running():
        await pod.instance("sum", "9")
        folder.mkdir()
        (folder / "model.joblib.part").write_bytes(whole[:10])  # a temporary name is no artifact
        with (folder / "model.joblib").open("wb") as stream:
            for start in range(0, len(whole), len(whole) // 8):
                stream.write(whole[start : start + len(whole) // 8])
                stream.flush()
                await asyncio.sleep(0.1)  # slower than it is looked at, faster than it settles
        instance = await pod.instance("sum", "10")
        async with Batcher(instance) as batcher:
            reply = await batcher.run((1, 1))

    assert output(reply, "y").tolist() == [14]
    assert ("10", FAILED) not in pod.states_seen
    assert not [event for event in pod.process.events() if event["event"] == "artifact_refused"]


async def test_a_version_with_checksums_waits_for_all_of_them(pod: Pod) -> None:
    whole = pod.save("sum", "1", Mischief(factor=7)).joinpath("model.joblib").read_bytes()
    folder = pod.models / "sum" / "2"
    await pod.put("models/sum", SPEC)
    async with pod.running():
        await pod.instance("sum", "1")
        folder.mkdir()
        (folder / "SHA256SUMS").write_text(f"{hashlib.sha256(whole).hexdigest()}  model.joblib\n")
        (folder / "model.joblib").write_bytes(whole[:40])
        refused = await pod.inventory(
            lambda found: found.models["sum"].get("2", _UNKNOWN).reason.startswith("not whole yet")
        )
        (folder / "model.joblib").write_bytes(whole)
        await pod.instance("sum", "2")

    assert refused.models["sum"]["2"].reason == "not whole yet: model.joblib does not match SHA256SUMS"
    assert ("2", FAILED) not in pod.states_seen


async def test_a_corrupt_artifact_fails_with_its_reason_while_others_serve(pod: Pod) -> None:
    pod.save("sum", "1", Mischief())
    for model, name, content in (("net", "model.onnx", b"\1\2garbage"), ("trees", "model.json", b"PK\3\4...")):
        folder = pod.models / model / "1"
        folder.mkdir(parents=True)
        (folder / name).write_bytes(content)
        await pod.put(f"models/{model}", {})
    await pod.put("models/sum", SPEC)
    async with pod.running():
        failed = await pod.instance("net", "1", FAILED)
        await pod.instance("sum", "1")
        inventory = await pod.inventory(
            lambda found: found.models["trees"]["1"].state == found.models["net"]["1"].state == "UNAVAILABLE"
        )
        await pod.process.logged("state_changed", state="ready")

    assert failed.reason.startswith("model.onnx: expected an ONNX model; onnxruntime says: ")
    assert failed.restarts == 0
    assert inventory.models["trees"]["1"].reason == "model.json: expected an XGBoost model in JSON, found a zip archive"
    assert inventory.models["net"]["1"].reason == failed.reason


async def test_a_pickle_is_loaded_only_on_the_operators_word(pod: Pod) -> None:
    pod.save("sum", "1", Mischief())
    await pod.put("models/sum", {})
    async with pod.running():
        failed = await pod.instance("sum", "1", FAILED)
        await pod.put("models/sum", {"trusted": True})
        await pod.instance("sum", "1")

    assert failed.reason.startswith("model.joblib is a pickle and would run code when loaded: set trusted")


async def test_a_bad_value_changes_nothing_and_its_reason_is_in_the_status(pod: Pod) -> None:
    pod.save("sum", "1", Mischief())
    await pod.put("models/sum", SPEC)
    async with pod.running():
        instance = await pod.instance("sum", "1")
        await pod.put("models/sum", {"no_such_field": 1})
        line = await pod.process.logged("config_refused", key="models/sum")
        status = await _config_status(pod)
        still = await pod.instance("sum", "1")

    assert line["reason"] == "no_such_field: unknown field"
    assert status["refused"] == {"models/sum": "no_such_field: unknown field"}
    assert still.pid == instance.pid


async def _config_status(pod: Pod) -> dict:
    async with asyncio.timeout(10):
        while True:
            for key, entry in (await pod.client.list("status/runtime/")).entries.items():
                if key.endswith("/config") and json.loads(entry.value).get("refused"):
                    return dict(json.loads(entry.value))
            await asyncio.sleep(0.05)


async def test_a_key_that_is_bad_from_the_start_holds_its_earlier_value(pod: Pod) -> None:
    pod.save("sum", "1", Mischief())
    await pod.put("models/sum", SPEC)
    await pod.put("models/sum", b"{not json")
    async with pod.running():
        instance = await pod.instance("sum", "1")

    assert instance.state == READY


async def test_count_and_slots_change_without_a_restart(pod: Pod) -> None:
    pod.save("sum", "1", Mischief())
    await pod.put("models/sum", SPEC)
    async with pod.running():
        first = await pod.instance("sum", "1")
        await pod.put("models/sum", {**SPEC, "instances": {"count": 2}, "batching": {"slots": 5}})
        await pod.until("two ready", lambda: sum(each.state == READY for each in pod.state.instances) == 2)
        slots = {each.slots for each in pod.state.instances}
        pids = {each.pid for each in pod.state.instances}
        await pod.put("models/sum", SPEC)
        await pod.until("one left", lambda: [each.pid for each in pod.state.instances] == [first.pid])

    assert slots == {5}
    assert first.pid in pids


async def test_models_of_other_pools_are_left_alone(pod: Pod) -> None:
    pod.save("sum", "1", Mischief())
    pod.save("other", "1", Mischief())
    await pod.put("models/sum", SPEC)
    await pod.put("models/other", {**SPEC, "placement": {"pool": "gpu"}})
    async with pod.running():
        await pod.instance("sum", "1")
        inventory = await pod.inventory(lambda found: "sum" in found.models)

    assert set(inventory.models) == {"sum"}


async def test_sigterm_answers_what_is_in_flight_and_leaves_nothing(pod: Pod) -> None:
    pod.save("sum", "1", Mischief())
    await pod.put("models/sum", SPEC)
    async with pod.running(), Batcher(await pod.instance("sum", "1")) as batcher:
        slow = await batcher.send((mischief.SLEEP, 0))
        pod.process.signal(signal.SIGTERM)
        await pod.until("draining", lambda: pod.state.draining)
        reply = await slow
        code = await pod.process.exit_code()
        left = await pod.client.list("status/runtime/")

    assert output(reply, "y").tolist() == [mischief.SLEEP]
    assert ("1", DRAINING) in pod.states_seen
    assert code == 0
    assert not left.entries
    assert not list(pod.run_dir.glob("*.sock"))


async def test_sigterm_ends_a_load_and_leaves_nothing(pod: Pod) -> None:
    pod.save("sum", "1", Mischief())
    pod.save("slow", "1", mischief.LoadsForEver())
    await pod.put("models/sum", SPEC)
    await pod.put("models/slow", SPEC)
    async with pod.running():
        await pod.instance("sum", "1")
        loading = await pod.until("its load", lambda: _with_pid(pod, "slow"))
        pod.process.signal(signal.SIGTERM)
        code = await pod.process.exit_code()

    assert code == 0
    assert not is_running(loading.pid)
    assert not list(pod.run_dir.glob("*.sock"))


def _with_pid(pod: Pod, model: str) -> runtime_pb2.Instance | None:
    found = pod.find(model, "1")
    return found if found and found.pid else None


async def test_where_models_are_expected_and_none_is_there_it_is_not_ready(pod: Pod, tmp_path: Path) -> None:
    elsewhere = {**SPEC, "repository": (tmp_path / "disk").as_uri()}
    await pod.put("models/lost", elsewhere)
    async with pod.running():
        found = await pod.inventory(lambda found: "lost" in found.faults)
        line = await pod.process.logged("state_changed", state="not_ready")
        status = await _said_of_readiness(pod)
        pod.save("sum", "1", Mischief())
        await pod.put("models/sum", SPEC)
        await pod.process.logged("state_changed", state="ready")

    assert found.models["lost"] == {}
    assert line["state"] == "not_ready"
    assert "is not there" in status


async def _said_of_readiness(pod: Pod) -> str:
    """What /ready says once the repository was looked at."""
    address = await pod.process.address("metrics")
    async with asyncio.timeout(30), aiohttp.ClientSession() as session:
        while True:
            async with session.get(f"http://{address}/ready") as answer:
                text = await answer.text()
            if "none of its models" in text:
                return text
            await asyncio.sleep(0.05)


async def test_the_version_policy_changes_what_is_held(pod: Pod) -> None:
    for version in "123":
        pod.save("sum", version, Mischief())
    bare = {**SPEC, "keep_previous": 0}
    await pod.put("models/sum", bare)
    async with pod.running():
        await pod.until("the newest", lambda: _ready(pod) == {"3"})
        await pod.put("models/sum", {**bare, "version_policy": {"all": True}})
        await pod.until("all", lambda: _ready(pod) == {"1", "2", "3"})
        await pod.put("models/sum", {**bare, "version_policy": {"specific": ["2"]}})
        await pod.until("one", lambda: {each.version for each in pod.state.instances} == {"2"})
        assert _ready(pod) == {"2"}


async def test_a_runtime_without_etcd_holds_what_it_last_knew(pod: Pod, etcd: EtcdProcess) -> None:
    pod.save("sum", "1", Mischief())
    await pod.put("models/sum", SPEC)
    async with pod.running():
        await pod.instance("sum", "1")
        pod.process.signal(signal.SIGTERM)
        await pod.process.exit_code()
    etcd.pause()
    try:
        async with pod.running():
            await pod.instance("sum", "1")
    finally:
        etcd.resume()


async def test_a_second_runtime_in_one_run_folder_refuses(pod: Pod) -> None:
    async with pod.running(), started("services.runtime", pod.settings) as second:
        code = await second.exit_code()

    assert code == 3
    assert any("another runtime owns this run folder" in line for line in second.lines)
