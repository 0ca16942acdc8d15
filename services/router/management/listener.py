"""The listeners of management, apart from those of callers: REST, and gRPC where one is asked for."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import grpc.aio

from services.chassis.app import App
from services.chassis.grpc_server import bind
from services.chassis.http import Routes
from services.chassis.tls import ListenerSecurity
from services.router.config import RouterConfig
from services.router.management.offer import Offer
from services.router.rest.server import RestServer

_GRACE_S = 1.0


@asynccontextmanager
async def management_listeners(
    config: RouterConfig,
    app: App,
    offer: Offer,
    routes: Routes,
    server: grpc.aio.Server | None,
    security: ListenerSecurity | None,
) -> AsyncIterator[Offer]:
    """Serve `routes` and `server` for operators; gives what the listeners of callers offer of management."""
    said = []
    async with AsyncExitStack() as stack:
        if config.management_address:
            rest = RestServer(routes, max_message_bytes=config.max_message_bytes)
            stack.push_async_callback(rest.stop, _GRACE_S)
            await rest.start(config.management_address, reuse_port=config.reuse_port, security=security)
            app.log.info("listening", name="management", address=rest.address)
            said.append(f"REST at {rest.address}")
        if server is not None:
            stack.push_async_callback(server.stop, _GRACE_S)
            address = bind(server, config.management_grpc_address, security)
            await server.start()
            app.log.info("listening", name="management_grpc", address=address)
            said.append(f"gRPC at {address}")
        app.announce(management=said[0].rpartition(" ")[2] if config.management_address else "")
        yield offer if config.public_management else replace(offer, elsewhere=_elsewhere(said))


def _elsewhere(said: list[str]) -> str:
    return f"they go to {' and '.join(said)}" if said else "TURNOUT_ROUTER_MANAGEMENT_ADDRESS opens one that does"
