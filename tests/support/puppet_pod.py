"""A batcher as a real process, in a pod whose runtime and workers are puppets of the test, called over real links."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import aiohttp
import grpc.aio

from services.chassis.etcd import EtcdClient, EtcdProcess
from services.chassis.link import Link, LinkClient, LinkServer, listen
from services.core import keys
from services.core.errors import INTERNAL
from services.core.registry import Endpoint
from tests.support.batching import ints, numbers_of
from tests.support.service_process import ServiceProcess, started
from turnout.v1 import link_pb2 as pb
from turnout.v1 import runtime_pb2, runtime_pb2_grpc, tensor_pb2

POISON, KILLER = 666, 999  # a batch with the one raises, with the other ends its worker
TIMEOUT_S = 20.0
SPEC = tensor_pb2.TensorSpec(name="x", datatype="INT32", shape=[-1])
SIGNATURE = tensor_pb2.Signature(
    inputs=[SPEC], outputs=[tensor_pb2.TensorSpec(name="y", datatype="INT32", shape=[-1])], batches=True
)


class Changes:
    """Something a test waits upon."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def notify(self) -> None:
        self._changed.set()

    async def until(self, condition: Callable[[], Any], timeout_s: float = TIMEOUT_S) -> None:
        async with asyncio.timeout(timeout_s):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


class PuppetWorker(Changes):
    """A worker's link: echoes, or holds batches until told."""

    def __init__(self, number: str) -> None:
        super().__init__()
        self.id = number
        self.holds = False
        self.rows_short = 0  # rows missing from what it returns
        self.batches: list[pb.Request] = []  # all it ever got
        self.held: list[pb.Request] = []
        self.server: LinkServer

    def opened(self, link: Link) -> None:
        self.notify()

    def received(self, link: Link, frame: pb.Frame) -> None:
        for request in frame.requests:
            self.batches.append(request)
            if self.holds:
                self.held.append(request)
            else:
                self._act(link, request)
        self.notify()

    def closed(self, link: Link, reason: str) -> None:
        self.held.clear()
        self.notify()

    def release(self) -> None:
        """Answer what is held, and hold no more."""
        self.holds = False
        held, self.held = self.held, []
        for request in held:
            for link in self.server.links:
                self._act(link, request)

    def die(self) -> None:
        """As a killed process: the link breaks; it is back at once."""
        for link in self.server.links:
            link.protocol.abort("killed")

    def sizes(self) -> list[int]:
        return [request.rows for request in self.batches]

    def _act(self, link: Link, request: pb.Request) -> None:
        values = numbers_of(request.inputs[0].data)
        if KILLER in values:
            link.protocol.abort("killed")
            return
        reply = link.frame_for(len(request.inputs[0].data) + 100).replies.add(
            id=request.id, executed=pb.EXECUTED_YES, final=True
        )
        if POISON in values:
            reply.code, reply.message = INTERNAL, f"row {values.index(POISON)} is poison"
            return
        reply.digest = "sha256:1"
        reply.stages_ns.extend([1, 2, 3])
        rows = request.rows - self.rows_short
        reply.outputs.add(name="y", datatype="INT32", shape=[rows], data=request.inputs[0].data[: 4 * rows])


class PuppetRuntime(runtime_pb2_grpc.RuntimeControlServicer):
    """Tells the batcher what the test says."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._server: grpc.aio.Server | None = None
        self._watchers: set[asyncio.Queue[runtime_pb2.RuntimeState]] = set()
        self.state = runtime_pb2.RuntimeState(runtime="puppet")

    async def Watch(
        self, request: runtime_pb2.WatchRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[runtime_pb2.RuntimeState]:
        queue: asyncio.Queue[runtime_pb2.RuntimeState] = asyncio.Queue()
        self._watchers.add(queue)
        try:
            yield self.state
            while True:
                yield await queue.get()
        finally:
            self._watchers.discard(queue)

    def say(self, *workers: PuppetWorker, state: int = runtime_pb2.READY, slots: int = 1) -> None:
        """The whole state: these instances of echo/1."""
        self.state = runtime_pb2.RuntimeState(runtime="puppet")
        for worker in workers:
            self.state.instances.add(
                id=worker.id,
                model="echo",
                version="1",
                digest="sha256:1",
                state=state,  # type: ignore[arg-type]
                data_socket=worker.server.address.removeprefix("unix:"),
                slots=slots,
                signature=SIGNATURE,
            )
        for queue in self._watchers:
            queue.put_nowait(self.state)

    async def start(self) -> None:
        self._server = grpc.aio.server()
        runtime_pb2_grpc.add_RuntimeControlServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self._socket}")
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)
            self._server = None


class PuppetRouter(Changes):
    """Sends requests over a link and keeps the answers."""

    def __init__(self) -> None:
        super().__init__()
        self.link: Link | None = None
        self.replies: dict[int, pb.Reply] = {}
        self.answered_at: dict[int, float] = {}  # on the loop's clock
        self.serving: list[pb.Serving] = []
        self.is_drained = False
        self._next = 1

    def opened(self, link: Link) -> None:
        self.link = link
        self.notify()

    def received(self, link: Link, frame: pb.Frame) -> None:
        for reply in frame.replies:
            assert reply.id not in self.replies, f"request {reply.id} was answered twice"
            self.replies[reply.id] = reply
            self.answered_at[reply.id] = asyncio.get_running_loop().time()
        if frame.HasField("serving"):
            self.serving.append(frame.serving)
        if frame.HasField("drain"):
            self.is_drained = True
        self.notify()

    def closed(self, link: Link, reason: str) -> None:
        self.link = None
        self.notify()

    def send(self, *values: int, **fields: Any) -> int:
        """One request with a row of each value; its id."""
        number, self._next = self._next, self._next + 1
        assert self.link is not None
        self.link.frame_for(4 * len(values) + 100).requests.add().CopyFrom(ints(number, values, **fields))
        return number

    def cancel(self, number: int) -> None:
        assert self.link is not None
        self.link.frame_for(16).cancels.append(number)

    async def answers(self, *numbers: int, timeout_s: float = TIMEOUT_S) -> list[pb.Reply]:
        await self.until(lambda: all(number in self.replies for number in numbers), timeout_s)
        return [self.replies[number] for number in numbers]

    async def values(self, *numbers: int) -> list[list[int]]:
        replies = await self.answers(*numbers)
        assert [reply.code for reply in replies] == [0] * len(numbers), replies
        return [numbers_of(reply.outputs[0].data) for reply in replies]

    async def codes(self, *numbers: int) -> list[int]:
        return [reply.code for reply in await self.answers(*numbers)]


class PuppetPod:
    """All of it. The batcher is started by `batching`; the runtime runs from the start, and says nothing yet."""

    def __init__(self, folder: Path, etcd: EtcdProcess) -> None:
        self.folder = folder
        self.etcd = etcd
        self.run_dir = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))
        self.client = EtcdClient([etcd.endpoint])
        self.runtime = PuppetRuntime(self.run_dir / "runtime.sock")
        self.workers: list[PuppetWorker] = []
        self.router = PuppetRouter()
        self.process: ServiceProcess
        self._link: LinkClient | None = None

    @asynccontextmanager
    async def batching(self, *, slots: int = 1, workers: int = 1, **settings: str) -> AsyncIterator[Self]:
        """A batcher with READY workers and a link of a router to it."""
        for _ in range(workers):
            await self.add_worker()
        await self.runtime.start()
        self.runtime.say(*self.workers, slots=slots)
        async with self.process_only(**settings):
            await self.call(await self.process.address("link"))
            await self.router.until(lambda: self.router.serving and self.router.serving[-1].models[:1])
            yield self

    @asynccontextmanager
    async def process_only(self, **settings: str) -> AsyncIterator[Self]:
        """The batcher's process alone."""
        defaults = {
            "ETCD_ENDPOINTS": self.etcd.endpoint,
            "DATA_DIR": str(self.folder / "data"),
            "RUN_DIR": str(self.run_dir),
            "LINK_ADDRESS": "127.0.0.1:0",
            "METRICS_ADDRESS": "127.0.0.1:0",
            "PARENT_DEATH": "true",
        } | settings
        async with started(
            "services.batcher", {f"TURNOUT_BATCHER_{name}": value for name, value in defaults.items()}
        ) as self.process:
            yield self

    async def call(self, address: str) -> None:
        """Dial the batcher as a router would."""
        self._link = LinkClient(address, self.router, pb.Hello(service="router", instance="puppet", protocol=1))
        self._link.start()
        await self.router.until(lambda: self.router.link)

    async def hang_up(self) -> None:
        """End the router's link."""
        if self._link is not None:
            await self._link.close()
            self._link = None
        await self.router.until(lambda: self.router.link is None)

    async def add_worker(self) -> PuppetWorker:
        worker = PuppetWorker(f"w{len(self.workers)}")
        hello = pb.Hello(service="runtime", instance=worker.id, protocol=1)
        worker.server = await listen(f"unix:{self.run_dir / worker.id}.sock", worker, hello)
        self.workers.append(worker)
        return worker

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of the batcher's series of that name with those labels."""
        address = await self.process.address("metrics")
        async with aiohttp.ClientSession() as session, session.get(f"http://{address}/metrics") as answer:
            lines = (await answer.text()).splitlines()
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        series = [line for line in lines if line.split("{")[0].split(" ")[0] == name]
        return sum(float(line.rpartition(" ")[2]) for line in series if all(each in line for each in wanted))

    async def endpoints(self) -> dict[str, Endpoint]:
        listing = await self.client.list(keys.ENDPOINTS)
        return {key: Endpoint.parse(entry.value) for key, entry in listing.entries.items()}

    async def until_endpoints(self, count: int) -> dict[str, Endpoint]:
        async with asyncio.timeout(TIMEOUT_S):
            while len(endpoints := await self.endpoints()) != count:
                await asyncio.sleep(0.02)
        return endpoints

    async def close(self) -> None:
        if self._link is not None:
            await self._link.close()
        for worker in self.workers:
            await worker.server.close()
        await self.runtime.stop()
        await self.client.close()
        shutil.rmtree(self.run_dir, ignore_errors=True)
