"""A comparator as a real process, a real etcd, a router's link to it, and a candidate's batcher of made-up answers."""

import asyncio
import shutil
import struct
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from services.chassis.etcd import EtcdClient, EtcdProcess
from services.chassis.link import Link, LinkClient, LinkServer, listen
from services.core import keys
from services.core.registry import Endpoint
from tests.support.channels import own_channel
from tests.support.service_process import ServiceProcess, started
from turnout.v1 import link_pb2, shadow_pb2, shadow_pb2_grpc
from turnout.v1.tensor_pb2 import Tensor, TensorSpec

TIMEOUT_S = 20.0
MODEL, SERVED, CANDIDATE = "digits", "1", "2"
Answer = Callable[[link_pb2.Request], dict | None]


def tensor(name: str, *values: float) -> Tensor:
    return Tensor(name=name, datatype="FP32", shape=[len(values), 1], data=struct.pack(f"<{len(values)}f", *values))


def mirror(request_id: str, *scores: float, model: str = MODEL, padding_bytes: int = 0) -> shadow_pb2.Mirror:
    """A served request of one row a score; the candidate below answers it with its inputs."""
    return shadow_pb2.Mirror(
        model=model,
        served_version=SERVED,
        served_digest="sha-1",
        candidate_version=CANDIDATE,
        request_id=request_id,
        rows=len(scores),
        inputs=[tensor("score", *scores), Tensor(name="padding", data=bytes(padding_bytes))],
        outputs=[tensor("score", *scores)],
        served_compute_ns=1_000_000,
    )


def echo(request: link_pb2.Request) -> dict:
    return {"outputs": [request.inputs[0]], "digest": "sha-2", "stages_ns": [0, 0, 0, 0, 2_000_000, 0, 0]}


def silence(_request: link_pb2.Request) -> None:
    return None


async def until(condition: Callable[[], bool]) -> None:
    """Return once `condition` holds."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            if condition():
                return
            await asyncio.sleep(0.005)


class Candidate:
    """The batcher of version CANDIDATE: answers as `answer` says; None = never."""

    def __init__(self) -> None:
        self.answer: Answer = echo
        self.requests: list[link_pb2.Request] = []
        self.asked = asyncio.Event()

    def opened(self, link: Link) -> None:
        signature = {"outputs": [TensorSpec(name="score", datatype="FP32", shape=[-1, 1])]}
        served = [
            link_pb2.Served(model=model, version=CANDIDATE, digest="sha-2", signature=signature, slots=1)
            for model in (MODEL, "probe")
        ]
        link.frame_for(200).serving.CopyFrom(link_pb2.Serving(models=served))

    def received(self, link: Link, frame: link_pb2.Frame) -> None:
        for request in frame.requests:
            fields = self.answer(request)
            if request.model == MODEL:
                self.requests.append(request)
                self.asked.set()
            if fields is not None:
                reply = link_pb2.Reply(id=request.id, final=True, **fields)
                link.frame_for(reply.ByteSize()).replies.append(reply)

    def closed(self, link: Link, reason: str) -> None:
        pass


class Router:
    """The sending end; nothing comes back on it but Hello and Drain."""

    def __init__(self, address: str) -> None:
        self.open = asyncio.Event()
        self.drained = asyncio.Event()
        self.link: Link | None = None
        self.client = LinkClient(address, self, link_pb2.Hello(service="router", instance="router-1", protocol=1))

    def opened(self, link: Link) -> None:
        self.link = link
        self.open.set()

    def received(self, _link: Link, frame: link_pb2.Frame) -> None:
        if frame.HasField("drain"):
            self.drained.set()

    def closed(self, _link: Link, _reason: str) -> None:
        self.link = None
        self.open.clear()

    def send(self, *mirrors: shadow_pb2.Mirror) -> None:
        for one in mirrors:
            self.link.frame_for(one.ByteSize() + 8).mirrors.append(one)


class Mesh:
    """Everything around the comparator; `start` begins one, again after a kill."""

    def __init__(self, etcd: EtcdProcess, folder: Path, stack: AsyncExitStack) -> None:
        self.server = etcd
        self.etcd = EtcdClient([etcd.endpoint])
        self.candidate = Candidate()
        self.batcher: LinkServer
        self.router: Router
        self.shadow: ServiceProcess
        self.socket = Path(tempfile.mkdtemp(prefix="t-")) / "shadow.sock"
        self._stack = stack
        stack.callback(shutil.rmtree, self.socket.parent, ignore_errors=True)
        self._environ = {
            "TURNOUT_SHADOW_ETCD_ENDPOINTS": etcd.endpoint,
            "TURNOUT_SHADOW_DATA_DIR": str(folder),
            "TURNOUT_SHADOW_LINK_SOCKET": str(self.socket),
        }

    async def start_batcher(self) -> None:
        hello = link_pb2.Hello(service="batcher", instance="pod-0", protocol=1)
        self.batcher = await listen("127.0.0.1:0", self.candidate, hello)
        self._stack.push_async_callback(self.batcher.close)
        endpoint = Endpoint(
            address=self.batcher.address, digest="sha-2", signature_hash="x", slots=1, max_batch_rows=64
        )
        await self.etcd.put(keys.endpoint(MODEL, CANDIDATE, "pod-0"), endpoint.dump())

    async def start(self, *, link_address: str = "127.0.0.1:0", **settings: object) -> None:
        """Run a comparator, dial it, and wait until it reaches the candidate."""
        extra = {f"TURNOUT_SHADOW_{name.upper()}": str(value) for name, value in settings.items()}
        environ = self._environ | extra | {"TURNOUT_SHADOW_LINK_ADDRESS": link_address}
        self.shadow = await self._stack.enter_async_context(started("services.shadow", environ))
        await self.dial(await self.shadow.address("link"))
        probes = 0
        async with asyncio.timeout(TIMEOUT_S):
            while not any(found.compared for found in await self.report("probe")):
                probes += 1
                self.router.send(mirror(f"probe-{probes}", 0.0, model="probe"))
                await asyncio.sleep(0.02)

    async def dial(self, address: str) -> None:
        self.router = Router(address)
        self.router.client.start()
        self._stack.push_async_callback(self.router.client.close)
        await asyncio.wait_for(self.router.open.wait(), TIMEOUT_S)

    async def report(self, model: str = MODEL) -> list[shadow_pb2.CandidateReport]:
        async with own_channel(await self.shadow.address("link")) as channel:
            call = shadow_pb2_grpc.ShadowStub(channel).Report
            return list((await call(shadow_pb2.ReportRequest(model=model), timeout=TIMEOUT_S)).candidates)

    async def settled(self, mirrored: int, *, pending: int = 0) -> shadow_pb2.CandidateReport:
        """The report of MODEL once so many mirrors came in and all but `pending` are compared, failed or dropped."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                for found in await self.report():
                    done = found.compared + sum(found.errors.values()) + sum(found.dropped.values())
                    if found.mirrored == mirrored and mirrored - done == pending:
                        return found
                await asyncio.sleep(0.02)


@asynccontextmanager
async def mesh_in(folder: Path) -> AsyncIterator[Mesh]:
    async with AsyncExitStack() as stack:
        etcd = await stack.enter_async_context(EtcdProcess(folder / "etcd", fsync=False))
        mesh = Mesh(etcd, folder / "data", stack)
        stack.push_async_callback(mesh.etcd.close)
        await mesh.start_batcher()
        yield mesh
