"""A router as a real process, a real etcd, and callers of its gRPC and REST doors."""

import asyncio
import io
import json
import secrets
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import grpc.aio
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from inference import grpc_service_pb2 as pb
from inference import grpc_service_pb2_grpc
from services.chassis.etcd import EtcdClient, EtcdProcess
from services.core import keys
from services.core.registry import ConfigStatus, ServiceRecord
from tests.support.channels import own_channel
from tests.support.puppets import Fields, PuppetBatcher, echo, floats
from tests.support.service_process import ServiceProcess, started
from turnout.v1 import link_pb2

TIMEOUT_S = 20.0
MODEL_INFER = "/inference.GRPCInferenceService/ModelInfer"
FRONTS = ("native", "aio")
Reply = Callable[[link_pb2.Request], Fields]


class Answer(NamedTuple):
    """What a caller got, by either protocol."""

    code: grpc.StatusCode
    message: str = ""
    response: pb.ModelInferResponse | None = None
    trailing: Mapping[str, Any] = {}
    took_s: float = 0.0

    def retry_ms(self) -> int | None:
        """The pause that RetryInfo in the status details asks for."""
        details = Status.FromString(self.trailing.get("grpc-status-details-bin", b"")).details
        info = RetryInfo()
        return info.retry_delay.ToMilliseconds() if details and details[0].Unpack(info) else None


class RestAnswer(NamedTuple):
    status: int
    body: Any
    headers: Mapping[str, str]
    took_s: float


def infer_request(model: str, *rows: float, version: str = "", **fields: Any) -> pb.ModelInferRequest:
    """One input x of FP32 [n, 2]; each of `rows` stands twice."""
    values = [value for row in rows for value in (row, row)]
    tensor = pb.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=[len(rows), 2])
    return pb.ModelInferRequest(
        model_name=model, model_version=version, inputs=[tensor], raw_input_contents=[floats(*values)], **fields
    )


def rest_request(*rows: float, **fields: Any) -> dict[str, Any]:
    data = [value for row in rows for value in (row, row)]
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [len(rows), 2], "data": data}], **fields}


async def until(what: str, check: Callable[[], Awaitable[Any]], timeout_s: float = TIMEOUT_S) -> Any:
    """The first truthy answer of `check`, asked again and again."""
    deadline = time.monotonic() + timeout_s
    while not (found := await check()):
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:g} s"
        await asyncio.sleep(0.02)
    return found


class RouterMesh:
    """One router and what it needs; `router` may be stopped and started again."""

    def __init__(self, etcd: EtcdProcess, folder: Path, stack: AsyncExitStack, settings: Mapping[str, object]) -> None:
        self.server = etcd
        self.etcd = EtcdClient([etcd.endpoint])
        self.folder = folder
        self.router: ServiceProcess
        self.channel: Any
        self.grpc_address = ""
        self.rest_address = ""
        self.metrics_address = ""
        self.scrape_headers: Mapping[str, str] = {}  # of who reads metrics
        self._stack = stack
        self.environ = {
            "TURNOUT_ROUTER_ETCD_ENDPOINTS": etcd.endpoint,
            "TURNOUT_ROUTER_DATA_DIR": str(folder),
            "TURNOUT_ROUTER_GRPC_ADDRESS": "127.0.0.1:0",
            "TURNOUT_ROUTER_REST_ADDRESS": "127.0.0.1:0",
            "TURNOUT_ROUTER_METRICS_ADDRESS": "127.0.0.1:0",
            "TURNOUT_ROUTER_MANAGEMENT_ADDRESS": "127.0.0.1:0",
            **{f"TURNOUT_ROUTER_{name.upper()}": str(value) for name, value in settings.items()},
        }

    async def start_router(self) -> None:
        """Returns when it listens; it may not be ready."""
        self.router = await self._stack.enter_async_context(started("services.router", self.environ))
        self.grpc_address = await self.router.address("grpc")
        self.rest_address = await self.router.address("rest")
        self.metrics_address = await self.router.address("metrics")
        self.channel = own_channel(self.grpc_address, max_receive_message_length=-1, max_send_message_length=-1)
        self.stub = grpc_service_pb2_grpc.GRPCInferenceServiceStub(self.channel)
        self._infer = self.channel.unary_unary(MODEL_INFER)
        self._stack.push_async_callback(self.channel.close)

    async def stop_router(self) -> int:
        self.router.signal(signal.SIGTERM)
        return await self.router.exit_code()

    async def batcher(self, name: str = "pod") -> PuppetBatcher:
        """A batcher that lives as long as the mesh."""
        puppet = PuppetBatcher(f"{name}-{secrets.token_hex(3)}")
        return await self._stack.enter_async_context(puppet)

    async def put(self, key: str, value: Mapping[str, Any] | bytes) -> int:
        return await self.etcd.put(key, value if isinstance(value, bytes) else json.dumps(value).encode())

    async def model(self, *versions: str, spec: Mapping[str, Any] | None = None, **served: Any) -> "Model":
        """A model of its own name that a batcher of its own serves, once the router can route to it."""
        model = Model(self, f"m-{secrets.token_hex(4)}", await self.batcher())
        await self.put(f"models/{model.name}", spec or {})
        await model.batcher.serve(self.etcd, model.name, *(versions or ("1",)), **served)
        for version in versions or ("1",):
            await self.ready(model.name, version)
        return model

    async def ready(self, model: str, version: str = "", timeout_s: float = TIMEOUT_S) -> None:
        async def is_ready() -> bool:
            try:
                await self.stub.ModelReady(pb.ModelReadyRequest(name=model, version=version), timeout=TIMEOUT_S)
            except grpc.aio.AioRpcError:
                return False
            return True

        await until(f"{model}/{version} is ready", is_ready, timeout_s)

    async def call(
        self,
        request: pb.ModelInferRequest | bytes,
        *,
        timeout_s: float | None = TIMEOUT_S,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> Answer:
        """ModelInfer, whatever comes of it."""
        payload = request if isinstance(request, bytes) else request.SerializeToString()
        began = time.perf_counter()
        call = self._infer(payload, timeout=timeout_s, metadata=metadata)
        try:
            response = pb.ModelInferResponse.FromString(await call)
        except grpc.aio.AioRpcError as error:
            ended: dict[str, Any] = dict(error.trailing_metadata() or ())
            return Answer(error.code(), error.details() or "", None, ended, time.perf_counter() - began)
        trailing: dict[str, Any] = dict(await call.trailing_metadata() or ())
        return Answer(grpc.StatusCode.OK, "", response, trailing, time.perf_counter() - began)

    async def rest(
        self, path: str, body: Any = None, *, method: str = "POST", headers: Mapping[str, str] | None = None
    ) -> RestAnswer:
        data: Any = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        if data and len(data) > 1 << 20:
            data = io.BytesIO(data)
        began = time.perf_counter()
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)) as session,
            session.request(method, f"http://{self.rest_address}{path}", data=data, headers=headers) as answer,
        ):
            text = await answer.text()
            took_s = time.perf_counter() - began
            return RestAnswer(answer.status, json.loads(text) if text else None, answer.headers, took_s)

    async def record(self) -> ServiceRecord:
        listing = await self.etcd.list(f"{keys.SERVICES}router/")
        return next(ServiceRecord.parse(entry.value) for entry in listing.entries.values())

    async def status(self) -> ConfigStatus:
        """What the router says in status/ of the keys it follows."""
        listing = await self.etcd.list(f"{keys.STATUS}router/")
        found = [entry.value for key, entry in listing.entries.items() if key.endswith("/routes")]
        return ConfigStatus.parse(found[-1]) if found else ConfigStatus()

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of the series of that name with those labels."""
        url = f"http://{self.metrics_address}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url, headers=self.scrape_headers) as answer:
            assert answer.status == 200
            lines = (await answer.text()).splitlines()
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        series = [line for line in lines if line.split("{")[0].split(" ")[0] == name]
        return sum(float(line.rpartition(" ")[2]) for line in series if all(each in line for each in wanted))


class Model:
    """A model and the batcher that serves it."""

    def __init__(self, mesh: RouterMesh, name: str, batcher: PuppetBatcher) -> None:
        self.mesh = mesh
        self.name = name
        self.batcher = batcher

    async def second_batcher(self, *versions: str, answer: Reply = echo) -> PuppetBatcher:
        """Another replica; returns once the router has sent it something."""
        other = await self.mesh.batcher()
        other.answer = answer
        await other.serve(self.mesh.etcd, self.name, *(versions or ("1",)))

        async def is_used() -> bool:
            await asyncio.gather(*(self.mesh.call(infer_request(self.name, 0.0)) for _ in range(4)))
            return bool(other.requests)

        await until("the second replica is used", is_used)
        other.requests.clear()
        self.batcher.requests.clear()
        return other

    async def route(self, value: Mapping[str, Any], *, settled: bool = True) -> int:
        """Write the route, and return once the router has it in effect."""
        revision = await self.mesh.put(f"routes/{self.name}", value)

        async def is_in_effect() -> bool:
            return (await self.mesh.status()).accepted.get(f"routes/{self.name}") == revision

        if settled:
            await until(f"route {value} is in effect", is_in_effect)
        return revision

    async def call(self, *rows: float, version: str = "", **options: Any) -> Answer:
        return await self.mesh.call(infer_request(self.name, *(rows or (1.0,)), version=version), **options)

    async def rest(self, body: Any, *, version: str = "", headers: Mapping[str, str] | None = None) -> RestAnswer:
        part = f"/versions/{version}" if version else ""
        return await self.mesh.rest(f"/v2/models/{self.name}{part}/infer", body, headers=headers)


@asynccontextmanager
async def router_mesh(folder: Path, front: str, **settings: object) -> AsyncIterator[RouterMesh]:
    async with AsyncExitStack() as stack:
        etcd = await stack.enter_async_context(EtcdProcess(folder / "etcd", fsync=False))
        mesh = RouterMesh(etcd, folder / "data", stack, {"native_front": front == "native", **settings})
        stack.push_async_callback(mesh.etcd.close)
        await mesh.start_router()
        yield mesh
