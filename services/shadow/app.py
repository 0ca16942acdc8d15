"""The comparator, put together."""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from services.chassis.etcd import Mirror
from services.chassis.lifecycle import App
from services.chassis.link import LinkServer, listen
from services.chassis.replicas import Replicas
from services.core import keys
from services.shadow.config import ShadowConfig
from services.shadow.lanes import Room
from services.shadow.metrics import ShadowCollector
from services.shadow.runner import Limits, Runner
from services.shadow.servicer import CHECK, REPORT, ShadowServicer
from services.shadow.tally import Tallies

_MAX_SOCKET_PATH = 100  # bytes; the kernel takes 107


@asynccontextmanager
async def build(config: ShadowConfig, app: App) -> AsyncIterator[None]:
    """Serve until left. Mirrors that come before endpoints/ is known are dropped as "no_replica"."""
    os.nice(config.nice)  # this thread and those it starts: what serves callers on this host comes first
    async with AsyncExitStack() as stack:
        replicas = Replicas(app.hello, app.host, lambda: None)
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
        servers = await _listen(config, app, servicer, stack)

        async def drain() -> None:
            servicer.is_serving = False
            for server in servers:
                server.drain("the comparator stops")
            await runner.drain()

        app.on_drain(drain)
        yield


async def _listen(config: ShadowConfig, app: App, servicer: ShadowServicer, stack: AsyncExitStack) -> list[LinkServer]:
    """Open the port and the socket, and announce both: then this service is ready."""
    unary = {REPORT: servicer.report, CHECK: servicer.check}
    socket = _socket_path(config, app)
    servers = []
    for address in (config.link_address, *([f"unix:{socket}"] if socket else [])):
        server = await listen(address, servicer, app.hello, unary=unary)
        stack.push_async_callback(server.close)
        app.log.info("listening", name="link", address=server.address)
        servers.append(server)
    if socket is not None:
        stack.callback(socket.unlink, missing_ok=True)
    app.announce(address=servers[0].address, local_socket=str(socket or ""))
    return servers


def _socket_path(config: ShadowConfig, app: App) -> Path | None:
    """Where the socket lies, its folder made; None when the path is too long for one."""
    path = Path(config.link_socket or config.data_dir / "shadow" / f"{app.instance}.sock").absolute()
    if len(bytes(path)) > _MAX_SOCKET_PATH:
        app.log.warning("socket_left_out", path=str(path), reason=f"longer than {_MAX_SOCKET_PATH} bytes")
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
