"""Triton's own Python clients against the router."""

import asyncio
import json
import sys
from typing import Any

import pytest

from tests.support.router_mesh import RouterMesh
from tests.support.service_process import REPOSITORY

pytestmark = pytest.mark.asyncio(loop_scope="module")

ERRORS = {
    "unknown model": ("StatusCode.NOT_FOUND", "404", "model 'nobody' is unknown"),
    "unknown version": ("StatusCode.NOT_FOUND", "404", "has no version 9; its versions are 1"),
    "wrong shape": ("StatusCode.INVALID_ARGUMENT", "400", "has shape [-1, 2] (-1 = any), not [1, 3]"),
    "wrong dtype": ("StatusCode.INVALID_ARGUMENT", "400", "is FP32, not FP64"),
}


async def triton(protocol: str, address: str, model: str) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.triton_caller", protocol, address, model),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=REPOSITORY,
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return dict(json.loads(out))


@pytest.mark.parametrize("protocol", ["http", "grpc"])
async def test_tritonclient_infers_and_raises_what_it_documents(mesh: RouterMesh, protocol: str) -> None:
    model = await mesh.model()

    said = await triton(protocol, mesh.rest_address if protocol == "http" else mesh.grpc_address, model.name)

    assert (said["live"], said["ready"], said["model_ready"], said["id"]) == (True, True, True, "r-1")
    assert [(i["name"], i["datatype"], list(map(int, i["shape"]))) for i in said["inputs"]] == [("x", "FP32", [-1, 2])]
    assert said["y"] == said["after"] == [[0.0, 1.0], [2.0, 3.0]]
    for name, (by_grpc, by_http, says) in ERRORS.items():
        status, message = said["errors"][name]
        assert (name, status, says in message) == (name, by_http if protocol == "http" else by_grpc, True), message
