import asyncio
import os
import signal
import time
from pathlib import Path

import aiohttp
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.core import keys
from services.core.registry import ServiceRecord
from tests.support.channels import own_channel
from tests.support.shadow_mesh import CANDIDATE, MODEL, TIMEOUT_S, Mesh, echo, mirror, silence, tensor, until
from turnout.v1 import link_pb2, shadow_pb2
from turnout.v1.tensor_pb2 import Tensor

REPORT = "/turnout.v1.Shadow/Report"


def resident_bytes(pid: int, which: str = "VmRSS") -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(which))


async def record(mesh: Mesh) -> ServiceRecord | None:
    listing = await mesh.etcd.list(f"{keys.SERVICES}shadow/")
    return next((ServiceRecord.parse(entry.value) for entry in listing.entries.values()), None)


async def announced(mesh: Mesh, state: str) -> ServiceRecord:
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            found = await record(mesh)
            if found is not None and found.state == state:
                return found
            await asyncio.sleep(0.02)


async def test_the_report_counts_what_was_mirrored(mesh: Mesh) -> None:
    await mesh.start()
    mesh.candidate.answer = lambda request: (
        echo(request)
        if request.request_id.startswith("same")
        else echo(request) | {"outputs": [tensor("score", 1.0, 5.0)]}
    )

    mesh.router.send(*(mirror(f"same-{number}", 1.0, 2.0) for number in range(30)), mirror("other", 1.0, 2.0))
    found = await mesh.settled(31)

    assert (found.compared, found.rows, dict(found.errors), dict(found.dropped)) == (31, 62, {}, {})
    assert (found.served_digest, found.candidate_digest) == ("sha-1", "sha-2")
    output = found.outputs[0]
    assert (output.kind, output.rows, output.agreeing_rows, output.max_abs_difference) == ("score", 62, 61, 3.0)
    worst = [(example.request_id, example.difference, example.served, example.candidate) for example in found.worst]
    assert worst == [("other", 3.0, "row 1: 2", "row 1: 5")]
    assert found.served_latency.p50_ms == pytest.approx(1.0, rel=0.03)
    assert found.candidate_latency.p99_ms == pytest.approx(2.0, rel=0.03)


async def test_the_candidate_is_asked_once_each_as_shadow_with_the_same_inputs(mesh: Mesh) -> None:
    await mesh.start(candidate_deadline_s=7)

    mesh.router.send(mirror("a", 1.0), mirror("b", 2.0))
    await mesh.settled(2)

    assert [request.request_id for request in mesh.candidate.requests] == ["a", "b"]
    for request in mesh.candidate.requests:
        assert (request.version, request.shadow, list(request.outputs)) == (CANDIDATE, True, ["score"])
        assert 0 < request.deadline_us <= 7_000_000


async def test_the_metrics_agree_with_the_report(mesh: Mesh) -> None:
    await mesh.start()
    mesh.router.send(mirror("a", 1.0), mirror("b", 2.0))
    await mesh.settled(2)

    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{await mesh.shadow.address('metrics')}/metrics") as answer,
    ):
        text = await answer.text()

    assert f'turnout_shadow_compared_total{{candidate="2",model="{MODEL}",served="1"}} 2.0' in text
    assert 'turnout_shadow_agreement_ratio{candidate="2",model="digits",output="score",served="1"} 1.0' in text


async def test_it_is_ready_announced_and_healthy_and_its_socket_is_a_link_too(mesh: Mesh) -> None:
    await mesh.start()
    found = await announced(mesh, "ready")

    async with own_channel(found.address) as channel:
        check = health_pb2_grpc.HealthStub(channel).Check
        health = await check(health_pb2.HealthCheckRequest(service="turnout.v1.Shadow"), timeout=TIMEOUT_S)
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await check(health_pb2.HealthCheckRequest(service="nobody"), timeout=TIMEOUT_S)
    await mesh.dial(f"unix:{found.local_socket}")
    mesh.router.send(mirror("a", 1.0))

    assert health.status == health_pb2.HealthCheckResponse.SERVING
    assert unknown.value.code() == grpc.StatusCode.NOT_FOUND
    assert (await mesh.settled(1)).compared == 1


async def test_it_stands_behind_other_processes_for_the_cpu(mesh: Mesh) -> None:
    await mesh.start(nice=7)

    assert os.getpriority(os.PRIO_PROCESS, mesh.shadow.pid) == os.getpriority(os.PRIO_PROCESS, 0) + 7


async def test_a_candidate_that_dies_is_counted_and_nothing_is_sent_twice(mesh: Mesh) -> None:
    await mesh.start()
    mesh.candidate.answer = silence
    mesh.router.send(mirror("in-flight", 1.0))
    await asyncio.wait_for(mesh.candidate.asked.wait(), TIMEOUT_S)

    await mesh.batcher.close()
    await mesh.settled(1)
    mesh.router.send(mirror("after", 1.0))
    found = await mesh.settled(2)

    assert (dict(found.errors), dict(found.dropped)) == ({"UNAVAILABLE": 1}, {"no_replica": 1})
    assert len(mesh.candidate.requests) == 1


async def test_a_candidate_that_hangs_is_given_up_at_the_deadline(mesh: Mesh) -> None:
    await mesh.start(candidate_deadline_s=0.3)
    mesh.candidate.answer = silence

    mesh.router.send(mirror("a", 1.0))
    found = await mesh.settled(1)

    assert dict(found.errors) == {"DEADLINE_EXCEEDED": 1}


async def test_a_candidate_that_sheds_or_fails_is_counted_by_how(mesh: Mesh) -> None:
    await mesh.start()
    answers = {
        "shed": {"code": 14, "executed": link_pb2.EXECUTED_NO},
        "raised": {"code": 13, "executed": link_pb2.EXECUTED_YES, "message": "the model raised"},
        "other-inputs": {"code": 3, "message": "no input named score"},
    }
    mesh.candidate.answer = lambda request: answers[request.request_id]

    mesh.router.send(*(mirror(name, 1.0) for name in answers))
    found = await mesh.settled(3)

    assert (dict(found.errors), dict(found.dropped)) == ({"INTERNAL": 1, "INVALID_ARGUMENT": 1}, {"shed": 1})


async def test_a_flood_is_dropped_and_counted_while_memory_stays_bounded(mesh: Mesh) -> None:
    await mesh.start(max_pending_bytes=8 << 20, candidate_deadline_s=60)
    mesh.candidate.answer = silence
    before = resident_bytes(mesh.shadow.pid)
    flood = [mirror(f"f-{number}", 1.0, padding_bytes=16 << 10) for number in range(64)]

    for _ in range(200):  # 200 MiB
        mesh.router.send(*flood)
        await until(lambda: mesh.router.link.queued_bytes < 4 << 20)
    held = (8 << 20) // (2 * flood[-1].ByteSize() + 1024)
    found = await mesh.settled(12_800, pending=held)

    assert dict(found.dropped) == {"queue_full": 12_800 - held}
    assert len(mesh.candidate.requests) <= 32
    assert resident_bytes(mesh.shadow.pid, "VmHWM") - before < 64 << 20


async def test_garbage_is_refused_or_counted_and_harms_nobody(mesh: Mesh) -> None:
    await mesh.start()
    address = await mesh.shadow.address("link")
    for junk in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(5000), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + os.urandom(500)):
        _, writer = await asyncio.open_connection(*address.split(":"))
        writer.write(junk)
        writer.close()
    odd = mirror("odd", 1.0)
    odd.outputs[0].CopyFrom(Tensor(name="score", datatype="BYTES", shape=[1 << 40], data=b"\xff" * 7))
    mesh.router.send(odd, shadow_pb2.Mirror(), mirror("no-name", 1.0, model="../../etc"), mirror("fine", 1.0))
    found = await mesh.settled(2)
    async with own_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_unary(REPORT)(b"\xff\xff\xff", timeout=TIMEOUT_S)
        stream = channel.stream_stream("/turnout.v1.Link/Open")(iter([b"\xff\xff\xff"]), timeout=TIMEOUT_S)
        with pytest.raises(grpc.aio.AioRpcError):
            [frame async for frame in stream]

    assert (found.compared, found.outputs[0].incomparable_rows, found.outputs[0].agreeing_rows) == (2, 1, 1)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    mesh.router.send(mirror("after", 1.0))
    assert (await mesh.settled(3)).compared == 3


async def test_after_a_kill_counts_begin_anew_and_say_since_when(mesh: Mesh) -> None:
    await mesh.start()
    mesh.router.send(mirror("a", 1.0))
    before = await mesh.settled(1)
    address = await mesh.shadow.address("link")

    mesh.shadow.signal(signal.SIGKILL)
    await mesh.shadow.exit_code()
    killed_s = time.time()
    await mesh.start(link_address=address)
    mesh.router.send(mirror("b", 1.0))
    after = await mesh.settled(1)

    assert before.since_s < killed_s <= after.since_s <= time.time()
    assert after.compared == 1


async def test_a_new_artifact_of_the_candidate_begins_the_counts_anew(mesh: Mesh) -> None:
    await mesh.start()
    mesh.router.send(mirror("a", 1.0), mirror("b", 1.0))
    before = await mesh.settled(2)

    mesh.candidate.answer = lambda request: echo(request) | {"digest": "sha-3"}
    mesh.router.send(mirror("c", 1.0))
    after = await mesh.settled(1)

    assert (before.candidate_digest, after.candidate_digest) == ("sha-2", "sha-3")
    assert after.since_s > before.since_s


async def test_a_stop_finishes_what_runs_says_so_to_routers_and_leaves_no_trace(mesh: Mesh) -> None:
    await mesh.start(max_running=1)
    mesh.candidate.answer = silence
    mesh.router.send(mirror("running", 1.0), mirror("waiting", 1.0))
    await asyncio.wait_for(mesh.candidate.asked.wait(), TIMEOUT_S)

    mesh.shadow.signal(signal.SIGTERM)
    await asyncio.wait_for(mesh.router.drained.wait(), TIMEOUT_S)
    found = await mesh.settled(2, pending=1)
    link = next(iter(mesh.batcher.links))
    link.frame_for(100).replies.add(id=mesh.candidate.requests[0].id, final=True, outputs=[tensor("score", 1.0)])

    assert dict(found.dropped) == {"draining": 1}
    assert await mesh.shadow.exit_code() == 0
    assert await record(mesh) is None
    assert not mesh.socket.exists()


async def test_with_etcd_gone_it_goes_on_comparing_also_after_a_restart(mesh: Mesh) -> None:
    await mesh.start()
    await mesh.server.kill()

    mesh.router.send(mirror("a", 1.0))
    first = await mesh.settled(1)
    mesh.shadow.signal(signal.SIGKILL)
    await mesh.shadow.exit_code()
    await mesh.start()
    mesh.router.send(mirror("b", 1.0))

    assert first.compared == 1
    assert (await mesh.settled(1)).compared == 1
