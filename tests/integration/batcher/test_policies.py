"""How a model is batched, from etcd, in a batcher's own process: levels, order, live changes."""

import asyncio
import json
from typing import Any

import aiohttp

from services.core import keys
from services.core.errors import OK, UNAVAILABLE
from tests.support.pod_steps import occupy, settled
from tests.support.puppet_pod import TIMEOUT_S, PuppetPod

LEVELS = {"priority_levels": 3, "default_priority_level": 2}


async def configure(pod: PuppetPod, **batching: Any) -> None:
    """Put the model's batching; return when the batcher says that it goes by it."""
    put = await pod.client.put(f"{keys.MODELS}echo", json.dumps({"batching": batching}).encode())
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            listing = await pod.client.list(keys.STATUS)
            said = [json.loads(entry.value) for entry in listing.entries.values()]
            if any(status.get("revision", 0) >= put for status in said):
                return
            await asyncio.sleep(0.02)


async def test_levels_from_etcd_decide_who_leaves_first(pod: PuppetPod) -> None:
    async with pod.batching():
        await configure(pod, max_batch_size=1, **LEVELS)
        await occupy(pod)
        low, plain, high = (pod.router.send(n, priority=level) for n, level in ((3, 3), (2, 0), (1, 1)))
        await settled(pod)
        pod.workers[0].release()
        await pod.router.values(low, plain, high)

        assert [batch.inputs[0].data[0] for batch in pod.workers[0].batches] == [0, 1, 2, 3]


async def test_a_policy_changed_live_drops_nobody_who_waits(pod: PuppetPod) -> None:
    async with pod.batching():
        await configure(pod, max_batch_size=1)
        (first,) = await occupy(pod)
        numbers = [pod.router.send(value) for value in range(1, 9)]
        await settled(pod)
        await configure(pod, max_batch_size=8, max_queue_size=8, preserve_ordering=True, **LEVELS)
        late = pod.router.send(9, priority=1)
        await settled(pod)
        assert (await pod.router.answers(late))[0].code == UNAVAILABLE  # eight wait already, and none below its level
        pod.workers[0].release()

        assert await pod.router.values(first, *numbers) == [[value] for value in range(9)]
        assert pod.workers[0].sizes() == [1, 8]


async def test_a_wrong_combination_is_refused_with_the_reason_and_the_last_good_one_stays(pod: PuppetPod) -> None:
    async with pod.batching():
        await configure(pod, max_batch_size=2)
        await configure(pod, max_batch_size=2, priority_levels=2)
        listing = await pod.client.list(keys.STATUS)
        refused = [json.loads(entry.value).get("refused", {}) for entry in listing.entries.values()]
        await occupy(pod)
        numbers = [pod.router.send(value) for value in range(1, 4)]
        await settled(pod)
        pod.workers[0].release()
        await pod.router.values(*numbers)

        reason = "batching: default_priority_level 0 is not within 1 to priority_levels 2"
        assert {"/turnout/models/echo": reason} in refused or {"models/echo": reason} in refused
        assert pod.workers[0].sizes() == [1, 2, 1]


async def test_answers_keep_the_order_of_requests_though_two_workers_run_them(pod: PuppetPod) -> None:
    async with pod.batching(workers=2):
        await configure(pod, max_batch_size=1, preserve_ordering=True)
        slow, quick = pod.workers
        slow.holds = True
        numbers = []
        while not slow.held:  # the first to be held; those before it may have gone to the other one
            numbers.append(pod.router.send(len(numbers)))
            await settled(pod)
        after = [pod.router.send(value) for value in range(100, 110)]
        await quick.until(lambda: len(quick.batches) >= 10)
        await settled(pod)
        late = [number for number in (*numbers, *after) if number not in pod.router.replies]

        assert set(late) >= set(after)

        slow.release()

        assert await pod.router.codes(*late) == [OK] * len(late)
        assert late == [number for number in pod.router.replies if number in set(late)]


async def test_what_is_chosen_for_a_target_is_visible(pod: PuppetPod) -> None:
    async with pod.batching():
        await configure(pod, max_batch_size=16, target_p99_ms=0.001)  # nothing is so quick
        for value in range(60):
            await pod.router.values(pod.router.send(value))
        metrics = await pod.process.address("metrics")
        async with aiohttp.ClientSession() as client, client.get(f"http://{metrics}/metrics") as response:
            text = await response.text()

        assert [line for line in text.splitlines() if line.startswith("turnout_batcher_chosen_rows")] == [
            'turnout_batcher_chosen_rows{model="echo",version="1"} 1.0'
        ]
        assert 'nv_inference_exec_count{model="echo",version="1"} 60.0' in text
