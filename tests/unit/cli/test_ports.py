import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.cli.errors import CliError
from services.cli.plan import Place, Planned
from services.cli.ports import addresses, check_free, is_free

PLACE = Place(Path("/d"), Path("/r"), "file:///m", "127.0.0.1:1")


@pytest.fixture
def busy() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_busy_port_is_named_with_its_service_and_the_way_out(busy: str) -> None:
    planned = [Planned("router", "router", {"GRPC_ADDRESS": busy})]

    with pytest.raises(CliError, match=rf"{busy}, wanted by router \(grpc\), is in use: .*--port-offset \d+"):
        check_free(planned, None, 100)


def test_free_ports_pass(busy: str) -> None:
    check_free([Planned("router", "router", {"GRPC_ADDRESS": "127.0.0.1:0"})], None)

    assert not is_free(busy)


def test_etcd_is_asked_about_when_it_is_our_own() -> None:
    assert addresses([], "127.0.0.1:2379") == {"127.0.0.1:2379": "etcd"}
    assert addresses([], None) == {}
