"""turnout record beside a router that serves: what it writes, how it ends, and that nobody waits for it."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
import pytest_asyncio

from services.chassis.recordings import RecordingReader
from services.core import keys
from tests.support.proof import Starvation
from tests.support.puppets import PuppetRecorder, floats
from tests.support.router_mesh import Model, RouterMesh, infer_request, rest_request, router_mesh, until
from turnout.v1.recorded_pb2 import Recorded

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]
PATIENT_S = 60.0  # the command is a process that must start first, on a machine that may be busy
OK = grpc.StatusCode.OK


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RouterMesh]:
    async with router_mesh(tmp_path_factory.mktemp("router"), "native", max_record_bytes=1 << 20) as mesh:
        yield mesh


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def lonely(mesh: RouterMesh, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Process, Path]]:
    """The command where no router is: it takes its time to say so, beside the other tests."""
    path = tmp_path_factory.mktemp("lonely") / "some.recorded"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.cli", "record", "m", "--etcd", mesh.server.endpoint, "--etcd-prefix", "/other/",
        "-o", str(path), stdout=PIPE, stderr=PIPE,
    )  # fmt: skip
    yield process, path
    if process.returncode is None:
        process.kill()
        await process.wait()


def read(path: Path) -> list[Recorded]:
    with RecordingReader(path) as reader:
        return list(reader)


async def recorders(mesh: RouterMesh, count: int) -> None:
    async def are_so_many() -> bool:
        return await mesh.metric("turnout_recorders") == count

    await until(f"{count} recorders are connected", are_so_many, PATIENT_S)


@asynccontextmanager
async def recording(model: Model, *options: str) -> AsyncIterator[Process]:
    """The command, once the router records for it; it is over when this is left."""
    where = ["--etcd", model.mesh.server.endpoint]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.cli", "record", model.name, *where, *options, stdout=PIPE, stderr=PIPE
    )
    try:
        await recorders(model.mesh, 1)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    await recorders(model.mesh, 0)


async def said(process: Process) -> str:
    """What it printed, once it has ended well."""
    async with asyncio.timeout(PATIENT_S):
        out, errors = await process.communicate()
    assert (process.returncode, errors) == (0, b"")
    return out.decode()


async def test_fifty_requests_are_recorded_as_they_were_sent_and_answered(mesh: RouterMesh, tmp_path: Path) -> None:
    model = await mesh.model("1")
    path = tmp_path / "some.recorded.gz"
    await model.call(99.0)
    async with recording(model, "--count", "50", "-o", str(path)) as process:
        answers = await asyncio.gather(*(model.call(float(n), float(n)) for n in range(40)))
        await asyncio.gather(*(model.rest(rest_request(float(n))) for n in range(40, 49)))
        named = infer_request(model.name, 49.0, id="a")
        named.outputs.add(name="y")
        named.parameters["user_id"].string_param = "ana"
        answers.append(await mesh.call(named, metadata=[("x-routing-key", "k"), ("authorization", "Bearer 1")]))
        told = await said(process)
    found = {record.inputs[0].data: record for record in read(path)}
    last = found[floats(49, 49)]

    assert {answer.code for answer in answers} == {OK}
    assert told == f"recorded 50 requests of {model.name} from 1 router(s) into {path}\n"
    assert found.keys() == {*(floats(n, n, n, n) for n in range(40)), *(floats(n, n) for n in range(40, 50))}
    assert all(record.outputs[0].data == data for data, record in found.items())
    assert all((record.version, record.digest, record.arm, record.code) == ("1", "sha", "stable", 0)
               for record in found.values())  # fmt: skip
    assert (last.request_id, list(last.wanted), last.parameters["user_id"].string_value) == ("a", ["y"], "ana")
    assert (last.routing_key, len(last.routing_key_hash)) == (b"", 8)
    assert last.total_ns > sum(last.stages_ns[:4]) > 0
    assert not any(b"Bearer" in record.SerializeToString() for record in found.values())


async def test_what_is_refused_is_recorded_with_its_status(mesh: RouterMesh, tmp_path: Path) -> None:
    model = await mesh.model("1", max_request_rows=1)
    path = tmp_path / "some.recorded"
    async with recording(model, "--count", "2", "--no-outputs", "--routing-keys", "-o", str(path)) as process:
        refused = await model.call(1.0, 2.0)
        await model.call(1.0, metadata=[("x-routing-key", "k")])
        await said(process)
    first, second = read(path)

    assert (refused.code.value[0], first.message) == (first.code, refused.message)
    assert (second.code, list(second.outputs), second.routing_key) == (0, [], b"k")


async def test_an_interrupt_ends_it_well_and_keeps_what_came(mesh: RouterMesh, tmp_path: Path) -> None:
    model = await mesh.model("1")
    path = tmp_path / "some.recorded"
    async with recording(model, "-o", str(path)) as process:
        await asyncio.gather(*(model.call(float(n)) for n in range(3)))
        await until("all are in the file", lambda: _are_there(path, 3), PATIENT_S)
        process.send_signal(signal.SIGINT)
        told = await said(process)

    assert told.startswith("recorded 3 requests")
    assert len(read(path)) == 3


async def test_a_recorder_that_is_killed_is_forgotten_at_once_and_its_key_hangs_on_a_lease(
    mesh: RouterMesh, tmp_path: Path
) -> None:
    model = await mesh.model("1")
    path = tmp_path / "some.recorded"
    async with recording(model, "-o", str(path)) as process:
        await model.call(1.0)
        await until("it is in the file", lambda: _are_there(path, 1), PATIENT_S)
        listed = (await mesh.etcd.list(f"{keys.SERVICES}recorder/")).entries
        process.send_signal(signal.SIGKILL)
        await recorders(mesh, 0)
    after = await model.call(2.0)

    assert after.code == OK
    assert listed
    assert all(entry.lease for entry in listed.values())
    assert [record.inputs[0].data for record in read(path)] == [floats(1, 1)]


async def test_a_recorder_that_does_not_read_costs_records_and_nothing_else(mesh: RouterMesh) -> None:
    spec = {"limits": {"max_request_rows": 100_000}}
    model = await mesh.model("1", spec=spec, max_request_rows=100_000)
    large = [infer_request(model.name, *([1.0] * 65_000)) for _ in range(8)]  # 520 kB, twice in a record
    await asyncio.gather(*map(mesh.call, large))
    async with PuppetRecorder(model.name) as recorder:
        await recorder.announce(mesh.etcd)
        await recorders(mesh, 1)
        recorder.stop_reading()
        starved, before = Starvation(mesh.router.pid), _memory_bytes(mesh.router.pid)
        answers = []
        for _ in range(6):
            answers += await asyncio.gather(*map(mesh.call, large))
        dropped = await mesh.metric("turnout_record_dropped_total", reason="queue_full")
        grown = _memory_bytes(mesh.router.pid) - before
        recorder.lose_links()
        await recorder.renounce(mesh.etcd)

    assert {answer.code for answer in answers} == {OK}
    assert max(answer.took_s for answer in answers) < 2 + starved.seconds
    assert dropped > 0
    assert grown < 64 << 20


async def test_a_mesh_without_a_router_is_said_and_leaves_no_file(lonely: tuple[Process, Path]) -> None:
    process, path = lonely
    async with asyncio.timeout(60):
        _, errors = await process.communicate()

    assert process.returncode == 1
    assert b"turnout: no router reached 127.0.0.1:" in errors
    assert not path.exists()


async def _are_there(path: Path, count: int) -> bool:
    return len(await asyncio.to_thread(_readable, path)) == count


def _readable(path: Path) -> list[Recorded]:
    return read(path) if path.stat().st_size else []


def _memory_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
