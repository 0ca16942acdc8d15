"""One model version as a process: ready, running batches, dying, coming back, watched."""

import asyncio
import os
import signal

import numpy as np
import pytest

from tests.support import mischief
from tests.support.mischief import Centred, Mischief
from tests.support.runtime_pod import BACKOFF, FAILED, READY, Batcher, Pod, output

SUM = {"trusted": True, "default_version": "1"}


async def test_a_version_becomes_ready_and_answers_batches(pod: Pod) -> None:
    pod.save("sum", "1", Mischief())
    await pod.put("models/sum", SUM)
    async with pod.running():
        instance = await pod.instance("sum", "1")
        async with Batcher(instance) as batcher:
            reply = await batcher.run((1, 2), (3, 4))

    assert output(reply, "y").tolist() == [3, 7]
    assert reply.digest == instance.digest
    assert reply.batch_rows == 2
    assert list(reply.stages_ns)[::2] == [0, 0]
    assert reply.stages_ns[1] > 0
    assert [(spec.name, spec.datatype, list(spec.shape)) for spec in instance.signature.inputs] == [
        ("x", "FP32", [-1, 2])
    ]
    assert instance.signature.batches
    assert instance.slots == 2


async def test_a_model_that_raises_fails_its_batch_and_lives_on(pod: Pod) -> None:
    pod.save("sum", "1", Mischief())
    await pod.put("models/sum", SUM)
    async with pod.running(), Batcher(await pod.instance("sum", "1")) as batcher:
        raised = await batcher.run((mischief.RAISE, 0))
        quit_ = await batcher.run((mischief.QUIT, 0))
        wrong = await batcher.run((mischief.WRONG_ROWS, 0))
        fine = await batcher.run((1, 1))

    assert (raised.code, raised.executed) == (13, 2)
    assert raised.message == "ValueError: no such thing in (path): 101.0"
    assert (quit_.code, quit_.message) == (13, "SystemExit: 3")
    assert (wrong.code, wrong.message) == (13, "ValueError: output 'y' has shape [2] for a batch of 1 rows")
    assert output(fine, "y").tolist() == [2]


async def test_a_batch_that_does_not_fit_is_refused_unexecuted(pod: Pod) -> None:
    pod.save("sum", "1", Mischief())
    await pod.put("models/sum", SUM)
    async with pod.running(), Batcher(await pod.instance("sum", "1")) as batcher:
        other = await batcher.run((1, 2), digest="another")
        unknown = await batcher.run((1, 2), name="z")
        wide = await (await batcher.send_array(np.ones((1, 2), np.float64)))
        version = await batcher.run((1, 2), version="7")

    replies = [other, unknown, wide, version]
    assert [reply.code for reply in replies] == [9, 3, 3, 5]
    assert {reply.executed for reply in replies} == {0}
    assert "'z'" in unknown.message
    assert "FP32" in wide.message


async def test_a_killed_worker_comes_back(pod: Pod) -> None:
    pod.save("sum", "1", Mischief())
    pod.save("other", "1", Mischief())
    await pod.put("models/sum", SUM)
    await pod.put("models/other", SUM)
    async with pod.running():
        first = await pod.instance("sum", "1")
        neighbour = await pod.instance("other", "1")
        os.kill(first.pid, signal.SIGKILL)
        again = await pod.until("another process", lambda: _other_pid(pod, first.pid))
        async with Batcher(again) as batcher:
            reply = await batcher.run((1, 2))
        undisturbed = pod.find("other", "1")

    assert output(reply, "y").tolist() == [3]
    assert again.restarts == 1
    assert ("1", BACKOFF) in pod.states_seen
    assert undisturbed is not None
    assert (undisturbed.pid, undisturbed.state) == (neighbour.pid, READY)


def _other_pid(pod: Pod, pid: int) -> object:
    found = pod.find("sum", "1", READY)
    return found if found and found.pid != pid else None


async def test_an_aborting_batch_costs_the_process_not_the_runtime(pod: Pod) -> None:
    pod.save("sum", "1", Mischief())
    await pod.put("models/sum", SUM)
    async with pod.running():
        first = await pod.instance("sum", "1")
        async with Batcher(first) as batcher:
            lost = await batcher.send((mischief.ABORT, 0))
            with pytest.raises(ConnectionError):
                await asyncio.wait_for(lost, 10)
        reason = (await pod.instance("sum", "1", BACKOFF)).reason
        again = await pod.until("another process", lambda: _other_pid(pod, first.pid))

    assert reason == "its process was killed by SIGABRT"
    assert again.restarts == 1


async def test_a_batch_without_end_is_killed_by_the_watchdog(pod: Pod) -> None:
    pod.save("sum", "1", Mischief())
    await pod.put("models/sum", {**SUM, "limits": {"max_execution_ms": 300}})
    async with pod.running(), Batcher(await pod.instance("sum", "1")) as batcher:
        began = asyncio.get_running_loop().time()
        lost = await batcher.send((mischief.LOOP, 0))
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(lost, 10)
        took_s = asyncio.get_running_loop().time() - began
        backoff = await pod.instance("sum", "1", BACKOFF)

    assert "over limits.max_execution_ms 300" in backoff.reason
    assert 0.3 <= took_s < 3


async def test_a_worker_over_its_memory_limit_is_killed(pod: Pod) -> None:
    pod.save("sum", "1", Mischief())
    await pod.put("models/sum", {**SUM, "limits": {"max_memory_bytes": 480 << 20}})
    async with pod.running(), Batcher(await pod.instance("sum", "1")) as batcher:
        await batcher.send((mischief.GROW, 0))
        backoff = await pod.instance("sum", "1", BACKOFF)

    assert "over limits.max_memory_bytes 503316480" in backoff.reason


async def test_a_model_that_prints_without_end_still_answers(pod: Pod) -> None:
    pod.save("sum", "1", Mischief())
    await pod.put("models/sum", SUM)
    async with pod.running(), Batcher(await pod.instance("sum", "1")) as batcher:
        reply = await batcher.run((mischief.PRINT, 0))
        line = await pod.process.logged("worker_output", line="x" * 4096 + " …")

    assert output(reply, "y").tolist() == [mischief.PRINT]
    assert line["model"] == "sum"
    assert max(map(len, pod.process.lines)) < 10_000


async def test_an_instance_that_never_gets_ready_is_given_up(pod: Pod) -> None:
    pod.save("sum", "1", mischief.AbortsOnLoad())
    await pod.put("models/sum", {**SUM, "limits": {"max_restarts": 1}})
    async with pod.running():
        failed = await pod.instance("sum", "1", FAILED)

    assert failed.reason.startswith("given up after 2 failures in a row; the last: its process was killed by SIGABRT")
    assert failed.restarts == 1


async def test_rows_that_depend_on_each_other_are_not_batched(pod: Pod) -> None:
    pod.save("centred", "1", Centred())
    await pod.put("models/centred", SUM)
    async with pod.running():
        instance = await pod.instance("centred", "1")

    assert not instance.signature.batches
    assert instance.reason == "output 'y' of two rows differs from the answers to each alone"


async def test_workers_die_with_their_runtime(pod: Pod) -> None:
    pod.save("sum", "1", Mischief())
    await pod.put("models/sum", SUM)
    async with pod.running():
        instance = await pod.instance("sum", "1")
        async with Batcher(instance) as batcher:
            await batcher.run((1, 2))
            pod.process.signal(signal.SIGKILL)
            async with asyncio.timeout(5):
                await batcher.lost.wait()


async def test_two_batches_wait_in_the_socket_and_answer_in_order(pod: Pod) -> None:
    pod.save("sum", "1", Mischief())
    await pod.put("models/sum", SUM)
    async with pod.running(), Batcher(await pod.instance("sum", "1")) as batcher:
        replies = [await batcher.send((float(number), 0)) for number in range(20)]
        answers = [output(await asyncio.wait_for(reply, 10), "y")[0] for reply in replies]

    assert answers == list(range(20))
