"""What the batcher says of its pod: endpoints in etcd, Serving on its links, its own readiness and metrics."""

import aiohttp

from services.core.registry import ServiceRecord
from tests.support.puppet_pod import PuppetPod
from turnout.v1 import runtime_pb2


async def fetch(pod: PuppetPod, path: str) -> tuple[int, str]:
    address = await pod.process.address("metrics")
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}{path}") as response:
        return response.status, await response.text()


async def test_an_endpoint_is_there_once_the_first_instance_is_ready_and_its_link_open(pod: PuppetPod) -> None:
    worker = await pod.add_worker()
    await pod.runtime.start()
    pod.runtime.say(worker, state=runtime_pb2.LOADING)
    async with pod.process_only(POD="pod-7"):
        await pod.process.logged("runtime_found")

        assert await pod.endpoints() == {}
        assert (await fetch(pod, "/ready"))[0] == 503

        pod.runtime.say(worker, slots=2)
        ((key, endpoint),) = (await pod.until_endpoints(1)).items()

        assert key.startswith("endpoints/echo/1/pod-7-")
        assert endpoint.address == await pod.process.address("link")
        assert endpoint.local_socket == str(pod.run_dir / "batcher.sock")
        assert (endpoint.digest, endpoint.slots, endpoint.max_batch_rows) == ("sha256:1", 2, 64)
        assert endpoint.host
        assert (await fetch(pod, "/ready"))[0] == 200

        listing = await pod.client.list("services/batcher/")
        records = [ServiceRecord.parse(entry.value) for entry in listing.entries.values()]
        assert [(record.address, record.local_socket) for record in records] == [
            (endpoint.address, endpoint.local_socket)
        ]


async def test_when_the_control_stream_drops_endpoints_go_and_open_links_serve_on(pod: PuppetPod) -> None:
    async with pod.batching():
        await pod.until_endpoints(1)
        await pod.runtime.stop()
        await pod.until_endpoints(0)

        assert await pod.router.values(pod.router.send(5)) == [[5]]

        await pod.runtime.start()
        await pod.until_endpoints(1)


async def test_an_instance_that_drains_finishes_its_batch_and_gets_no_more(pod: PuppetPod) -> None:
    async with pod.batching():
        old = pod.workers[0]
        old.holds = True
        running = pod.router.send(1)
        await old.until(lambda: old.held)
        new = await pod.add_worker()
        pod.runtime.say(new)
        await new.until(lambda: new.server.links)

        assert await pod.router.values(*(pod.router.send(value) for value in (2, 3))) == [[2], [3]]

        old.release()

        assert await pod.router.values(running) == [[1]]
        assert old.sizes() == [1]

        await old.until(lambda: not old.server.links)

        await pod.until_endpoints(1)


async def test_an_instance_that_drains_serves_on_until_its_successors_link_is_open(pod: PuppetPod) -> None:
    async with pod.batching():
        await pod.until_endpoints(1)
        old, new, told = pod.workers[0], await pod.add_worker(), len(pod.router.serving)
        await new.server.close()
        pod.runtime.say(new)
        await pod.process.logged("instance_dialled", instance=new.id)
        old.server.drain("let go")

        assert await pod.router.values(*(pod.router.send(value) for value in (1, 2))) == [[1], [2]]
        assert all(serving.models for serving in pod.router.serving[told:])

        await new.server.start(new.server.address)
        await old.until(lambda: not old.server.links)

        assert await pod.router.values(pod.router.send(3)) == [[3]]
        assert new.sizes() == [1]
        assert all(serving.models for serving in pod.router.serving[told:])


async def test_a_version_whose_instances_went_is_no_longer_served(pod: PuppetPod) -> None:
    async with pod.batching():
        await pod.until_endpoints(1)
        pod.runtime.say()
        await pod.until_endpoints(0)
        await pod.router.until(lambda: not pod.router.serving[-1].models)


async def test_the_unix_socket_is_the_same_link(pod: PuppetPod) -> None:
    async with pod.batching():
        await pod.call(f"unix:{pod.run_dir / 'batcher.sock'}")

        assert await pod.router.values(pod.router.send(1)) == [[1]]


async def test_every_answer_is_counted_by_its_status(pod: PuppetPod) -> None:
    async with pod.batching():
        await pod.router.values(*(pod.router.send(value) for value in range(5)))
        await pod.router.answers(pod.router.send(*range(2000)))
        _, text = await fetch(pod, "/metrics")

        assert 'turnout_batcher_requests_total{code="0",model="echo",version="1"} 5.0' in text
        assert 'turnout_batcher_requests_total{code="3",model="echo",version="1"} 1.0' in text
        assert 'turnout_batcher_refused_total{model="echo",reason="invalid",version="1"} 1.0' in text
        assert "turnout_batcher_batch_rows_sum" in text
        assert 'turnout_batcher_stage_seconds_total{model="echo",stage="queue",version="1"}' in text
