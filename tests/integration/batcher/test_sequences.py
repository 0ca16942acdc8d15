"""Sequences in the batcher's process: between routers that come and go, workers that die, and time."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from services.chassis.link import LinkClient
from services.core.errors import DEADLINE_EXCEEDED, INTERNAL, INVALID_ARGUMENT, OK, UNAVAILABLE
from tests.support.puppet_pod import KILLER, POISON, PuppetPod, PuppetRouter
from turnout.v1 import link_pb2 as pb

LONG_US = 60_000_000


def spec(rows: int = 2, idle_us: int = LONG_US, **sequences: Any) -> bytes:
    batching = {"max_sequence_idle_microseconds": idle_us, **sequences}
    return json.dumps({"batching": {"max_batch_size": rows, "sequence_batching": batching}}).encode()


def step(router: PuppetRouter, name: int, value: int, *, start: bool = False, end: bool = False) -> int:
    return router.send(value, sequence=pb.Sequence(number=name, start=start, end=end))


async def metrics(pod: PuppetPod) -> dict[str, float]:
    address = await pod.process.address("metrics")
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


async def count(pod: PuppetPod, what: str, *labels: str) -> float:
    text = ",".join(['model="echo"', *labels, 'version="1"'])
    return (await metrics(pod))[f"turnout_batcher_{what}{{{text}}}"]


@asynccontextmanager
async def second_router(pod: PuppetPod) -> AsyncIterator[PuppetRouter]:
    router = PuppetRouter()
    hello = pb.Hello(service="router", instance="second", protocol=1)
    client = LinkClient(await pod.process.address("link"), router, hello)
    client.start()
    await router.until(lambda: router.serving)
    try:
        yield router
    finally:
        await client.close()


async def test_silence_frees_a_place_and_who_waits_is_promoted(pod: PuppetPod) -> None:
    await pod.client.put("models/echo", spec(rows=1, idle_us=200_000))
    async with pod.batching():
        router = pod.router
        assert await router.values(step(router, 1, 10, start=True)) == [[10]]
        waiting = step(router, 2, 20, start=True)
        refused = step(router, 3, 30)
        assert await router.codes(refused) == [INVALID_ARGUMENT]
        assert waiting not in router.replies
        before = [await count(pod, "sequences"), await count(pod, "sequences_waiting")]

        assert await router.values(waiting) == [[20]]
        late = step(router, 1, 11)
        assert await router.codes(late) == [INVALID_ARGUMENT]
        assert "it sent nothing for too long; begin it anew" in router.replies[late].message
        assert before == [1, 1]
        assert await count(pod, "sequences_waiting") == 0
        assert await count(pod, "sequences_over_total", 'reason="idle"') >= 1


async def test_when_a_router_goes_its_sequences_are_over_at_once(pod: PuppetPod) -> None:
    await pod.client.put("models/echo", spec(rows=1))
    async with pod.batching():
        async with second_router(pod) as other:
            await other.values(step(other, 1, 10, start=True))
            waiting = step(pod.router, 2, 20, start=True)
            await pod.router.codes(step(pod.router, 3, 30))
            assert waiting not in pod.router.replies

        assert await pod.router.values(waiting) == [[20]]
        assert await count(pod, "sequences_over_total", 'reason="link"') == 1


async def test_a_worker_that_dies_ends_its_sequences_and_a_new_start_works(pod: PuppetPod) -> None:
    await pod.client.put("models/echo", spec())
    async with pod.batching():
        router = pod.router
        await router.values(step(router, 1, 10, start=True), step(router, 2, 20, start=True))
        killer = step(router, 1, KILLER)
        assert await router.codes(killer) == [INTERNAL]
        await router.until(lambda: router.serving[-1].models[:1])
        later = [step(router, 1, 11), step(router, 2, 21)]

        assert await router.codes(*later) == [INVALID_ARGUMENT] * 2
        assert "the process that held its state is gone" in router.replies[later[1]].message
        again = step(router, 1, 12, start=True)
        assert await router.values(again) == [[12]]


async def test_a_raise_fails_its_batch_only_and_is_not_searched(pod: PuppetPod) -> None:
    await pod.client.put("models/echo", spec())
    async with pod.batching():
        router = pod.router
        await router.values(step(router, 1, 10, start=True), step(router, 2, 20, start=True))
        bad = step(router, 1, POISON)
        assert await router.codes(bad) == [INTERNAL]
        launches = len(pod.workers[0].batches)

        assert await router.codes(step(router, 1, 11), step(router, 2, 21)) == [INVALID_ARGUMENT, OK]
        assert len(pod.workers[0].batches) == launches + 1


async def test_interleaved_sequences_on_two_workers_keep_order_and_place(pod: PuppetPod) -> None:
    await pod.client.put("models/echo", spec(rows=8))
    async with pod.batching(workers=2, slots=2):
        router = pod.router
        sent = {
            (name, turn): step(router, name, 100 * name + turn, start=turn == 0, end=turn == 19)
            for turn in range(20)
            for name in range(1, 31)
        }
        answers = await router.values(*sent.values())

        assert answers == [[100 * name + turn] for name, turn in sent]
        numbers = [
            [entry >> 2 for batch in worker.batches for entry in batch.sequence_rows if entry] for worker in pod.workers
        ]
        assert not set(numbers[0]) & set(numbers[1])
        assert sorted(map(len, numbers)) == sorted(20 * len(set(each)) for each in numbers)
        assert await count(pod, "sequences_over_total", 'reason="end"') == 30
        assert await count(pod, "sequences") == 0


async def test_a_model_may_begin_and_cease_to_have_sequences_while_it_serves(pod: PuppetPod) -> None:
    await pod.client.put("models/echo", spec())
    async with pod.batching():
        router, worker = pod.router, pod.workers[0]
        await router.values(step(router, 1, 10, start=True))
        worker.holds = True
        running, behind = step(router, 1, 11), step(router, 1, 12)
        await worker.until(lambda: worker.held)
        await pod.client.put("models/echo", b"{}")
        told = await router.codes(behind)
        worker.release()

        assert await router.values(running) == [[11]]
        assert told == [UNAVAILABLE]
        assert await router.values(router.send(1, 2, 3)) == [[1, 2, 3]]
        await pod.client.put("models/echo", spec(oldest={"max_candidate_sequences": 2}))
        await router.until(lambda: router.serving)
        async with asyncio.timeout(10):
            while (await router.codes(router.send(1)))[0] == OK:
                await asyncio.sleep(0.01)
        assert await router.values(step(router, 1, 13, start=True)) == [[13]]


async def test_a_retired_worker_serves_the_sequences_it_has_and_takes_no_new_ones(pod: PuppetPod) -> None:
    await pod.client.put("models/echo", spec())
    async with pod.batching():
        router, (old,) = pod.router, pod.workers
        await router.values(step(router, 1, 10, start=True))
        new = await pod.add_worker()
        pod.runtime.say(new)
        await new.until(lambda: new.server.links)
        begun = step(router, 2, 20, start=True)
        assert await router.values(begun, step(router, 1, 11)) == [[20], [11]]
        assert (old.sizes(), new.sizes()) == ([1, 1], [1])

        assert await router.values(step(router, 1, 12, end=True)) == [[12]]
        await old.until(lambda: not old.server.links)


async def test_a_thousand_expired_sequences_cost_nothing(pod: PuppetPod) -> None:
    await pod.client.put("models/echo", spec(rows=1000, idle_us=100_000, oldest={"max_candidate_sequences": 1000}))
    async with pod.batching():
        router = pod.router
        await router.values(*(step(router, name, 0, start=True) for name in range(1, 1001)))
        async with asyncio.timeout(10):
            while await count(pod, "sequences_over_total", 'reason="idle"') < 1000:
                await asyncio.sleep(0.05)
        pod.workers[0].holds = True
        before_s = cpu_s(pod.process.pid)
        passes = router.send(0, sequence=pb.Sequence(number=1, start=True), deadline_us=2_000_000)

        assert await router.codes(passes) == [DEADLINE_EXCEEDED]  # two seconds have gone by there
        assert cpu_s(pod.process.pid) - before_s < 0.1
        assert await count(pod, "sequences") == 0


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
