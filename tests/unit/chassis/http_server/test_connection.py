import asyncio

import pytest

from services.chassis.http import Routes
from services.chassis.http_server.connection import Connection
from services.chassis.http_server.exchange import Exchange
from services.chassis.http_server.limits import Limits
from services.chassis.http_server.server import HttpServer


class Socket(asyncio.Transport):
    """A caller's end: what was sent to it."""

    def __init__(self, protocol: Connection) -> None:
        super().__init__()
        self._protocol = protocol
        self.sent = b""

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        self.sent += b"(closed)"


def post(body: bytes) -> bytes:
    return b"POST /hot HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(body) + body


async def test_what_comes_between_an_answer_and_the_request_sent_ahead_of_it_is_read_behind_that() -> None:
    begun: list[Exchange] = []
    routes = Routes()
    routes.add_hot("POST", "/hot", begun.append)
    connection = Connection(HttpServer(routes, Limits(body_bytes=1 << 20, head_bytes=256)))
    socket = Socket(connection)
    connection.connection_made(socket)
    third = post(b"3")
    connection.data_received(post(b"1") + post(b"2" * 1000))

    begun[0].respond(200, b"", b"")
    connection.data_received(third[:20])  # before the loop has turned
    await asyncio.sleep(0)
    begun[1].respond(200, b"", b"")
    await asyncio.sleep(0)
    connection.data_received(third[20:])

    assert [bytes(each.body) for each in begun] == [b"1", b"2" * 1000, b"3"]
    assert socket.sent.count(b"HTTP/1.1 200 OK") == 2
    assert b"(closed)" not in socket.sent


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"", b"(closed)"),
        (b"GET / HT", b"HTTP/1.1 408 "),
        (post(b"123")[:-1], b"HTTP/1.1 504 "),
    ],
)
async def test_who_takes_too_long_is_told_what_did_not_come(sent: bytes, said: bytes) -> None:
    routes = Routes()
    routes.add_hot("POST", "/hot", list[Exchange]().append)
    server = HttpServer(routes, Limits(body_bytes=1 << 20))
    connection = Connection(server)
    socket = Socket(connection)
    connection.connection_made(socket)
    connection.data_received(sent)
    server.now_s += 9
    connection.look(server.now_s)

    assert socket.sent == b""

    server.now_s += 91
    connection.look(server.now_s)

    assert socket.sent.startswith(said)
