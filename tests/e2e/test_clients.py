"""Clients that people already have, each in a process of its own, against a whole mesh behind both front doors."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

import pytest
import pytest_asyncio

from tests.support.echoes import NAMES, ROUTERS, echo_mesh
from tests.support.mesh import Mesh
from tests.support.mesh_probes import errors
from tests.support.service_process import REPOSITORY

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

RAN_S = 90.0


class Client(NamedTuple):
    """A program of tests/support/clients: its arguments, the listeners it is told of each router, and its checks."""

    arguments: Sequence[str]
    listeners: Sequence[str]
    checks: Sequence[str]


CLIENTS = {
    "tritonclient.http": Client(
        ("triton", "http"),
        ("rest",),
        ("health", "metadata", "configuration", "json_or_typed_of_every_datatype"),
    ),
    "tritonclient.grpc": Client(
        ("triton", "grpc"),
        ("grpc",),
        (
            "health",
            "metadata",
            "binary_of_every_datatype",
            "json_or_typed_of_every_datatype",
            "json_beside_binary",
            "one_row_too_many",
            "outputs_as_asked",
            "errors",
            "compressed",
            "configuration",
            "statistics",
        ),
    ),
    "kserve": Client(("kserve_sdk",), ("rest", "grpc"), ("health", "json_or_typed_of_every_datatype")),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mesh]:
    async with echo_mesh(tmp_path_factory.mktemp("clients")) as mesh:
        yield mesh


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_client_finds_everything_as_it_knows_it(mesh: Mesh, name: str) -> None:
    client = CLIENTS[name]
    addresses = [await mesh.listening(door, what) for door in ROUTERS for what in client.listeners]
    program, *arguments = client.arguments

    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"tests.support.clients.{program}", ",".join(client.checks), *arguments, *addresses),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=REPOSITORY,
    )
    try:
        async with asyncio.timeout(RAN_S):
            out, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

    assert process.returncode == 0, said.decode()
    report = json.loads(out)
    faults = {check: {side: fault for side, fault in sides.items() if fault} for check, sides in report.items()}
    assert {check: sides for check, sides in faults.items() if sides} == {}
    assert set(report) == set(client.checks)
    assert all(len(sides) >= len(ROUTERS) for sides in report.values())
    assert errors(mesh, *NAMES) == []
