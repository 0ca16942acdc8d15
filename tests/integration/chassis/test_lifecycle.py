import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from services.chassis.etcd import EtcdClient, EtcdProcess
from services.core.registry import ServiceRecord
from tests.support.channels import own_channel
from tests.support.service_process import REPOSITORY, ServiceProcess, started

TINY = "tests.support.tiny_service"
NO_ETCD = {"TURNOUT_TINY_ETCD_ENDPOINTS": "127.0.0.1:1"}  # nothing ever listens there


@pytest.fixture
async def tiny() -> AsyncIterator[ServiceProcess]:
    async with started(TINY, NO_ETCD) as service:
        yield service


async def get(service: ServiceProcess, path: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{await service.address('metrics')}{path}") as answer,
    ):
        return answer.status, await answer.text()


async def call(service: ServiceProcess, method: str, request: bytes = b"") -> None:
    async with own_channel(await service.address("grpc")) as channel:
        await channel.unary_unary(f"/test.Tiny/{method}")(request, timeout=10)


async def test_without_etcd_a_service_starts_becomes_ready_and_serves(tiny: ServiceProcess) -> None:
    await tiny.logged("state_changed", state="ready")
    await call(tiny, "NotReady", b"")

    assert await get(tiny, "/ready") == (200, '{"state": "ready", "reasons": []}')
    assert (await get(tiny, "/live"))[0] == 200


async def test_a_failed_check_makes_it_not_ready_at_once_and_says_why(tiny: ServiceProcess) -> None:
    await call(tiny, "NotReady", b"no link")

    status, text = await get(tiny, "/ready")

    assert (status, json.loads(text)) == (503, {"state": "not_ready", "reasons": ["no link"]})
    assert (await get(tiny, "/live"))[0] == 200


async def test_metrics_of_the_process_are_scraped(tiny: ServiceProcess) -> None:
    status, text = await get(tiny, "/metrics")

    assert status == 200
    assert 'turnout_build_info{python="' in text
    for name in ("turnout_loop_lag_seconds", "process_open_fds", "process_resident_memory_bytes", "python_info"):
        assert f"\n{name}" in text


async def test_sigterm_lets_a_call_in_flight_finish_and_ends_with_0(tiny: ServiceProcess) -> None:
    async with own_channel(await tiny.address("grpc")) as channel:
        answers = channel.unary_stream("/test.Tiny/Hold")(b"", timeout=20)
        assert await answers.read() == b"begun"

        tiny.signal(signal.SIGTERM)

        assert await answers.read() == b"finished"
    assert await tiny.exit_code() == 0
    assert [line["event"] for line in tiny.events()][-2:] == ["drained", "stopped"]


async def test_the_crash_of_a_task_is_logged_with_its_traceback_drained_and_ends_with_1(tiny: ServiceProcess) -> None:
    await call(tiny, "Fail")

    assert await tiny.exit_code() == 1
    failed = await tiny.logged("task_failed", task="doomed")
    assert "RuntimeError: the loop of it broke" in failed["exception"]
    assert [line["event"] for line in tiny.events()][-2:] == ["drained", "stopped"]


@pytest.mark.parametrize("field", ["metrics_address", "grpc_address"])
async def test_a_busy_port_is_one_clear_line_and_exit_code_3(field: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        setting = f"TURNOUT_TINY_{field.upper()}"
        async with started(TINY, NO_ETCD | {setting: address}) as service:
            code = await service.exit_code()

    plain = [line for line in service.lines if not line.startswith("{")]
    assert (code, plain) == (3, [f"{address} is in use: another process listens there; {setting} sets it"])
    assert not [line for line in service.events() if line["level"] == "error"]


async def test_wrong_settings_are_a_line_each_and_exit_code_2() -> None:
    wrong = {"TURNOUT_TINY_COLOUR": "red", "TURNOUT_TINY_DRAIN_S": "soon"}
    async with started(TINY, NO_ETCD | wrong) as service:
        code = await service.exit_code()

    assert (code, sorted(line.partition(":")[0] for line in service.lines)) == (2, sorted(wrong))


async def test_sigterm_during_a_start_that_waits_ends_it() -> None:
    async with started(TINY, NO_ETCD | {"TURNOUT_TINY_HANG": "start"}) as service:
        await service.logged("start_hangs")
        service.signal(signal.SIGTERM)

        assert await service.exit_code() == 0


async def test_a_drain_step_that_hangs_is_given_up_after_drain_s() -> None:
    async with started(TINY, NO_ETCD | {"TURNOUT_TINY_HANG": "drain", "TURNOUT_TINY_DRAIN_S": "0.2"}) as service:
        await service.address("grpc")
        service.signal(signal.SIGTERM)

        assert await service.exit_code() == 0
        await service.logged("drain_overran")


@pytest.mark.parametrize(("hang", "event"), [("leave", "stop_overran"), ("thread", "stop_hung")])
async def test_whatever_hangs_the_process_ends_within_drain_s_and_5_seconds(hang: str, event: str) -> None:
    async with started(TINY, NO_ETCD | {"TURNOUT_TINY_HANG": hang, "TURNOUT_TINY_DRAIN_S": "0.2"}) as service:
        await service.logged("state_changed", state="ready")
        began = time.monotonic()
        service.signal(signal.SIGTERM)

        assert await service.exit_code() == 1
        assert time.monotonic() - began < 0.2 + 5 + 2
        await service.logged(event)


async def test_a_second_sigterm_ends_it_at_once() -> None:
    async with started(TINY, NO_ETCD | {"TURNOUT_TINY_HANG": "drain", "TURNOUT_TINY_DRAIN_S": "100"}) as service:
        await service.address("grpc")
        service.signal(signal.SIGTERM)
        await service.logged("stopping")
        service.signal(signal.SIGTERM)

        assert await service.exit_code() == -signal.SIGTERM


def test_its_parents_death_stops_it() -> None:
    program = (
        "import sys\nfrom subprocess import DEVNULL, PIPE, Popen\n"
        f"service = Popen([sys.executable, '-m', {TINY!r}], stdout=DEVNULL, stderr=PIPE)\n"
        "for line in service.stderr:\n"
        '    if b\'"state": "ready"\' in line:\n'
        "        print(service.pid, flush=True)\n"
    )
    environ = os.environ | NO_ETCD | {"TURNOUT_TINY_PARENT_DEATH": "true"}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=REPOSITORY, env=environ
    ) as parent:
        assert parent.stdout is not None
        service = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()

    ended, _, _ = select.select([service], [], [], 20)
    os.close(service)

    assert ended == [service]


async def test_its_record_in_etcd_follows_its_state_until_it_is_gone(tmp_path: Path) -> None:
    async with EtcdProcess(tmp_path / "etcd", fsync=False) as etcd:
        client = EtcdClient([etcd.endpoint], "/elsewhere/")
        settings = {
            "TURNOUT_TINY_ETCD_ENDPOINTS": etcd.endpoint,
            "TURNOUT_TINY_ETCD_PREFIX": "/elsewhere/",
            "TURNOUT_TINY_INSTANCE": "t-1",
        }
        async with started(TINY, settings) as service:
            ready = await state(client, "ready")
            await call(service, "NotReady", b"no link")
            not_ready = await state(client, "not_ready")
            async with own_channel(await service.address("grpc")) as channel:
                answers = channel.unary_stream("/test.Tiny/Hold")(b"", timeout=20)
                await answers.read()
                service.signal(signal.SIGTERM)
                await service.logged("state_changed", state="draining")
                assert await service.exit_code() == 0

            assert (ready.address, ready.metrics) == (await service.address("grpc"), await service.address("metrics"))
            assert (ready.pid, not_ready.host) == (service.pid, ready.host)
            assert await client.get("services/tiny/t-1") is None
        await client.close()


async def state(client: EtcdClient, wanted: str) -> ServiceRecord:
    """The record of t-1 once it is in that state."""
    async with asyncio.timeout(20):
        while True:
            entry = await client.get("services/tiny/t-1")
            if entry and (record := ServiceRecord.parse(entry.value)).state == wanted:
                return record
            await asyncio.sleep(0.05)
