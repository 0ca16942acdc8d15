"""turnout replay against a router that serves."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from services.chassis.recordings import RecordingWriter
from tests.support.puppets import floats
from tests.support.router_mesh import RouterMesh, router_mesh
from turnout.v1.link_pb2 import Request
from turnout.v1.recorded_pb2 import Recorded
from turnout.v1.tensor_pb2 import Tensor

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RouterMesh]:
    async with router_mesh(tmp_path_factory.mktemp("router"), "native") as mesh:
        yield mesh


def written(path: Path, model: str, count: int, **fields: Any) -> Path:
    """What an echo once answered, two values a row, a millisecond apart."""
    with RecordingWriter(path) as writer:
        for number in range(count):
            sides = [Tensor(name=name, datatype="FP32", shape=[1, 2], data=floats(number, number)) for name in "xy"]
            times = {"at_ns": 1 + number * 1_000_000, "total_ns": 1_000_000}
            writer.write(
                Recorded(model=model, version="1", rows=1, inputs=sides[:1], outputs=sides[1:], **times, **fields)
            )
    return path


async def replay(mesh: RouterMesh, path: Path, *options: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.cli", "replay", str(path), "--grpc", mesh.grpc_address, *options,
        stdout=PIPE, stderr=PIPE,
    )  # fmt: skip
    async with asyncio.timeout(60):
        out, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), errors.decode()


async def test_what_was_recorded_is_sent_again_at_its_pace_and_answered_as_before(
    mesh: RouterMesh, tmp_path: Path
) -> None:
    model = await mesh.model("1")
    path = written(tmp_path / "some.recorded", model.name, 40, routing_key=b"k", allowed_us=20_000_000)
    code, out, errors = await replay(mesh, path, "--compare", "--json", "--speed", "1")
    told = json.loads(out)

    assert (code, errors) == (0, "")
    assert sorted(each.inputs[0].data for each in model.batcher.requests) == sorted(floats(n, n) for n in range(40))
    assert told["statuses"] == told["recorded_statuses"] == {"OK": 40}
    assert told["outputs"]["y"] == {"rows": 40, "agreeing": 40, "incomparable": 0, "max_abs": 0}
    assert told["latency_ms"]["recorded"] == {"p50": 1, "p90": 1, "p99": 1}
    assert 0 < told["latency_ms"]["replayed"]["p50"] <= told["latency_ms"]["replayed"]["p99"]


async def test_answers_that_differ_are_told_and_make_it_fail(mesh: RouterMesh, tmp_path: Path) -> None:
    model = await mesh.model("1")

    def odd(request: Request) -> dict[str, Any]:
        data = request.inputs[0].data
        answer = floats(7, 9) if data == floats(7, 7) else data
        return {"outputs": [Tensor(name="y", datatype="FP32", shape=[1, 2], data=answer)]}

    model.batcher.answer = odd
    path = written(tmp_path / "some.recorded", "another", 10)
    code, out, errors = await replay(mesh, path, "--compare", "--model", model.name, "--rate", "1000")

    assert (code, errors) == (1, "turnout: 1 rows of outputs are not what they were\n")
    assert "10 " in out
    assert any(line.split() == ["y", "10", "9", "0", "2"] for line in out.splitlines())


async def test_requests_that_fail_now_make_it_fail(mesh: RouterMesh, tmp_path: Path) -> None:
    path = written(tmp_path / "some.recorded", "nobody", 3)
    code, out, errors = await replay(mesh, path, "--count", "2")

    assert (code, errors) == (1, "turnout: 2 requests failed that were answered when they were recorded\n")
    assert "2 NOT_FOUND" in out


async def test_what_cannot_be_read_or_reached_is_said_in_a_line(mesh: RouterMesh, tmp_path: Path) -> None:
    (tmp_path / "rubbish").write_bytes(b"\xff" * 9)
    path = written(tmp_path / "some.recorded", "m", 3)
    rubbish, missing, unreachable = await asyncio.gather(
        replay(mesh, tmp_path / "rubbish"),
        replay(mesh, tmp_path / "missing"),
        replay(mesh, path, "--grpc", "127.0.0.1:1"),
    )

    assert rubbish == (1, "", "turnout: rubbish: expected records; message 1 at byte 0 has no length\n")
    assert (missing[0], "No such file or directory" in missing[2]) == (1, True)
    assert unreachable == (1, "", "turnout: no router answers at 127.0.0.1:1: is a mesh running (`turnout up`)?\n")
