"""Copies for the shadow comparator: after the answer, and never in its way."""

import asyncio

import grpc
import pytest

from tests.support.proof import Starvation, has_read
from tests.support.puppets import PuppetComparator, floats, silence
from tests.support.router_mesh import RouterMesh, infer_request

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = {"max_mirror_bytes": 1 << 20}

OK = grpc.StatusCode.OK


async def found(comparator: PuppetComparator, mesh: RouterMesh) -> None:
    """Announce it, and return once the router sends it copies."""
    await comparator.announce(mesh.etcd)
    await comparator.until(lambda: any(link.peer.instance for link in comparator.server.links))
    for link in comparator.server.links:
        await has_read(link)


async def test_a_request_and_its_answer_are_copied_after_the_answer(mesh: RouterMesh) -> None:
    model = await mesh.model("1", "3")
    await model.route({"stable": "1", "shadow": {"3": 100}})
    async with PuppetComparator() as comparator:
        await found(comparator, mesh)
        request = infer_request(model.name, 1.0)
        request.id = "a"
        model.batcher.answer = silence
        call = asyncio.create_task(mesh.call(request, metadata=[("x-routing-key", "user-1")]))
        await model.batcher.until(lambda: model.batcher.requests)
        await asyncio.sleep(0.05)
        before = len(comparator.mirrors)
        output = {"name": "y", "datatype": "FP32", "shape": [1, 2], "data": floats(5, 6)}
        model.batcher.reply(model.batcher.requests[0], outputs=[output])

        assert ((await call).code, before) == (OK, 0)
        await comparator.until(lambda: comparator.mirrors)
        mirror = comparator.mirrors[0]
        await comparator.renounce(mesh.etcd)

    assert (mirror.model, mirror.served_version, mirror.candidate_version) == (model.name, "1", "3")
    assert (mirror.request_id, mirror.rows, mirror.routing_key) == ("a", 1, b"user-1")
    assert (mirror.inputs[0].data, mirror.outputs[0].data) == (floats(1, 1), floats(5, 6))
    assert (mirror.served_digest, mirror.served_compute_ns) == ("sha", 1000)
    assert mirror.served_total_ns > 40_000_000
    assert [request.version for request in model.batcher.requests] == ["1"]


async def test_known_requests_errors_and_named_versions_are_mirrored_or_not_as_they_should(mesh: RouterMesh) -> None:
    model = await mesh.model("1", "3")
    await model.route({"stable": "1", "shadow": {"3": 100}})
    async with PuppetComparator() as comparator:

        def copied() -> list[bytes]:
            return [mirror.inputs[0].data for mirror in comparator.mirrors]

        await found(comparator, mesh)
        for value in (1.0, 2.0, 3.0):
            await model.call(value)
        await model.call(version="1")
        await mesh.call(infer_request(model.name))
        await model.call(9.0)
        await comparator.until(lambda: floats(9, 9) in copied())
        await comparator.renounce(mesh.etcd)

    assert [data for data in copied() if data] == [floats(n, n) for n in (1, 2, 3, 9)]


async def test_requests_of_sequences_are_not_copied(mesh: RouterMesh) -> None:
    model = await mesh.model("1", "3", spec={"versions": {"1": {"batching": {"sequence_batching": {}}}}})
    await model.route({"stable": "1", "shadow": {"3": 100}})
    async with PuppetComparator() as comparator:
        await found(comparator, mesh)
        request = infer_request(model.name, 1.0)
        request.parameters["sequence_id"].int64_param = 1
        of_sequence = await mesh.call(request)
        await model.route({"stable": "3", "shadow": {"1": 100}})
        other = await model.call(2.0)
        await comparator.until(lambda: comparator.mirrors)
        await comparator.renounce(mesh.etcd)

    assert (of_sequence.code, other.code) == (OK, OK)
    assert [mirror.inputs[0].data for mirror in comparator.mirrors] == [floats(2, 2)]


async def test_a_share_is_of_users_not_of_requests(mesh: RouterMesh) -> None:
    model = await mesh.model("1", "3")
    await model.route({"stable": "1", "shadow": {"3": 40}})
    async with PuppetComparator() as comparator:
        await found(comparator, mesh)
        before = await mesh.metric("turnout_mirrored_total")
        for _ in range(2):
            await asyncio.gather(*(model.call(metadata=[("x-routing-key", f"u{n}")]) for n in range(60)))
        await model.call(version="1")  # answered after whatever the calls before it left to do
        copies = await mesh.metric("turnout_mirrored_total") - before
        await comparator.until(lambda: len(comparator.mirrors) >= copies)
        await comparator.renounce(mesh.etcd)

    assert len(comparator.mirrors) == copies
    users = [mirror.routing_key for mirror in comparator.mirrors]
    assert all(users.count(user) == 2 for user in users)
    assert 10 <= len(set(users)) <= 40


async def test_a_comparator_that_is_absent_dead_or_hangs_changes_nothing_for_callers(mesh: RouterMesh) -> None:
    model = await mesh.model("1", "3", spec={"limits": {"max_request_rows": 100_000}}, max_request_rows=100_000)
    await model.route({"stable": "1", "shadow": {"3": 100}})

    async def dropped(reason: str) -> float:
        return await mesh.metric("turnout_mirror_dropped_total", reason=reason)

    assert (await model.call()).code == OK
    assert await dropped("no_comparator") >= 1
    async with PuppetComparator() as comparator:
        await found(comparator, mesh)
        comparator.stop_reading()
        large = [infer_request(model.name, *([1.0] * 65_000)) for _ in range(8)]  # 520 kB
        answers, starved = [], Starvation(mesh.router.pid)
        for _ in range(6):
            answers += await asyncio.gather(*map(mesh.call, large))
        full = await dropped("queue_full")
        comparator.lose_links()
        answers += await asyncio.gather(*map(mesh.call, large))
        await comparator.renounce(mesh.etcd)

    assert {answer.code for answer in answers} == {OK}
    assert max(answer.took_s for answer in answers) < 2 + starved.seconds
    assert full > 0
