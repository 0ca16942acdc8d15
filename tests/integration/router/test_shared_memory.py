"""Triton's own Python clients with tensors in shared memory, and with classes for an answer."""

from typing import Any

import pytest

from tests.support.client_process import said_by
from tests.support.router_mesh import RouterMesh

pytestmark = pytest.mark.asyncio(loop_scope="module")

SETTINGS = {"system_shared_memory": True}
REFUSALS = {
    "too small": (400, "output 'y' has 16 bytes, and shared_memory_byte_size lets it have 4 of region 'taken'"),
    "twice": (400, "region 'given' is registered: unregister it first"),
    "path": (400, "is not the name of a shared memory object"),
    "too large": (400, "reach past the 64 bytes of"),
    "cuda": (501, "CUDA shared memory is not offered"),
    "gone": (404, "there is no shared memory region 'given'"),
    "no status": (404, "there is no shared memory region 'given'"),
}
GRPC = {400: ("StatusCode.INVALID_ARGUMENT", "StatusCode.ALREADY_EXISTS"), 404: ("StatusCode.NOT_FOUND",),
        501: ("StatusCode.UNIMPLEMENTED",)}  # fmt: skip


async def triton(protocol: str, address: str, model: str) -> dict[str, Any]:
    said = await said_by("tests.support.triton_memory", protocol, address, model)
    return dict(said)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
async def test_tensors_are_read_and_written_where_they_lie(mesh: RouterMesh, protocol: str) -> None:
    labels = {"labels": {"y": ["cat", "dog"]}}
    model = await mesh.model(spec=labels)

    said = await triton(protocol, mesh.rest_address if protocol == "http" else mesh.grpc_address, model.name)

    assert said["names"] == ["given", "taken"]
    assert said["y"] == [[1.0, 4.0], [3.0, 2.0]]
    assert said["classes"] == ["4.000000:1:dog", "3.000000:0:cat"]
    for name, (status, says) in REFUSALS.items():
        code, message = said["refusals"][name]
        right = (str(status),) if protocol == "http" else GRPC[status]
        assert (name, code in right, says in message) == (name, True, True), (code, message)


async def test_extensions_say_what_is_switched_on(mesh: RouterMesh) -> None:
    extensions = (await mesh.rest("/v2", method="GET")).body["extensions"]

    assert {"system_shared_memory", "classification"} <= set(extensions)
    assert not {"cuda_shared_memory", "model_repository"} & set(extensions)
