"""The batcher, put together, and how it stops."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.batcher.config import BatcherConfig
from services.batcher.control import RuntimeWatch
from services.batcher.device import Device
from services.batcher.instances import Instances
from services.batcher.metrics import BatcherCollector
from services.batcher.models import Models
from services.batcher.servicer import CallerLinks
from services.batcher.serving import Endpoints, Serving
from services.batcher.statistics import Statistics
from services.chassis.app import App
from services.chassis.arena.arenas import Arenas
from services.chassis.etcd import Mirror
from services.chassis.link import LinkServer, listen
from services.core import keys
from services.core.registry import ConfigStatus, Endpoint
from turnout.v1 import runtime_pb2

_FLUSH_S = 1.0
_COUNTS_S = 1.0  # between two words on what was counted
_NOTICE_S = 0.1  # between saying that this replica drains and refusing what comes all the same


@asynccontextmanager
async def build(config: BatcherConfig, app: App) -> AsyncIterator[None]:
    """Serve the pod's models until the block is left."""
    pod = Pod(config, app)
    config.run_dir.mkdir(parents=True, exist_ok=True)
    tcp = await listen(config.link_address, pod.links, app.hello, security=app.link_security)
    local = await listen(f"unix:{config.run_dir.absolute() / 'batcher.sock'}", pod.links, app.hello)
    servers = [tcp, local]
    for name, server in zip(("link", "local_link"), servers, strict=True):
        app.log.info("listening", name=name, address=server.address)
    pod.announce(tcp.address, local.address.removeprefix("unix:"))
    app.registry.register(BatcherCollector(pod.serving, pod.links))
    app.registry.register(pod.arenas)
    app.ready_when(pod.unready)
    app.on_drain(lambda: pod.drain(servers))
    app.spawn(pod.mirror.run(), "models")
    app.spawn(pod.watch(), "runtime-watch")
    app.spawn(pod.tell_counts(), "statistics")
    try:
        yield
    finally:
        pod.links.tell_counts()
        await pod.instances.close()
        for server in servers:
            await server.close()


class Pod:
    """The parts of one batcher, wired."""

    def __init__(self, config: BatcherConfig, app: App) -> None:
        self._config = config
        self._app = app
        clock = time.perf_counter_ns
        self.models = Models(self._models_changed)
        endpoints = Endpoints(app.registration, config.pod)
        call_later = asyncio.get_running_loop().call_later
        device = Device(config.device_slots or 2 * len(os.sched_getaffinity(0)))
        self.serving = Serving(self.models.spec, endpoints, device, clock=clock, call_later=call_later)
        self.links = CallerLinks(self.serving.batchers, Statistics(self.serving.tallies, clock), clock)
        self.serving.tell = self.links.tell
        self.arenas = Arenas(config.shared_memory_bytes)
        self.instances = Instances(self.serving, app.hello, self.arenas, app.spawn, clock)
        self.runtime = RuntimeWatch(config.run_dir / "runtime.sock", self._runtime_said, self._runtime_lost)
        snapshot = config.data_dir / "batcher-models.json"
        self.mirror = Mirror(app.etcd, [keys.MODELS], self.models.apply, snapshot=snapshot, log=app.log)
        self._draining = False

    def announce(self, address: str, local_socket: str) -> None:
        """Say where the links listen, as endpoints and services/ tell it."""
        address = self._config.advertise_address or address
        self.serving.place = Endpoint(
            address=address,
            local_socket=local_socket,
            host=self._app.host,
            digest="",
            signature_hash="",
            slots=0,
            max_batch_rows=0,
        )
        self._app.announce(address=address, local_socket=local_socket)

    async def watch(self) -> None:
        """Follow the runtime once it is known how its models are batched."""
        await self.mirror.loaded.wait()
        await self.runtime.run()

    async def tell_counts(self) -> None:
        """Keep the callers' counts current."""
        while True:
            await asyncio.sleep(_COUNTS_S)
            self.links.tell_counts()

    def unready(self) -> str | None:
        """Why this batcher cannot serve what it should; None when it can, or when nothing is expected of it."""
        if not self.mirror.loaded.is_set():
            return "models/ was not read yet"
        if not self.runtime.connected:
            return "the pod's runtime does not answer"
        if self.instances.expected and not self.serving.endpoints.keys:
            return f"none of {self.instances.expected} instances is ready"
        return None

    async def drain(self, servers: list[LinkServer]) -> None:
        """Leave etcd, tell the callers, finish what is in here; what is not done in time is told so."""
        self._draining = True
        batchers = self.serving.batchers
        try:
            self.serving.list_endpoints(listed=False)
            for server in servers:
                server.drain("this replica stops")
            await self._app.registration.flush(_FLUSH_S)
            await asyncio.sleep(_NOTICE_S)
            quiet = asyncio.Event()
            self.serving.drain(quiet.set)
            while not all(batcher.is_idle for batcher in batchers.values()):
                quiet.clear()
                await quiet.wait()
        finally:
            for batcher in batchers.values():
                batcher.give_up("this replica stops")

    def _models_changed(self, status: ConfigStatus) -> None:
        key = keys.status("batcher", self._app.instance, "models")
        self._app.registration.put(key, status.dump())
        self.serving.changed()

    def _runtime_said(self, state: runtime_pb2.RuntimeState) -> None:
        self.instances.apply(state)
        self.serving.list_endpoints(listed=not self._draining)

    def _runtime_lost(self) -> None:
        """Routers find other replicas; the workers' links are used until they break."""
        self.instances.expected = 0
        self.serving.list_endpoints(listed=False)
