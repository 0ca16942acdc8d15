"""The batcher's process with every slot busy, with callers who leave, and with workers that die."""

import asyncio
import random

import aiohttp

from services.core.errors import DEADLINE_EXCEEDED, INTERNAL, OK, UNAVAILABLE
from tests.support.batching import numbers_of
from tests.support.mesh import until
from tests.support.pod_steps import occupy
from tests.support.proof import Starvation, has_read
from tests.support.puppet_pod import KILLER, PuppetPod

TOLERANCE_S = 0.02  # for what fires on time on a busy machine, beside the time without a processor
AT_ONCE_S = 0.005
BOTH_SLOTS = b'{"batching": {"max_batch_size": 1, "max_queue_size": 60}}'


async def all_read(pod: PuppetPod) -> None:
    """Return when the batcher has seen everything that was sent to it."""
    assert pod.router.link is not None
    await has_read(pod.router.link)


async def ready_status(pod: PuppetPod) -> int:
    address = await pod.process.address("metrics")
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}/ready") as response:
        return response.status


async def test_fifty_deadlines_each_fire_on_time_while_every_slot_is_busy(pod: PuppetPod) -> None:
    await pod.client.put("models/echo", BOTH_SLOTS)
    async with pod.batching(slots=2):
        await occupy(pod, slots=2)
        rng, loop = random.Random(3), asyncio.get_running_loop()
        due_s = {}
        starved = Starvation(pod.process.pid)
        for _ in range(50):
            left_s = rng.uniform(0.1, 0.5)
            kind = rng.choice(["deadline_us", "queue_timeout_us"])
            now_s = loop.time()
            due_s[pod.router.send(1, **{kind: int(left_s * 1e6)})] = now_s + left_s
        codes = await pod.router.codes(*due_s)
        late_s = [pod.router.answered_at[number] - due for number, due in due_s.items()]

        assert set(codes) == {DEADLINE_EXCEEDED, UNAVAILABLE}
        assert min(late_s) >= -0.001
        assert max(late_s) < TOLERANCE_S + starved.seconds
        assert len(pod.workers[0].batches) == 2


async def refusals(pod: PuppetPod, count: int) -> float:
    """How long nine in ten of `count` refusals took at most, in seconds."""
    took_s = []
    for _ in range(count):
        starved, began_s = Starvation(pod.process.pid), asyncio.get_running_loop().time()
        number = pod.router.send(2)
        assert await pod.router.codes(number) == [UNAVAILABLE]
        assert pod.router.replies[number].retry_after_us > 0
        took_s.append(pod.router.answered_at[number] - began_s - starved.seconds)
    return sorted(took_s)[count * 9 // 10]


async def test_refusals_are_answered_at_once_while_every_slot_is_busy(pod: PuppetPod) -> None:
    await pod.client.put("models/echo", BOTH_SLOTS)
    async with pod.batching(slots=2):
        await occupy(pod, slots=2)
        for _ in range(60):
            pod.router.send(1)
        await all_read(pod)
        slowest_s = [await refusals(pod, 50)]
        while (
            slowest_s[-1] >= AT_ONCE_S and len(slowest_s) < 5
        ):  # a machine may be busy with something else for a while
            slowest_s.append(await refusals(pod, 50))

        assert min(slowest_s) < AT_ONCE_S
        refused = await pod.metric("turnout_batcher_refused_total", reason="queue_full")
        assert refused == 50 * len(slowest_s)


async def test_who_leaves_is_counted_by_where_it_was_and_never_runs_from_the_queue(pod: PuppetPod) -> None:
    async with pod.batching():
        (running,) = await occupy(pod)
        queued = [pod.router.send(value) for value in range(10, 15)]
        stays = pod.router.send(20)
        for number in (running, *queued):
            pod.router.cancel(number)
        await all_read(pod)
        pod.workers[0].release()

        assert await pod.router.values(stays) == [[20]]
        await all_read(pod)
        assert not {running, *queued} & set(pod.router.replies)
        assert [numbers_of(batch.inputs[0].data) for batch in pod.workers[0].batches] == [[0], [20]]
        assert await pod.metric("turnout_batcher_cancelled_total", stage="queue") == 5
        assert await pod.metric("turnout_batcher_cancelled_total", stage="running") == 1


async def test_two_hundred_requests_at_once_each_get_exactly_their_rows(pod: PuppetPod) -> None:
    async with pod.batching(slots=2, workers=2):
        rng = random.Random(8)
        sent = {}
        for first in range(1000, 3000, 10):
            values = list(range(first, first + rng.randint(1, 9)))
            sent[pod.router.send(*values)] = values

        assert await pod.router.values(*sent) == list(sent.values())
        assert max(max(worker.sizes(), default=0) for worker in pod.workers) <= 64


async def test_wrong_rows_fail_every_caller_of_their_batch_and_nobody_elses(pod: PuppetPod) -> None:
    async with pod.batching(workers=2):
        good, bad = pod.workers
        bad.rows_short = 1
        numbers = [pod.router.send(value, value + 1000) for value in range(100)]
        replies = dict(zip(numbers, await pod.router.answers(*numbers), strict=True))
        answered = {number for number, reply in replies.items() if reply.code == OK}

        assert {reply.code for reply in replies.values()} == {OK, INTERNAL}
        for value, number in enumerate(numbers):
            if number in answered:
                assert numbers_of(replies[number].outputs[0].data) == [value, value + 1000]
        assert sum(good.sizes()) == 2 * len(answered)
        assert sum(bad.sizes()) == 2 * (len(numbers) - len(answered))


async def test_a_request_that_ends_processes_ends_two(pod: PuppetPod) -> None:
    async with pod.batching(workers=3):
        sent = [pod.router.send(value) for value in (1, KILLER, 2)]
        codes = await pod.router.codes(*sent)
        again = await pod.router.codes(pod.router.send(KILLER))
        batches = [batch for worker in pod.workers for batch in worker.batches]

        assert (codes, again) == ([OK, INTERNAL, OK], [INTERNAL])
        assert sum(KILLER in numbers_of(batch.inputs[0].data) for batch in batches) == 2


async def test_without_a_worker_it_is_not_ready_until_there_is_one_again(pod: PuppetPod) -> None:
    async with pod.batching():
        await pod.until_endpoints(1)
        running = await occupy(pod)
        starved, began_s = Starvation(pod.process.pid), asyncio.get_running_loop().time()
        worker = pod.workers[0]
        await worker.server.close()
        codes = await pod.router.codes(*running)
        took_s = pod.router.answered_at[running[0]] - began_s - starved.seconds
        await pod.until_endpoints(0)
        while_away = await ready_status(pod)
        worker.holds = False
        await worker.server.start(worker.server.address)
        await pod.until_endpoints(1)

        async def is_ready() -> bool:
            return await ready_status(pod) == 200

        await until("it is ready again", is_ready)
        assert (codes, while_away) == ([INTERNAL], 503)
        assert took_s < 1 + TOLERANCE_S
        assert await pod.router.values(pod.router.send(7)) == [[7]]
