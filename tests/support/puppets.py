"""The router's neighbours as the test wants them, over real links: batchers, a comparator, a feature proxy.

python -m tests.support.puppets    # an echoing batcher as a process that can be stopped and killed: PUPPET_MODEL
"""

import asyncio
import json
import os
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any, Self

from services.chassis.etcd import EtcdClient
from services.chassis.link import Link, LinkServer, listen
from services.chassis.tls import LinkSecurity
from services.core import keys
from services.core.errors import UNAVAILABLE
from services.core.registry import Endpoint, ServiceRecord
from turnout.v1 import feature_pb2, link_pb2, recorded_pb2, shadow_pb2, tensor_pb2

TIMEOUT_S = 20.0
Fields = dict[str, Any] | None
Spec = tuple[str, str, Sequence[int]]
X: Spec = ("x", "FP32", (-1, 2))
Y: Spec = ("y", "FP32", (-1, 2))


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def signature(inputs: Sequence[Spec] = (X,), outputs: Sequence[Spec] = (Y,), *, batches: bool = True) -> Any:
    specs = [
        [tensor_pb2.TensorSpec(name=name, datatype=datatype, shape=shape) for name, datatype, shape in side]
        for side in (inputs, outputs)
    ]
    return tensor_pb2.Signature(inputs=specs[0], outputs=specs[1], batches=batches, platform="puppet")


def echo(request: link_pb2.Request) -> Fields:
    """Each input comes back, as outputs y, y1, y2 …"""
    outputs = [
        tensor_pb2.Tensor(name=f"y{number or ''}", datatype=given.datatype, shape=given.shape, data=given.data)
        for number, given in enumerate(request.inputs)
    ]
    return {"outputs": outputs}


def silence(_request: object) -> Fields:
    return None


def refuse(executed: link_pb2.Executed, message: str = "queue is full", **fields: Any) -> Callable[[object], Fields]:
    return lambda _: {"code": UNAVAILABLE, "executed": executed, "message": message, **fields}


class Puppet:
    """The listening end of a router's links."""

    service = ""

    def __init__(self, name: str) -> None:
        self.name = name
        self.security: LinkSecurity | None = None
        self.server: LinkServer
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.close()

    async def start(self, address: str = "127.0.0.1:0") -> None:
        hello = link_pb2.Hello(service=self.service, instance=self.name, protocol=1)
        self.server = await listen(address, self, hello, security=self.security)

    def lose_links(self) -> None:
        """As a killed process would; it listens on."""
        for link in list(self.server.links):
            link.protocol.abort("killed")

    async def until(self, condition: Callable[[], object], timeout_s: float = TIMEOUT_S) -> None:
        """Return once `condition` holds; it is asked after every frame."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def announce(self, etcd: EtcdClient) -> None:
        record = ServiceRecord(address=self.server.address, state="ready")
        await etcd.put(keys.service(self.service, self.name), record.dump())

    async def renounce(self, etcd: EtcdClient) -> None:
        await etcd.delete(keys.service(self.service, self.name))

    def stop_reading(self) -> None:
        """As a process that hangs: connected, and takes nothing."""
        for link in self.server.links:
            transport = link.protocol._transport
            assert transport is not None
            transport.pause_reading()

    def opened(self, link: Link) -> None:
        self._changed.set()

    def received(self, link: Link, frame: link_pb2.Frame) -> None:
        self.take(link, frame)
        self._changed.set()

    def closed(self, link: Link, reason: str) -> None:
        self._changed.set()

    def take(self, link: Link, frame: link_pb2.Frame) -> None:
        raise NotImplementedError


class PuppetBatcher(Puppet):
    """Answers requests as `answer` says: fields of a Reply, or None = not yet (see `reply`)."""

    service = "batcher"

    def __init__(self, name: str = "pod-0") -> None:
        super().__init__(name)
        self.answer: Callable[[link_pb2.Request], Fields] = echo
        self.requests: list[link_pb2.Request] = []
        self.cancels: list[int] = []
        self.credits: list[tuple[int, int]] = []  # request and bytes
        self._served: dict[tuple[str, str], link_pb2.Served] = {}

    async def serve(self, etcd: EtcdClient | None, model: str, *versions: str, **fields: Any) -> None:
        """Serve versions (fields: of Served) and say so, on links and in endpoints/."""
        for version in versions:
            served = {"digest": f"sha-{version}", "signature": signature(), "slots": 2, "max_request_rows": 64} | fields
            self._served[model, version] = link_pb2.Served(model=model, version=version, **served)
        self._say()
        if etcd is None:
            return
        for version in versions:
            endpoint = Endpoint(
                address=self.server.address, digest="sha", signature_hash="x", slots=2, max_batch_rows=64
            )
            await etcd.put(keys.endpoint(model, version, self.name), endpoint.dump())

    def drop(self, model: str, *versions: str) -> None:
        """Serve versions no longer."""
        for version in versions:
            del self._served[model, version]
        self._say()

    def reply(self, request: link_pb2.Request, **fields: Any) -> None:
        """Answer a request of before, on every link."""
        for link in self.server.links:
            self._reply(link, request, fields)

    def opened(self, link: Link) -> None:
        super().opened(link)
        link.frame_for(500).serving.models.extend(self._served.values())

    def take(self, link: Link, frame: link_pb2.Frame) -> None:
        self.cancels += frame.cancels
        self.credits += [(credit.id, credit.bytes) for credit in frame.credits]
        for request in frame.requests:
            self.requests.append(request)
            fields = self.answer(request)
            if fields is not None:
                self._reply(link, request, fields)

    @staticmethod
    def _reply(link: Link, request: link_pb2.Request, fields: dict[str, Any]) -> None:
        ran: dict[str, Any] = {
            "executed": link_pb2.EXECUTED_YES,
            "stages_ns": [1000] * 7,
            "total_ns": 8000,
            "digest": "sha",
        }
        reply = link_pb2.Reply(**ran | {"id": request.id, "final": True} | fields)
        link.frame_for(reply.ByteSize()).replies.append(reply)

    def _say(self) -> None:
        for link in self.server.links:
            if link.peer.instance:
                link.frame_for(500).serving.CopyFrom(link_pb2.Serving(models=self._served.values()))


class PuppetComparator(Puppet):
    """Takes mirrors; nothing comes back."""

    service = "shadow"

    def __init__(self, name: str = "shadow-0") -> None:
        super().__init__(name)
        self.mirrors: list[shadow_pb2.Mirror] = []

    def take(self, link: Link, frame: link_pb2.Frame) -> None:
        self.mirrors += frame.mirrors


class PuppetRecorder(Puppet):
    """Wants every request of one model."""

    service = "recorder"

    def __init__(self, model: str, name: str = "recorder-0") -> None:
        super().__init__(name)
        self.records: list[recorded_pb2.Recorded] = []
        self._sampling = recorded_pb2.Sampling(model=model, per_million=1_000_000)

    def opened(self, link: Link) -> None:
        link.frame_for(100).sampling.CopyFrom(self._sampling)
        super().opened(link)

    def take(self, link: Link, frame: link_pb2.Frame) -> None:
        self.records += frame.records


class PuppetProxy(Puppet):
    """Answers look-ups as `answer` says: fields of a FeatureAnswer, or None = never."""

    service = "feature_proxy"

    def __init__(self, name: str = "proxy-0") -> None:
        super().__init__(name)
        self.answer: Callable[[feature_pb2.FeatureLookup], Fields] = silence
        self.lookups: list[feature_pb2.FeatureLookup] = []
        self.cancels: list[int] = []

    def take(self, link: Link, frame: link_pb2.Frame) -> None:
        self.cancels += frame.cancels
        for lookup in frame.lookups:
            self.lookups.append(lookup)
            fields = self.answer(lookup)
            if fields is not None:
                self._tell(link, lookup, fields)

    def tell(self, lookup: feature_pb2.FeatureLookup, **fields: Any) -> None:
        """Answer a look-up of before, on every link."""
        for link in self.server.links:
            self._tell(link, lookup, fields)

    @staticmethod
    def _tell(link: Link, lookup: feature_pb2.FeatureLookup, fields: dict[str, Any]) -> None:
        answer = feature_pb2.FeatureAnswer(id=lookup.id, **fields)
        link.frame_for(answer.ByteSize()).features.append(answer)


async def _run() -> None:
    async with PuppetBatcher("hanger") as batcher:
        await batcher.serve(None, os.environ["PUPPET_MODEL"], "1")
        line = {"event": "listening", "name": "link", "address": batcher.server.address}
        print(json.dumps(line), file=sys.stderr, flush=True)  # noqa: T201 - as services log it
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_run())
