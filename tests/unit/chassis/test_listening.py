import asyncio
import errno
import socket
from pathlib import Path

import pytest

from services.chassis.listening import CannotListenError, probe, split_address


@pytest.mark.parametrize(
    ("address", "parts"),
    [("127.0.0.1:8102", ("127.0.0.1", 8102)), ("localhost:0", ("localhost", 0)), ("[::1]:80", ("::1", 80))],
)
def test_an_address_is_host_and_port(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


@pytest.mark.parametrize("address", ["", "8102", ":8102", "localhost", "localhost:", "localhost:-1", "localhost:65536"])
def test_anything_else_is_refused_by_name(address: str) -> None:
    with pytest.raises(ValueError, match="is not host:port") as caught:
        split_address(address)

    assert repr(address) in str(caught.value)


def test_a_taken_port_is_found_out_before_listening() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(CannotListenError, match=f"^{address} is in use"):
            probe(address)

    probe(address)
    probe("unix:/tmp/any")


def test_an_address_of_another_machine_cannot_be_listened_on() -> None:
    with pytest.raises(CannotListenError, match=r"^192\.0\.2\.1:0 cannot be listened on: Cannot assign"):
        probe("192.0.2.1:0")


async def test_what_an_event_loop_raises_is_told_with_its_address() -> None:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use") as caught:
            await loop.create_server(asyncio.Protocol, "127.0.0.1", port)

    told = CannotListenError.from_os(caught.value)

    assert told is not None
    assert (told.address, str(told)) == (
        f"127.0.0.1:{port}",
        f"127.0.0.1:{port} is in use: another process listens there",
    )


def test_an_os_error_about_something_else_is_not_taken_for_one() -> None:
    assert CannotListenError.from_os(FileNotFoundError(errno.ENOENT, "no such file", str(Path("/x")))) is None
    assert CannotListenError.from_os(PermissionError(errno.EACCES, "denied", "/x")) is None
