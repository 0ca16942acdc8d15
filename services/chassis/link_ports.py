"""Where a service is linked to: a port, and beside it a Unix socket for callers on this host."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from services.chassis.app import App
from services.chassis.link import LinkHandler, LinkServer, Unary, listen

_MAX_SOCKET_PATH_BYTES = 100  # the kernel takes 107


@asynccontextmanager
async def link_ports(
    app: App, handler: LinkHandler, address: str, socket: Path, *, unary: Mapping[str, Unary] | None = None
) -> AsyncIterator[list[LinkServer]]:
    """Listen on both, and announce them, until left. A socket whose path is too long for one is left out, and said."""
    path = _usable(socket, app)
    async with AsyncExitStack() as stack:
        servers = []
        for place in (address, *([f"unix:{path}"] if path else [])):
            server = await listen(place, handler, app.hello, unary=unary, security=app.link_security)
            stack.push_async_callback(server.close)
            app.log.info("listening", name="link", address=server.address)
            servers.append(server)
        if path is not None:
            stack.callback(path.unlink, missing_ok=True)
        app.announce(address=servers[0].address, local_socket=str(path or ""))
        yield servers


def _usable(socket: Path, app: App) -> Path | None:
    """Its absolute path, the folder made; None when that is too long."""
    path = socket.absolute()
    if len(bytes(path)) > _MAX_SOCKET_PATH_BYTES:
        app.log.warning("socket_left_out", path=str(path), reason=f"longer than {_MAX_SOCKET_PATH_BYTES} bytes")
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
