"""A runtime as a real process, its etcd, its control stream, and a batcher's links to its workers."""

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self

import grpc.aio
import joblib
import numpy as np

from services.chassis.etcd import EtcdClient, EtcdProcess
from services.chassis.link import PROTOCOL, Link, LinkClient
from services.core import arrays
from services.core.registry import Inventory
from tests.support.channels import own_channel
from tests.support.service_process import ServiceProcess, started
from turnout.v1 import link_pb2, runtime_pb2, runtime_pb2_grpc
from turnout.v1.tensor_pb2 import Tensor

TIMEOUT_S = 40.0
LOADING, READY, DRAINING, BACKOFF, FAILED = (
    runtime_pb2.LOADING,
    runtime_pb2.READY,
    runtime_pb2.DRAINING,
    runtime_pb2.BACKOFF,
    runtime_pb2.FAILED,
)


class Pod:
    """One runtime; `models` is its repository, `state` the latest word of its control stream."""

    def __init__(self, folder: Path, etcd: EtcdProcess) -> None:
        self.models = folder / "models"
        self.models.mkdir(exist_ok=True)
        self.data = folder / "data"
        self.run_dir = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))
        self.client = EtcdClient([etcd.endpoint])
        self.state = runtime_pb2.RuntimeState()
        self.states_seen: list[tuple[str, int]] = []
        self.process: ServiceProcess
        self.settings = {
            "TURNOUT_RUNTIME_ETCD_ENDPOINTS": etcd.endpoint,
            "TURNOUT_RUNTIME_DATA_DIR": str(self.data),
            "TURNOUT_RUNTIME_RUN_DIR": str(self.run_dir),
            "TURNOUT_RUNTIME_REPOSITORY": self.models.as_uri(),
            "TURNOUT_RUNTIME_METRICS_ADDRESS": "127.0.0.1:0",
            "TURNOUT_RUNTIME_SCAN_S": "0.1",
            "TURNOUT_RUNTIME_SETTLE_S": "0.3",
            "TURNOUT_RUNTIME_QUIET_S": "0.3",
            "TURNOUT_RUNTIME_PARENT_DEATH": "true",
        }
        self._grown = asyncio.Condition()
        self._watch: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def running(self, **settings: str) -> AsyncIterator[Self]:
        """The runtime runs while inside."""
        extra = {f"TURNOUT_RUNTIME_{name.upper()}": value for name, value in settings.items()}
        async with started("services.runtime", self.settings | extra) as self.process:
            await self.process.address("control")
            self._watch = asyncio.create_task(self._follow())
            try:
                yield self
            finally:
                self._watch.cancel()
                with suppress(asyncio.CancelledError, grpc.aio.AioRpcError):
                    await self._watch

    async def close(self) -> None:
        await self.client.close()
        shutil.rmtree(self.run_dir, ignore_errors=True)

    # What operators do.

    async def put(self, key: str, value: Mapping[str, Any] | bytes) -> int:
        return await self.client.put(key, value if isinstance(value, bytes) else json.dumps(value).encode())

    def save(self, model: str, version: str, value: object) -> Path:
        """Put a pickled model into the repository, whole at once; gives the version's folder."""
        target = self.models / model / version
        incoming = target.with_name(f"{version}.incoming")
        incoming.mkdir(parents=True)
        joblib.dump(value, incoming / "model.joblib")
        if target.exists():
            shutil.rmtree(target)
        incoming.rename(target)
        return target

    # What the control stream says.

    async def until(self, what: str, check: Callable[[], Any], timeout_s: float = TIMEOUT_S) -> Any:
        """The first truthy answer of `check`, asked after each state; AssertionError if it never comes."""
        try:
            async with asyncio.timeout(timeout_s), self._grown:
                while not (answer := check()):
                    await self._grown.wait()
                return answer
        except TimeoutError:
            raise AssertionError(f"{what} never came; state {self.state}; log {self.process.lines[-30:]}") from None

    def find(self, model: str, version: str, state: int | None = None) -> runtime_pb2.Instance | None:
        for instance in self.state.instances:
            if (instance.model, instance.version) == (model, version) and state in (None, instance.state):
                return instance
        return None

    async def instance(
        self, model: str, version: str, state: int = READY, timeout_s: float = TIMEOUT_S
    ) -> runtime_pb2.Instance:
        """An instance in that state, once there is one."""
        found: runtime_pb2.Instance = await self.until(
            f"{model}/{version} in state {state}", lambda: self.find(model, version, state), timeout_s
        )
        return found

    async def gone(self, model: str, version: str) -> None:
        await self.until(f"the end of {model}/{version}", lambda: self.find(model, version) is None)

    async def inventory(self, check: Callable[[Inventory], Any]) -> Inventory:
        """The inventory in etcd, once `check` holds of it."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                listing = await self.client.list("status/runtime/")
                for key, entry in listing.entries.items():
                    if key.endswith("/inventory") and check(found := Inventory.parse(entry.value)):
                        return found
                await asyncio.sleep(0.05)

    async def _follow(self) -> None:
        async with own_channel(f"unix:{self.run_dir}/runtime.sock") as channel:
            stub = runtime_pb2_grpc.RuntimeControlStub(channel)
            async for state in stub.Watch(runtime_pb2.WatchRequest(), wait_for_ready=True):
                async with self._grown:
                    self.state = state
                    self.states_seen += [(each.version, each.state) for each in state.instances]
                    self._grown.notify_all()


class Batcher:
    """One link to one worker; `run` sends a batch and gives its reply."""

    def __init__(self, instance: runtime_pb2.Instance) -> None:
        self.instance = instance
        self.drained = asyncio.Event()
        self.lost = asyncio.Event()
        self._opened: asyncio.Future[Link] = asyncio.get_running_loop().create_future()
        self._replies: dict[int, asyncio.Future[link_pb2.Reply]] = {}
        hello = link_pb2.Hello(service="batcher", instance="b", protocol=PROTOCOL)
        self.client = LinkClient(f"unix:{instance.data_socket}", self, hello, keepalive_s=0)

    async def __aenter__(self) -> Self:
        self.client.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()

    def opened(self, link: Link) -> None:
        if not self._opened.done():
            self._opened.set_result(link)

    def received(self, _link: Link, frame: link_pb2.Frame) -> None:
        if frame.HasField("drain"):
            self.drained.set()
        for reply in frame.replies:
            self._replies.pop(reply.id).set_result(reply)

    def closed(self, _link: Link, reason: str) -> None:
        self.lost.set()
        for future in self._replies.values():
            if not future.done():  # who waited for it may have gone
                future.set_exception(ConnectionError(reason))
        self._replies.clear()

    async def send(self, *rows: tuple[float, ...], name: str = "x", **fields: Any) -> "asyncio.Future[link_pb2.Reply]":
        """Send a batch; its reply is to come."""
        return await self.send_array(np.array(rows, np.float32), name, **fields)

    async def send_array(self, array: np.ndarray, name: str = "x", **fields: Any) -> "asyncio.Future[link_pb2.Reply]":
        async with asyncio.timeout(TIMEOUT_S):
            link = await asyncio.shield(self._opened)
        identity = len(self._replies) + int.from_bytes(os.urandom(4), "little")
        future = self._replies[identity] = asyncio.get_running_loop().create_future()
        datatype, data = arrays.encode(array)
        tensor = Tensor(name=name, datatype=datatype, shape=array.shape, data=data)
        instance = self.instance
        values = {"model": instance.model, "version": instance.version, "rows": len(array), "inputs": [tensor]} | fields
        link.frame_for(len(data) + 200).requests.add(id=identity, **values)
        return future

    async def run(self, *rows: tuple[float, ...], **fields: Any) -> link_pb2.Reply:
        async with asyncio.timeout(TIMEOUT_S):
            return await (await self.send(*rows, **fields))


def output(reply: link_pb2.Reply, name: str) -> np.ndarray:
    """One output of a reply that must be OK."""
    assert reply.code == 0, f"{reply.code}: {reply.message}"
    (tensor,) = [each for each in reply.outputs if each.name == name]
    return arrays.decode(tensor.datatype, tensor.shape, tensor.data)
