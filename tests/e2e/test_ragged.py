"""Rows of different lengths through a whole mesh: batched together, each answered as if it were alone."""

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from inference import grpc_service_pb2 as pb
from inference import grpc_service_pb2_grpc as pb_grpc
from services.core.registry import InventoryVersion
from tests.support import ragged
from tests.support.channels import own_channel
from tests.support.mesh import Mesh, until
from tests.support.mesh_probes import QUICK, introduce, metric, put_model
from tests.support.traffic import Ask, Traffic

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

UNLIKE_BEFORE = {"sizes": [12, 48], "inputs": {"x": 1000}}


def spec(**changes: Any) -> dict[str, Any]:
    # A delay, so that requests have company.
    return {"batching": {"max_queue_delay_microseconds": 20_000, "pad_to": {**ragged.PAD_TO, **changes}}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mesh]:
    only = ("runtime-0", "batcher-0", "router")
    async with Mesh(tmp_path_factory.mktemp("ragged"), only=only, settings=QUICK) as mesh:
        ragged.write(mesh.repository, "ragged", 1)
        await introduce(mesh, "ragged", 1, spec=spec())
        yield mesh


def ask(number: int) -> Ask:
    """One row, some, none, or more than a batch holds; of any length, none too."""
    rng = np.random.default_rng(number)
    rows = {5: 8, 6: 100, 7: 0}.get(number % 8, 1)
    x = rng.normal(size=(rows, int(rng.integers(0, 40)), 2)).astype(np.float32)
    return Ask(ragged.request("ragged", x), lambda response: ragged.fault(response, x))


async def test_any_lengths_share_batches_and_each_is_answered_as_if_alone(mesh: Mesh) -> None:
    async with Traffic(await mesh.listening("router", "grpc"), ask) as traffic:
        await traffic.clean(400)

    traffic.check(allowed=set())
    assert traffic.failed() == []
    assert await metric(mesh, "batcher-0", "turnout_batcher_positions_total", model="ragged", kind="filled") > 100
    launches = await metric(mesh, "batcher-0", "turnout_batcher_padding_share_count", model="ragged")
    assert launches < len(traffic.outcomes) * 0.8


async def test_callers_see_a_model_without_a_mask(mesh: Mesh) -> None:
    async with own_channel(await mesh.listening("router", "grpc")) as channel:
        metadata = await pb_grpc.GRPCInferenceServiceStub(channel).ModelMetadata(pb.ModelMetadataRequest(name="ragged"))

    assert [(tensor.name, list(tensor.shape)) for tensor in metadata.inputs] == [("x", [-1, -1, 2])]


async def inventory(mesh: Mesh, version: int) -> InventoryVersion:
    (found,) = (await mesh.inventory()).values()
    return found.models["ragged"].get(str(version), InventoryVersion(state="UNKNOWN"))


async def test_pad_to_changes_under_load_and_a_wrong_one_never_takes_effect(mesh: Mesh) -> None:
    async def reason() -> str:
        return (await inventory(mesh, 1)).reason

    async with Traffic(await mesh.listening("router", "grpc"), ask) as traffic:
        await traffic.clean(100)
        await put_model(mesh, "ragged", 1, spec=spec(mask="attention"))
        refused = await until("the wrong one is refused", reason)
        await traffic.clean(100)
        assert (await inventory(mesh, 1)).state == "READY"

        await put_model(mesh, "ragged", 1, spec=spec(**UNLIKE_BEFORE))
        assert not await _swapped(mesh)
        await until("the right one is in force", lambda: _swapped(mesh))
        await traffic.clean(100)

    traffic.check(allowed=set())
    assert traffic.failed() == []
    assert refused == ("pad_to names input 'attention'; the model's inputs are x FP32[-1, -1, 2], mask INT64[-1, -1]")
    assert (await inventory(mesh, 1)).reason == ""


async def _swapped(mesh: Mesh) -> bool:
    return any(line.get("event") == "version_swapped" for line in mesh.log_lines("runtime-0"))


async def test_a_model_that_does_not_heed_its_mask_is_not_loaded_and_harms_nobody(mesh: Mesh) -> None:
    ragged.write(mesh.repository, "ragged", 2, heeds_mask=False)
    await put_model(mesh, "ragged", 1, 2, spec=spec())

    async def failed() -> InventoryVersion | None:
        found = await inventory(mesh, 2)
        return found if found.reason.startswith("pad_to") else None

    found = await until("version 2 is refused", failed)
    async with Traffic(await mesh.listening("router", "grpc"), ask) as traffic:
        await traffic.clean(50)

    assert found.state == "UNAVAILABLE"
    assert found.reason == (
        "pad_to changes what the model answers: output 'mean' differs between a row of length 2 filled up to 4 and"
        " the same row as it is"
    )
    assert traffic.failed() == []
