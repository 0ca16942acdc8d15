"""Loads, reloads, rollbacks and unloads of a whole mesh, under traffic and by the command line."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from statistics import linear_regression
from typing import Any

import onnx
import pytest
import pytest_asyncio
import structlog

from services.core.load_request import LoadRequest
from services.fleet.lifecycle import Lifecycle
from tests.support import numbered
from tests.support.mesh import Mesh, until
from tests.support.mesh_probes import QUICK, introduce, is_running, model_ready, serve, workers
from tests.support.service_process import REPOSITORY
from tests.support.traffic import Traffic, mixed

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

NAMES = ("runtime-0", "batcher-0", "router")
RATE = 100
TIMEOUT_S = 60.0
REQUEST = LoadRequest({"default_deadline_ms": 3000})
# Of the p99 while versions swap. Where there are two cores in all a load is felt, though it stands back.
SLOWDOWN, LEAST_S = 2.0, 0.1
RSS_SLOPE_BYTES = 40 << 10  # a cycle; measured is less


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mesh]:
    async with Mesh(tmp_path_factory.mktemp("lifecycle"), only=NAMES, settings=QUICK) as mesh:
        await serve(mesh, "numbers", 1)
        yield mesh


@pytest.fixture
def lifecycle(mesh: Mesh) -> Lifecycle:
    return Lifecycle(mesh.client, structlog.get_logger())


def replace(mesh: Mesh, model: str, note: str) -> None:
    """Put other content that answers the same into version 1, whole at once."""
    file = mesh.repository / model / "1" / "model.onnx"
    graph = onnx.load(file)
    graph.doc_string = note
    incoming = file.with_suffix(".tmp")
    onnx.save(graph, incoming)
    incoming.replace(file)


async def digest(mesh: Mesh) -> str:
    (inventory,) = (await mesh.inventory()).values()
    return inventory.models["numbers"]["1"].digest


async def turnout(mesh: Mesh, *words: str) -> tuple[int, str, str]:
    """Run a command against the mesh's etcd: exit code, output, errors."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.cli", *words, "--etcd", mesh.etcd.endpoint,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(120):
        out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def test_versions_replaced_in_place_under_traffic_fail_nobody(mesh: Mesh, lifecycle: Lifecycle) -> None:
    digests = {await digest(mesh)}
    async with Traffic(await mesh.listening("router", "grpc"), mixed("numbers"), rate=RATE) as traffic:
        await traffic.flowing()
        for number in range(3):
            replace(mesh, "numbers", f"three {number}")
            await lifecycle.load("numbers", LoadRequest(), TIMEOUT_S)
            digests.add(await digest(mesh))
        await traffic.flowing()

    traffic.check()
    assert len(digests) == 4


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_twenty_reloads_fail_nobody_and_are_hardly_felt(mesh: Mesh, lifecycle: Lifecycle) -> None:
    async with Traffic(await mesh.listening("router", "grpc"), mixed("numbers"), rate=RATE) as traffic:
        await traffic.flowing(2000)
        began_s = traffic.now_s()
        for number in range(20):
            replace(mesh, "numbers", f"twenty {number}")
            await lifecycle.load("numbers", LoadRequest(), TIMEOUT_S)
        ended_s = traffic.now_s()

    traffic.check()
    before_s, during_s = traffic.quantile_s(0.99, 0, began_s), traffic.quantile_s(0.99, began_s, ended_s)
    assert during_s <= max(LEAST_S, SLOWDOWN * before_s), (
        f"p99 {before_s:.4f} s before, {during_s:.4f} s while it swaps"
    )


async def test_a_rollback_finds_the_version_before_still_warm(mesh: Mesh) -> None:
    numbered.write(mesh.repository, "two", 1, 2)
    spec = {"version_policy": {"specific": []}, "keep_previous": 1}
    await introduce(mesh, "two", 1, 2, spec=spec, route={"stable": "1", "labels": {"next": "2"}})
    both = workers(mesh, "runtime-0", "two")
    either = mixed("two", frozenset({"1", "2"}))
    async with Traffic(await mesh.listening("router", "grpc"), either, rate=RATE) as traffic:
        await mesh.put("routes/two", {"stable": "2"})
        await answered_by(traffic, "2")
        await mesh.put("routes/two", {"stable": "1"})
        await answered_by(traffic, "1")

    traffic.check()
    assert workers(mesh, "runtime-0", "two") == both


async def answered_by(traffic: Traffic, version: str) -> None:
    """Return when the route's answers come from `version` only."""
    began = len(traffic.outcomes)

    async def has_answered() -> bool:
        await traffic.flowing(20)
        last = [outcome for outcome in traffic.answered()[-20:] if outcome.key]
        return len(traffic.outcomes) > began and bool(last) and {outcome.version for outcome in last} == {version}

    await until(f"answers of version {version}", has_answered)


async def test_the_command_line_loads_shows_and_unloads(mesh: Mesh) -> None:
    numbered.write(mesh.repository, "cli", 1)
    corrupt = mesh.repository / "cli" / "2"
    corrupt.mkdir()
    (corrupt / "model.onnx").write_bytes(b"nothing of the kind")
    router = await mesh.listening("router", "grpc")

    loaded = await turnout(mesh, "models", "load", "cli", "--version", "1", "--config", '{"max_batch_size": 8}')
    failed = await turnout(mesh, "models", "load", "cli", "--version", "2")
    await model_ready(mesh, "cli", "1")
    shown: dict[str, Any] = {}

    async def has_settled() -> bool:
        """The load that was undone had begun to load version 1 anew; that instance is let go, which takes a moment."""
        code, text, _ = await turnout(mesh, "models", "inspect", "cli", "1", "--json", "--address", router)
        assert code == 0
        shown.update(json.loads(text))
        return len(shown["instances"]) == 1

    await until("one instance of version 1 is left", has_settled)
    unloaded = await turnout(mesh, "models", "unload", "cli")
    index = await turnout(mesh, "models", "index", "--json")

    assert (loaded[0], loaded[1].splitlines()[-1]) == (0, "cli: READY in 1 pod")
    assert failed[0] == 1
    assert "model cli is not loaded: " in failed[2]
    assert "model.onnx: expected an ONNX model" in failed[2]
    assert failed[2].endswith("its spec of before is back\n")
    assert shown["spec"] == {"version_policy": {"specific": ["1"]}, "batching": {"max_batch_size": 8}}
    assert [(each["name"], each["datatype"], each["shape"]) for each in shown["inputs"]] == [("x", "FP32", [-1, 4])]
    assert (shown["state"], shown["framework"], len(shown["endpoints"])) == ("READY", "onnx", 1)
    assert [(each["state"], each["restarts"]) for each in shown["instances"]] == [("READY", 0)]
    assert shown["instances"][0]["memory_bytes"] > 10 << 20
    assert (unloaded[0], unloaded[1].splitlines()[-1]) == (0, "cli: let go by 1 pod")
    rows = [row for row in json.loads(index[1]) if row["model"] == "cli"]
    assert [(row["version"], row["state"], row["reason"]) for row in rows] == [
        ("1", "UNAVAILABLE", "unloaded"),
        ("2", "UNAVAILABLE", "unloaded"),
    ]


async def test_loads_and_unloads_leave_no_process_and_no_file(mesh: Mesh, lifecycle: Lifecycle) -> None:
    await cycle(mesh, lifecycle, 1)
    before = held(mesh)
    await cycle(mesh, lifecycle, 5)

    assert await settled(mesh, before) == before


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_fifty_loads_and_unloads_take_no_memory(mesh: Mesh, lifecycle: Lifecycle) -> None:
    await cycle(mesh, lifecycle, 10)
    before = held(mesh)
    sizes = await cycle(mesh, lifecycle, 50)

    assert await settled(mesh, before) == before
    assert linear_regression(range(50), sizes).slope < RSS_SLOPE_BYTES


async def cycle(mesh: Mesh, lifecycle: Lifecycle, times: int) -> list[int]:
    """Load and unload; the supervisor's resident bytes after each."""
    numbered.write(mesh.repository, "cycled", 1)
    sizes = []
    for _ in range(times):
        await lifecycle.load("cycled", REQUEST, TIMEOUT_S)
        (pid,) = workers(mesh, "runtime-0", "cycled")
        await lifecycle.unload("cycled", TIMEOUT_S)
        assert not is_running(pid)
        sizes.append(resident_bytes(mesh.child("runtime-0").pid))
    return sizes


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def held(mesh: Mesh) -> dict[str, int]:
    """What the supervisor and the batcher hold: descriptors, processes, sockets."""
    counts = {
        name: len(list(Path(f"/proc/{mesh.child(name).pid}/fd").iterdir())) for name in ("runtime-0", "batcher-0")
    }
    counts["workers"] = len(workers(mesh, "runtime-0", "cycled"))
    counts["sockets"] = len(mesh.sockets())
    return counts


async def settled(mesh: Mesh, expected: dict[str, int]) -> dict[str, int]:
    """What is held once it is as expected; else what it is after some time."""

    async def is_so() -> bool:
        return held(mesh) == expected

    with suppress(AssertionError):
        await until("all is let go", is_so, 15)
    return held(mesh)


async def test_tritons_clients_load_what_they_bring_and_are_served_at_once(mesh: Mesh) -> None:
    http, by_grpc = await asyncio.gather(brought(mesh, "http", "rest"), brought(mesh, "grpc", "grpc"))

    for said in (http, by_grpc):
        assert said["before"] == said["after a bad one"]
        assert (said["loaded"], said["unloaded"]) == ("READY", ["UNAVAILABLE", "unloaded"])
    assert [http["bad"], http["refused"]] == ["400", "503"]
    assert [by_grpc["bad"], by_grpc["refused"]] == ["StatusCode.INVALID_ARGUMENT", "StatusCode.UNAVAILABLE"]


async def brought(mesh: Mesh, protocol: str, listener: str) -> dict[str, Any]:
    """What a client that brings a model of its own says of it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.triton_loader", protocol, await mesh.listening("router", listener),
        str(mesh.repository / "numbers" / "1" / "model.onnx"),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=REPOSITORY,
    )  # fmt: skip
    async with asyncio.timeout(200):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return dict(json.loads(out))
