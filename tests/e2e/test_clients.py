"""Clients that people already have, each in a process of its own, against a whole mesh behind both front doors."""

import json
import re
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from services.cli.demo import train
from tests.support import clients_page as page
from tests.support.echoes import NAMES, ROUTERS, TFS, echo_mesh
from tests.support.mesh import Mesh
from tests.support.mesh_probes import errors, introduce

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

PYTHON = [0, 1, 2, pytest.param(3, marks=pytest.mark.slow)]  # the page's examples; one imports TensorFlow


class Client(NamedTuple):
    """A program of tests/support/clients: its arguments, the listeners it is told of each router, and its checks."""

    arguments: Sequence[str]
    listeners: Sequence[str]
    checks: Sequence[str]


TRITON = (
    "health",
    "metadata",
    "configuration",
    "binary_of_every_datatype",
    "json_or_typed_of_every_datatype",
    "json_beside_binary",
    "one_row_too_many",
    "outputs_as_asked",
    "errors",
    "compressed",
    "statistics",
)
EXTENSIONS = ("classification", "shared_memory", "repository")
SERVING = ("every_datatype", "one_value_for_a_whole_shape", "outputs_as_asked", "errors", "status_and_metadata")
KSERVE = ("health", "binary_of_every_datatype", "json_or_typed_of_every_datatype", "errors")
CLIENTS = {
    "tritonclient.http": Client(("triton", "http"), ("rest",), (*TRITON, *EXTENSIONS)),
    "tritonclient.grpc": Client(("triton", "grpc"), ("grpc",), (*TRITON, *EXTENSIONS, "streams")),
    "kserve": Client(("kserve_sdk",), ("rest", "grpc"), KSERVE),
    "tensorflow-serving-api": Client(("serving_api",), ("tfs-grpc",), SERVING),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mesh]:
    async with echo_mesh(tmp_path_factory.mktemp("clients"), SYSTEM_SHARED_MEMORY="true", **TFS) as mesh:
        train._ranker(mesh.folder, lambda _: None)
        await introduce(mesh, "ranker", 1)
        yield mesh


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_client_finds_everything_as_it_knows_it(mesh: Mesh, name: str) -> None:
    client = CLIENTS[name]
    addresses = [await mesh.listening(door, what) for door in ROUTERS for what in client.listeners]
    program, *arguments = client.arguments

    said = await page.ran(
        *(sys.executable, "-m", f"tests.support.clients.{program}", ",".join(client.checks), *arguments, *addresses)
    )

    report = json.loads(said)
    faults = {check: {side: fault for side, fault in sides.items() if fault} for check, sides in report.items()}
    assert {check: sides for check, sides in faults.items() if sides} == {}
    assert set(report) == set(client.checks)
    assert all(len(sides) >= len(ROUTERS) for sides in report.values())
    assert errors(mesh, *NAMES) == []


@pytest.mark.parametrize("number", PYTHON)
async def test_an_example_in_python_prints_what_the_page_says(mesh: Mesh, number: int) -> None:
    code = await page.at(mesh, page.blocks("python")[number])

    printed = await page.ran(sys.executable, "-c", code)

    assert printed.splitlines() == re.findall(r"^ *print\(.*\)  # (.+)$", code, re.MULTILINE)


async def test_examples_in_a_shell_print_what_the_page_says(mesh: Mesh, tmp_path: Path) -> None:
    page.write_grpcurl(tmp_path)
    for block in page.blocks("console"):
        for command, expected in page.commands(block):
            printed = await page.ran("bash", "-c", await page.at(mesh, command), path=tmp_path)

            assert page.rounded(printed) == page.rounded(expected), command
