"""The shadow comparator, put together."""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from services.chassis.app import App
from services.chassis.etcd import Mirror
from services.chassis.link_ports import link_ports
from services.chassis.replicas import Replicas
from services.core import keys
from services.shadow.config import ShadowConfig
from services.shadow.lanes import Room
from services.shadow.metrics import ShadowCollector
from services.shadow.runner import Limits, Runner
from services.shadow.servicer import CHECK, REPORT, ShadowServicer
from services.shadow.tally import Tallies


@asynccontextmanager
async def build(config: ShadowConfig, app: App) -> AsyncIterator[None]:
    """Serve until left. Mirrors that come before endpoints/ is known are dropped as "no_replica"."""
    os.nice(config.nice)  # this thread and those it starts: what serves callers on this host comes first
    async with AsyncExitStack() as stack:
        replicas = Replicas(app.hello, app.host, lambda: None, security=app.link_security)
        stack.push_async_callback(replicas.close)
        tallies = Tallies(config.max_pairs, config.worst_examples)
        room = Room(config.max_pending, config.max_pending_bytes)
        runner = Runner(replicas, tallies, Limits(room, config.max_running, config.candidate_deadline_s))
        stack.push_async_callback(runner.close)
        app.registry.register(ShadowCollector(tallies, runner))
        snapshot = config.data_dir / "shadow" / "snapshot"
        mirror = Mirror(app.etcd, [keys.ENDPOINTS], replicas.apply, snapshot=snapshot, log=app.log)
        app.spawn(mirror.run(), "endpoints")
        servicer = ShadowServicer(runner, tallies)
        socket = Path(config.link_socket or config.data_dir / "shadow" / f"{app.instance}.sock")
        unary = {REPORT: servicer.report, CHECK: servicer.check}
        ports = link_ports(app, servicer, config.link_address, socket, unary=unary)
        servers = await stack.enter_async_context(ports)

        async def drain() -> None:
            servicer.is_serving = False
            for server in servers:
                server.drain("the comparator stops")
            await runner.drain()

        app.on_drain(drain)
        yield
