"""The batcher's process between a router's link and workers that do as the test says."""

import asyncio
import signal

from services.core.errors import DEADLINE_EXCEEDED, INTERNAL, OK, UNAVAILABLE
from tests.support.batching import ints, numbers_of
from tests.support.channels import own_channel
from tests.support.mesh import until
from tests.support.pod_steps import occupy, settled
from tests.support.proof import Starvation
from tests.support.puppet_pod import KILLER, POISON, PuppetPod
from turnout.v1 import link_pb2 as pb
from turnout.v1 import link_pb2_grpc

TOLERANCE_S = 0.02  # for what fires on time, on a busy machine


async def waiting_rows(pod: PuppetPod, rows: int) -> bool:
    """Whether so many rows wait."""
    return await pod.metric("turnout_batcher_queue_rows") == rows


async def test_requests_gather_while_the_slot_is_busy_and_each_caller_gets_its_rows(pod: PuppetPod) -> None:
    async with pod.batching():
        (first,) = await occupy(pod)
        numbers = [pod.router.send(value, value + 1000) for value in range(20)]
        await settled(pod)
        pod.workers[0].release()

        assert await pod.router.values(first, *numbers) == [[0], *([n, n + 1000] for n in range(20))]
        assert pod.workers[0].sizes() == [1, 40]
        assert pod.router.replies[numbers[0]].batch_rows == 40
        assert len(pod.router.replies[numbers[0]].stages_ns) == 7


async def test_cancelling_one_of_three_in_a_running_batch_harms_no_neighbour(pod: PuppetPod) -> None:
    async with pod.batching():
        await occupy(pod)
        first, second, third = (pod.router.send(value) for value in (1, 2, 3))
        await settled(pod)
        pod.workers[0].release()
        pod.workers[0].holds = True
        await pod.workers[0].until(lambda: pod.workers[0].held)
        pod.router.cancel(second)
        await settled(pod)
        pod.workers[0].release()

        assert await pod.router.values(first, third) == [[1], [3]]

        await settled(pod)

        assert second not in pod.router.replies


async def test_what_is_cancelled_in_the_queue_never_reaches_a_worker(pod: PuppetPod) -> None:
    async with pod.batching():
        await occupy(pod)
        first, second = pod.router.send(1), pod.router.send(2)
        pod.router.cancel(first)
        await settled(pod)
        pod.workers[0].release()

        assert await pod.router.values(second) == [[2]]
        assert pod.workers[0].sizes() == [1, 1]


async def test_a_deadline_fires_on_time_while_the_worker_sleeps(pod: PuppetPod) -> None:
    async with pod.batching():
        (running,) = await occupy(pod)
        starved, sent_at = Starvation(pod.process.pid), asyncio.get_running_loop().time()
        queued = pod.router.send(1, deadline_us=100_000)
        patient = pod.router.send(2, queue_timeout_us=150_000)

        assert await pod.router.codes(queued, patient) == [DEADLINE_EXCEEDED, UNAVAILABLE]
        late_s = TOLERANCE_S + starved.seconds
        assert 0.1 <= pod.router.answered_at[queued] - sent_at < 0.1 + late_s
        assert 0.15 <= pod.router.answered_at[patient] - sent_at < 0.15 + late_s

        pod.workers[0].release()

        assert await pod.router.values(running) == [[0]]
        assert pod.workers[0].sizes() == [1]


async def test_one_bad_request_of_eight_fails_alone(pod: PuppetPod) -> None:
    async with pod.batching():
        await occupy(pod)
        numbers = [pod.router.send(POISON if value == 5 else value) for value in range(8)]
        await settled(pod)
        pod.workers[0].release()
        bad = numbers.pop(5)

        assert await pod.router.values(*numbers) == [[0], [1], [2], [3], [4], [6], [7]]
        assert await pod.router.codes(bad) == [INTERNAL]
        assert pod.router.replies[bad].message == "row 0 is poison"
        assert len(pod.workers[0].batches) <= 2 + 3 + 2


async def test_after_a_death_the_innocent_are_answered_and_the_killer_is_quarantined(pod: PuppetPod) -> None:
    async with pod.batching():
        await occupy(pod)
        numbers = [pod.router.send(value) for value in (1, KILLER, 2)]
        await settled(pod)
        pod.workers[0].release()
        first, killer, second = numbers

        assert await pod.router.values(first, second) == [[1], [2]]
        assert await pod.router.codes(killer) == [INTERNAL]
        assert "twice" in pod.router.replies[killer].message

        launches = len(pod.workers[0].batches)
        again = pod.router.send(KILLER)

        assert await pod.router.codes(again) == [INTERNAL]
        assert len(pod.workers[0].batches) == launches


async def test_a_dead_worker_that_stays_away_leaves_nobody_waiting_for_more_than_a_second(pod: PuppetPod) -> None:
    async with pod.batching():
        (running,) = await occupy(pod)
        waiting = pod.router.send(1)
        await settled(pod)
        await pod.workers[0].server.close()

        assert await pod.router.codes(running, waiting) == [INTERNAL, UNAVAILABLE]
        assert pod.router.replies[running].executed == pb.EXECUTED_MAYBE
        assert pod.router.replies[waiting].executed == pb.EXECUTED_NO
        assert await pod.until_endpoints(0) == {}


async def test_a_model_that_returns_the_wrong_rows_fails_its_batch_and_the_batcher_lives_on(pod: PuppetPod) -> None:
    async with pod.batching():
        pod.workers[0].rows_short = 1
        bad = pod.router.send(1, 2)

        assert await pod.router.codes(bad) == [INTERNAL]

        pod.workers[0].rows_short = 0

        assert await pod.router.values(pod.router.send(3)) == [[3]]


async def test_a_full_queue_refuses_at_once_and_its_spec_is_applied_live(pod: PuppetPod) -> None:
    await pod.client.put("models/echo", b'{"batching": {"max_batch_size": 2, "max_queue_size": 3}}')
    async with pod.batching():
        await occupy(pod)
        numbers = [pod.router.send(value) for value in range(4)]

        assert await pod.router.codes(numbers[3]) == [UNAVAILABLE]
        assert "3 of 3 rows wait" in pod.router.replies[numbers[3]].message
        assert pod.router.replies[numbers[3]].retry_after_us > 0

        told = len(pod.router.serving)
        await pod.client.put("models/echo", b'{"batching": {"max_batch_size": 8, "max_queue_size": 100}}')
        await pod.router.until(lambda: len(pod.router.serving) > told)
        more = [pod.router.send(value) for value in range(4, 8)]
        await settled(pod)
        pod.workers[0].release()

        assert await pod.router.values(*numbers[:3], *more) == [[0], [1], [2], [4], [5], [6], [7]]
        assert pod.workers[0].sizes() == [1, 7]


async def test_a_bad_spec_is_said_in_status_and_the_last_good_one_stays(pod: PuppetPod) -> None:
    await pod.client.put("models/echo", b'{"batching": {"max_batch_size": 2}}')
    async with pod.batching():
        await pod.client.put("models/echo", b'{"batching": {"max_batch": 9}}')
        await pod.process.logged("config_refused", reason="batching.max_batch: unknown field")

        async def said() -> bool:
            entries = (await pod.client.list("status/batcher/")).entries.values()
            return any(b"batching.max_batch: unknown field" in entry.value for entry in entries)

        await until("the refusal in status/", said)

        assert pod.router.serving[-1].models[0].max_batch_rows == 2


async def test_sigterm_answers_what_is_in_and_refuses_the_rest(pod: PuppetPod) -> None:
    async with pod.batching():
        await pod.until_endpoints(1)
        (running,) = await occupy(pod)
        waiting = pod.router.send(1)
        await settled(pod)
        pod.process.signal(signal.SIGTERM)
        await pod.router.until(lambda: pod.router.is_drained)

        assert await pod.until_endpoints(0) == {}

        late = [pod.router.send(2)]
        while not any(number in pod.router.replies for number in late):
            await asyncio.sleep(0.01)  # it gives its callers a moment to look elsewhere
            late.append(pod.router.send(2))

        assert {pod.router.replies[number].code for number in late if number in pod.router.replies} == {UNAVAILABLE}

        pod.workers[0].release()

        assert await pod.router.values(running, waiting) == [[0], [1]]
        assert set(await pod.router.codes(*late)) <= {OK, UNAVAILABLE}
        assert await pod.process.exit_code() == 0


async def test_a_drain_ends_in_time_also_when_the_worker_hangs(pod: PuppetPod) -> None:
    async with pod.batching(DRAIN_S="0.5"):
        (running,) = await occupy(pod)
        waiting = pod.router.send(1)
        await settled(pod)
        pod.process.signal(signal.SIGTERM)

        assert await pod.router.codes(running, waiting) == [INTERNAL, UNAVAILABLE]
        assert await pod.process.exit_code() == 0


async def test_any_grpc_client_can_talk_to_the_link(pod: PuppetPod) -> None:
    async with pod.batching(), own_channel(await pod.process.address("link")) as channel:
        call = link_pb2_grpc.LinkStub(channel).Open()
        await call.write(pb.Frame(hello=pb.Hello(service="router", instance="stranger", protocol=1)))
        await call.write(pb.Frame(requests=[ints(7, [1, 2]), ints(8, [3])]))
        hello: list[pb.Hello] = []
        serving: list[pb.Serving] = []
        replies: list[pb.Reply] = []
        async with asyncio.timeout(10):
            while len(replies) < 2:
                frame = await call.read()
                hello += [frame.hello] * frame.HasField("hello")
                serving += [frame.serving] * frame.HasField("serving")
                replies += frame.replies

        assert hello[0].service == "batcher"
        assert serving[0].models[0].signature.inputs[0].name == "x"
        assert {reply.id: numbers_of(reply.outputs[0].data) for reply in replies} == {7: [1, 2], 8: [3]}

        call.cancel()


async def test_a_caller_that_goes_away_leaves_nothing_behind(pod: PuppetPod) -> None:
    async with pod.batching(), own_channel(await pod.process.address("link")) as channel:
        await occupy(pod)
        call = link_pb2_grpc.LinkStub(channel).Open()
        await call.write(pb.Frame(hello=pb.Hello(service="router", instance="stranger", protocol=1)))
        await call.write(pb.Frame(requests=[ints(1, [5]), ints(2, [6])]))
        await until("both wait", lambda: waiting_rows(pod, 2))
        call.cancel()
        await until("both are gone", lambda: waiting_rows(pod, 0))
        mine = pod.router.send(7)
        await settled(pod)
        pod.workers[0].release()

        assert await pod.router.values(mine) == [[7]]
        assert pod.workers[0].sizes() == [1, 1]
