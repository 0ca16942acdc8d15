import asyncio
import http.client
import json
import time
from collections.abc import AsyncIterator

import pytest
from prometheus_client import CollectorRegistry, Gauge

from services.chassis.heartbeat import Heartbeat
from services.chassis.listening import CannotListenError
from services.chassis.ops import OpsServer, Readiness


class Ops:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.heartbeat = Heartbeat(beat_s=0.02, dead_after_s=0.3)
        self.reasons: list[str] = []
        self.server = OpsServer(self.registry, self.heartbeat, self._readiness)
        self.address = ""

    async def _readiness(self) -> Readiness:
        return Readiness("not_ready" if self.reasons else "ready", self.reasons)

    def get(self, path: str, accept: str = "*/*") -> tuple[int, str, str]:
        """Status, content type and body; blocks the calling thread, be it the event loop's."""
        connection = http.client.HTTPConnection(self.address, timeout=10)
        connection.request("GET", path, headers={"Accept": accept})
        answer = connection.getresponse()
        got = (answer.status, answer.headers["Content-Type"], answer.read().decode())
        connection.close()
        return got


@pytest.fixture
async def ops() -> AsyncIterator[Ops]:
    ops = Ops()
    ops.address = await ops.server.start("127.0.0.1:0")
    beating = asyncio.create_task(ops.heartbeat.run())
    yield ops
    beating.cancel()
    await ops.server.close()


def test_a_loop_that_hangs_is_told_by_live_and_ready_while_metrics_go_on() -> None:
    async def scenario() -> None:
        ops = Ops()
        ops.address = await ops.server.start("127.0.0.1:0")
        beating = asyncio.create_task(ops.heartbeat.run())
        before = await asyncio.to_thread(ops.get, "/live")

        deadline = time.monotonic() + 10
        while (hung := ops.get("/live"))[0] == 200 and time.monotonic() < deadline:
            time.sleep(0.02)  # noqa: ASYNC251 - the hang that is tried here
        ready, metrics = ops.get("/ready"), ops.get("/metrics")

        assert (before[0], hung[0], ready[0], metrics[0]) == (200, 503, 503, 200)
        assert json.loads(ready[2])["reasons"] == ["the event loop did not answer within 1 s"]
        assert ops.heartbeat.lag_now_s() > 0.2
        beating.cancel()
        await ops.server.close()

    asyncio.run(scenario())


async def test_ready_is_asked_anew_each_time(ops: Ops) -> None:
    first = await asyncio.to_thread(ops.get, "/ready")
    ops.reasons = ["no link", "no endpoint"]
    second = await asyncio.to_thread(ops.get, "/ready")

    assert (first[0], second[0]) == (200, 503)
    assert json.loads(second[2]) == {"state": "not_ready", "reasons": ["no link", "no endpoint"]}


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [("*/*", "text/plain"), ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text")],
)
async def test_metrics_come_in_the_format_that_is_asked_for(ops: Ops, accept: str, content_type: str) -> None:
    Gauge("tiny_depth_rows", "Depth.", registry=ops.registry).set(3)

    status, got, text = await asyncio.to_thread(ops.get, "/metrics", accept)

    assert (status, got.partition(";")[0]) == (200, content_type)
    assert "tiny_depth_rows 3.0\n" in text


async def test_other_paths_are_not_found(ops: Ops) -> None:
    assert (await asyncio.to_thread(ops.get, "/admin"))[0] == 404


async def test_a_busy_port_is_one_clear_line(ops: Ops) -> None:
    with pytest.raises(CannotListenError, match=f"^{ops.address} is in use: another process listens there$"):
        await Ops().server.start(ops.address)


async def test_after_close_nothing_listens() -> None:
    ops = Ops()
    ops.address = await ops.server.start("127.0.0.1:0")
    await ops.server.close()

    with pytest.raises(ConnectionRefusedError):
        await asyncio.to_thread(ops.get, "/live")
