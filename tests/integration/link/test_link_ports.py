"""The port and the Unix socket on which a service is linked to."""

from pathlib import Path

from services.chassis.app import App
from services.chassis.config import ServiceConfig
from services.chassis.link_ports import link_ports
from tests.integration.link.test_peers import Heard


async def addresses(socket: Path) -> list[str]:
    """Where a service listens that is told a free port and `socket`."""
    app = App("tiny", ServiceConfig(), "tiny-1")
    async with link_ports(app, Heard(), "127.0.0.1:0", socket) as servers:
        return [server.address for server in servers]


async def test_it_listens_on_both_and_leaves_no_socket_behind(socket_dir: Path) -> None:
    socket = socket_dir / "below" / "tiny.sock"

    port, local = await addresses(socket)

    assert port.startswith("127.0.0.1:")
    assert local == f"unix:{socket}"
    assert socket.parent.is_dir()
    assert not socket.exists()


async def test_a_socket_whose_path_is_too_long_is_left_out(tmp_path: Path) -> None:
    (port,) = await addresses(tmp_path / ("long" * 30))

    assert port.startswith("127.0.0.1:")
