"""A model fed by features, while the feature proxy is away: a fast, clear error, and all is well after it."""

import time
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio

from tests.support.channels import own_channel
from tests.support.featured import ask, serve_featured
from tests.support.mesh import Mesh, until
from tests.support.mesh_probes import QUICK, metric
from tests.support.proof import Starvation
from tests.support.traffic import MODEL_INFER, Traffic

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

FAST_S = 1.0  # an error costs no wait, on a busy machine


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mesh]:
    only = ("feature-proxy", "runtime-0", "batcher-0", "router")
    async with Mesh(tmp_path_factory.mktemp("features"), only=only, settings=QUICK) as mesh:
        mesh.add("feature-proxy-2", "feature-proxy", LINK_SOCKET="")
        await serve_featured(mesh)
        yield mesh


@pytest_asyncio.fixture(loop_scope="module")
async def traffic(mesh: Mesh) -> AsyncIterator[Traffic]:
    async with Traffic(await mesh.listening("router", "grpc"), ask) as traffic:
        await traffic.clean()
        yield traffic


async def test_a_killed_proxy_is_a_fast_clear_error_with_a_hint_until_it_is_back(mesh: Mesh, traffic: Traffic) -> None:
    await mesh.kill("feature-proxy")
    starved = Starvation(mesh.child("router").pid)
    await traffic.failing(50)
    async with own_channel(await mesh.listening("router", "grpc")) as channel:
        infer = channel.unary_unary(MODEL_INFER, None, None)
        began = time.monotonic()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await infer(ask(0).request.SerializeToString(), timeout=10)
        took_s = time.monotonic() - began
    await mesh.restart("feature-proxy")
    await traffic.clean()
    await traffic.end()

    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "no feature proxy is connected" in str(refused.value.details())
    hints: dict[str, Any] = dict(refused.value.trailing_metadata() or ())  # type: ignore[arg-type]
    assert b"google.rpc.RetryInfo" in hints["grpc-status-details-bin"]
    fast_s = FAST_S + starved.seconds
    assert took_s < fast_s
    traffic.check(allowed={"UNAVAILABLE"})
    assert max(outcome.took_s for outcome in traffic.failed()) < fast_s


async def test_a_hung_proxy_holds_nobody_past_the_deadline(mesh: Mesh, traffic: Traffic) -> None:
    mesh.pause("feature-proxy")
    await traffic.failing(50)
    mesh.resume("feature-proxy")
    await traffic.clean()
    await traffic.end()

    traffic.check(allowed={"UNAVAILABLE", "DEADLINE_EXCEEDED"})


async def test_with_a_second_proxy_neither_a_stop_nor_a_kill_of_the_first_fails_anybody(
    mesh: Mesh, traffic: Traffic
) -> None:
    await mesh.start("feature-proxy-2")
    await _answers(mesh, "feature-proxy-2", traffic)
    assert await mesh.stop("feature-proxy") == 0
    await traffic.clean()
    await mesh.start("feature-proxy")
    await _answers(mesh, "feature-proxy", traffic)
    await mesh.kill("feature-proxy")
    await traffic.clean()
    await mesh.restart("feature-proxy")
    await traffic.clean()
    await traffic.end()

    traffic.check()


async def _answers(mesh: Mesh, proxy: str, traffic: Traffic) -> None:
    """Return when `proxy` is asked as well."""

    async def is_asked() -> bool:
        await traffic.flowing(20)
        return await metric(mesh, proxy, "turnout_feature_lookups_total") > 0

    await until(f"{proxy} is asked", is_asked)
