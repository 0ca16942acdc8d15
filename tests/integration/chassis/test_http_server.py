"""The HTTP server, over sockets: what a caller may send, hold and wait for, and what it gets."""

import asyncio
import gzip
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import uvloop
from prometheus_client import CollectorRegistry

from services.chassis.http import Guard, HttpRequest, HttpResponse, Routes
from services.chassis.http_server.exchange import Exchange
from services.chassis.http_server.limits import Limits
from services.chassis.http_server.server import HttpServer
from services.chassis.tls import Certificates, ListenerSecurity, ListenerTls
from services.core.errors import InvalidRequestError, OverloadedError
from tests.support.certificates import Authority
from tests.support.certificates import Caller as TlsCaller

TIMEOUT_S = 30.0
LIMITS = Limits(body_bytes=1 << 20)


@dataclass
class Api:
    """Routes for the tests, and what they saw."""

    begun: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    exchanges: list[Exchange] = field(default_factory=list)
    sent_bytes: int = 0

    def routes(self, guard: Guard | None) -> Routes:
        routes = Routes(guard)
        routes.add("GET", "/hello/{name}", self.hello)
        routes.add("POST", "/echo", self.echo)
        routes.add("GET", "/slow", self.slow)
        routes.add("GET", "/stream/{kind}", self.stream)
        routes.add("GET", "/fault/{kind}", self.fault)
        routes.add_hot("POST", "/hot", self.hot)
        return routes

    async def hello(self, request: HttpRequest, name: str) -> HttpResponse:
        return HttpResponse(json.dumps({"name": name, "query": request.query, "peer": request.peer}).encode())

    async def echo(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(bytes(request.body), content_type="text/plain", headers={"X-A": request.headers["x-a"]})

    async def slow(self, _request: HttpRequest) -> HttpResponse:
        self.begun.set()
        try:
            await self.go_on.wait()
        finally:
            self.ended.set()
        return HttpResponse(b"slow")

    async def fault(self, _request: HttpRequest, kind: str) -> HttpResponse:
        if kind == "shed":
            raise OverloadedError("full", retry_after_s=0.25)
        if kind == "split":
            return HttpResponse(headers={"a": "b\r\nc: d"})
        raise RuntimeError("a secret")

    async def stream(self, _request: HttpRequest, kind: str) -> HttpResponse:
        return HttpResponse(getattr(self, kind)(), content_type="text/event-stream")

    async def few(self) -> AsyncIterator[bytes]:
        yield b"one"
        yield b""
        await self.go_on.wait()
        yield b"two"

    async def endless(self) -> AsyncIterator[bytes]:
        try:
            while True:
                yield bytes(1 << 16)
                self.sent_bytes += 1 << 16
                self.begun.set()
                await asyncio.sleep(0)
        finally:
            self.ended.set()

    async def refused(self) -> AsyncIterator[bytes]:
        raise InvalidRequestError("not this")
        yield b""

    async def breaks(self) -> AsyncIterator[bytes]:
        yield b"one"
        raise RuntimeError("a secret")

    def hot(self, exchange: Exchange) -> None:
        exchange.waiter = self
        self.exchanges.append(exchange)
        self.begun.set()
        if self.go_on.is_set():
            exchange.respond(200, b"content-type: text/plain\r\n", exchange.body)

    def gone(self) -> None:
        self.ended.set()


class Caller:
    """A raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, data: bytes) -> tuple[int, dict[str, str], bytes]:
        self.writer.write(data)
        return await self.answer()

    async def answer(self, *, has_body: bool = True) -> tuple[int, dict[str, str], bytes]:
        async with asyncio.timeout(TIMEOUT_S):
            line, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
            fields = dict(each.split(": ", 1) for each in lines)
            body = await self.reader.readexactly(int(fields.get("content-length", 0)) if has_body else 0)
            return int(line.split()[1]), fields, body

    async def rest(self) -> bytes:
        """Everything until the server ends the connection."""
        async with asyncio.timeout(TIMEOUT_S):
            return await self.reader.read()


@asynccontextmanager
async def serving(
    limits: Limits = LIMITS,
    security: ListenerSecurity | None = None,
    tls: ssl.SSLContext | None = None,
    guard: Guard | None = None,
) -> AsyncIterator[tuple[Api, HttpServer, Callable[[], Any]]]:
    api = Api()
    server = HttpServer(api.routes(guard), limits, echoed="x-request-id")
    await server.start("127.0.0.1:0", security=security)
    host, port = server.address.split(":")
    writers = []

    async def dial() -> Caller:
        reader, writer = await asyncio.open_connection(host, int(port), ssl=tls)
        writers.append(writer)
        return Caller(reader, writer)

    try:
        yield api, server, dial
    finally:
        for writer in writers:
            writer.close()
        await server.stop(0)


def get(path: str, *fields: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: h", *fields, "", ""]).encode()


def post(path: str, body: bytes, *fields: str) -> bytes:
    return get(path, f"Content-Length: {len(body)}", *fields, method="POST") + body


async def test_requests_and_answers_one_after_the_other_on_one_connection() -> None:
    async with serving() as (_, _, dial):
        caller = await dial()

        for _ in range(2):  # the second time the head is known
            status, fields, body = await caller.ask(get("/hello/a%20b?x=1"))
            assert (status, json.loads(body)) == (200, {"name": "a b", "query": {"x": "1"}, "peer": "127.0.0.1"})
            assert (fields["content-type"], "date" in fields) == ("application/json", True)
            echoed = await caller.ask(post("/echo", b"data", "X-A: 7"))
            assert (echoed[0], echoed[1]["x-a"], echoed[2]) == (200, "7", b"data")
        caller.writer.write(get("/hello/a", method="HEAD"))
        status, fields, _ = await caller.answer(has_body=False)
        assert (status, int(fields["content-length"]) > 10) == (200, True)
        assert (await caller.ask(get("/hello/x")))[0] == 200


async def test_what_is_not_served_is_said_in_json_and_the_connection_goes_on() -> None:
    async with serving() as (_, _, dial):
        caller = await dial()

        nowhere = await caller.ask(post("/nowhere", b"body", "X-Request-Id: r-1"))
        method = await caller.ask(get("/echo"))
        shed = await caller.ask(get("/fault/shed"))
        broken = await caller.ask(get("/fault/raise"))
        split = await caller.ask(get("/fault/split"))

        assert (nowhere[0], nowhere[1]["x-request-id"]) == (404, "r-1")
        assert json.loads(nowhere[2]) == {"error": "POST /nowhere: there is no such path"}
        assert (method[0], method[1]["allow"]) == (405, "POST")
        assert (shed[0], shed[1]["retry-after"], shed[1]["retry-after-ms"]) == (503, "1", "250")
        assert (broken[0], json.loads(broken[2])) == (500, {"error": "internal error"})
        assert (split[0], json.loads(split[2])) == (500, {"error": "internal error"})


@pytest.mark.parametrize("size", [0, 5, 70_000, 1 << 20])
@pytest.mark.parametrize("step", [1000, 1 << 20])
async def test_a_body_is_whole_however_it_comes(size: int, step: int) -> None:
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    chunked = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:3], body[3:]) if part) + b"0\r\n\r\n"
    requests = [
        post("/echo", body, "X-A: 1"),
        get("/echo", "X-A: 1", "Transfer-Encoding: chunked", method="POST") + chunked,
    ]
    async with serving() as (_, server, dial):
        caller = await dial()

        for data in requests * 2:
            sending = asyncio.create_task(trickle(caller, data, step))
            status, _, got = await caller.answer()
            await sending
            assert (status, got == body) == (200, True)
        assert server.reserve(4 << 20)  # nothing is left of what was set aside


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_bodies_of_any_size_come_through_tls(tmp_path: Path, run: Callable[[Any], None]) -> None:
    authority = Authority()
    files = authority.issue("server").write(tmp_path / "server")
    certificates = Certificates(CollectorRegistry())
    security = certificates.listener("listeners", ListenerTls.model_validate(files))
    tls = TlsCaller(authority).context(tmp_path)

    async def send() -> None:
        async with serving(replace(LIMITS, body_bytes=8 << 20), security, tls) as (_, server, dial):
            caller = await dial()
            for size in (5, 70_000, 7 << 20):
                body = bytes(range(256)) * (size // 256) + bytes(size % 256)
                sending = asyncio.create_task(trickle(caller, post("/echo", body, "X-A: 1"), 1 << 20))
                status, _, got = await caller.answer()
                await sending
                assert (status, got == body) == (200, True)
            assert server.reserve(32 << 20)
            said = await caller.ask(b"no HTTP\r\n\r\n")
            assert (said[0], await caller.rest()) == (400, b"")

    run(send())


async def trickle(caller: Caller, data: bytes, step: int) -> None:
    for at in range(0, len(data), step):
        caller.writer.write(data[at : at + step])
        await caller.writer.drain()
        await asyncio.sleep(0)


async def test_requests_sent_ahead_are_answered_in_order() -> None:
    async with serving() as (api, _, dial):
        caller = await dial()
        caller.writer.write(get("/slow") + b"".join(post("/echo", b"%d" % n, f"X-A: {n}") for n in range(300)))
        await api.begun.wait()
        api.go_on.set()

        assert (await caller.answer())[2] == b"slow"
        assert [int((await caller.answer())[2]) for _ in range(300)] == list(range(300))


async def test_a_head_in_pieces_and_lines_between_requests() -> None:
    async with serving() as (_, _, dial):
        caller = await dial()
        await trickle(caller, b"\r\n\r\n" + get("/hello/a") + b"\r\n", 1)
        assert (await caller.answer())[0] == 200
        assert (await caller.ask(get("/hello/b")))[0] == 200


async def test_a_large_body_is_asked_for_before_it_is_sent() -> None:
    async with serving() as (_, _, dial):
        caller = await dial()
        head = get("/echo", "X-A: 1", "Content-Length: 3", "Expect: 100-continue", method="POST")
        assert (await caller.ask(head))[0] == 100
        assert (await caller.ask(b"abc"))[2] == b"abc"

        refused = await caller.ask(get("/echo", "Content-Length: 1048577", "Expect: 100-continue", method="POST"))
        assert (refused[0], refused[1]["connection"]) == (413, "close")
        assert json.loads(refused[2])["error"].startswith("the body is larger than 1048576 bytes")


async def test_a_caller_in_the_middle_of_a_body_that_is_too_large_reads_why() -> None:
    async with serving() as (_, _, dial):
        caller = await dial()
        body = bytes((1 << 20) + 1)
        await trickle(caller, post("/echo", body), 1 << 16)
        assert (await caller.answer())[0] == 413

        caller = await dial()
        await trickle(caller, get("/echo", "Transfer-Encoding: chunked", method="POST") + b"100001\r\n" + body, 1 << 16)
        assert (await caller.answer())[0] == 413


async def test_bodies_and_predictions_may_be_compressed() -> None:
    body = b"abcdefgh" * 20_000
    async with serving() as (api, _, dial):
        caller = await dial()
        api.go_on.set()

        for data in (body, body[:2000]):
            asked = post("/hot", gzip.compress(data), "X-A: 1", "Content-Encoding: gzip", "Accept-Encoding: gzip")
            status, fields, got = await caller.ask(asked)
            assert (status, fields["content-encoding"], gzip.decompress(got) == data) == (200, "gzip", True)
        other = await caller.ask(post("/echo", body, "X-A: 1", "Accept-Encoding: gzip"))
        assert ("content-encoding" in other[1], other[2] == body) == (False, True)
        plain = await caller.ask(post("/echo", b"short", "X-A: 1", "Accept-Encoding: gzip"))
        bomb = await caller.ask(post("/echo", gzip.compress(bytes(8 << 20)), "X-A: 1", "Content-Encoding: gzip"))
        other = await caller.ask(post("/echo", b"x", "X-A: 1", "Content-Encoding: br"))
        assert ("content-encoding" in plain[1], plain[2]) == (False, b"short")
        assert (bomb[0], other[0]) == (413, 400)


async def test_who_may_not_call_has_nothing_inflated_and_few_bodies_are_at_a_time() -> None:
    def guard(request: HttpRequest, _role: str, _names: object) -> None:
        if "x-a" not in request.headers:
            raise InvalidRequestError("not you")

    body = gzip.compress(bytes(900_000))
    async with serving(guard=guard) as (api, _, dial):
        api.go_on.set()
        no_gzip = await (await dial()).ask(post("/hot", b"abc" * 4000, "Content-Encoding: gzip"))
        assert (no_gzip[0], b"not you" in no_gzip[2]) == (400, True)

        callers = [await dial() for _ in range(12)]
        asked = [caller.ask(post("/hot", body, "X-A: 1", "Content-Encoding: gzip")) for caller in callers]
        answers = await asyncio.gather(*asked)
        assert [(status, len(got)) for status, _, got in answers] == [(200, 900_000)] * 12


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"hello\r\n\r\n",
        b"GET / HTTP/9.9\r\n",
        post("/echo", b"hello", "Transfer-Encoding: chunked"),
        get("/echo", "Transfer-Encoding: chunked", method="POST") + b"nonsense\r\n",
        b"GET /" + b"a" * 70_000,
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 12_000,
    ],
)
async def test_what_is_no_http_gets_an_answer_and_an_end(data: bytes) -> None:
    async with serving() as (_, _, dial):
        caller = await dial()
        caller.writer.write(data)

        said = await caller.rest()

        assert said.startswith(b"HTTP/1.1 4"), said
        assert b"connection: close" in said
        assert b'{"error":"' in said


async def test_a_hot_route_answers_itself_and_hears_when_its_caller_goes() -> None:
    async with serving() as (api, _, dial):
        caller = await dial()
        caller.writer.write(post("/hot", b"x"))
        await api.begun.wait()
        api.exchanges[0].respond(200, b"", b"late")
        assert (await caller.answer())[2] == b"late"
        api.exchanges[0].respond(200, b"", b"twice")

        caller.writer.write(post("/hot", b"y"))
        async with asyncio.timeout(TIMEOUT_S):
            while len(api.exchanges) < 2:
                await asyncio.sleep(0)
            caller.writer.close()
            await api.ended.wait()
        api.exchanges[1].respond(200, b"", b"to nobody")


@pytest.mark.parametrize("path", ["/slow", "/stream/endless"])
async def test_a_caller_that_goes_ends_the_work_for_it(path: str) -> None:
    async with serving() as (api, _, dial):
        caller = await dial()
        caller.writer.write(get(path))
        async with asyncio.timeout(TIMEOUT_S):
            await api.begun.wait()
            caller.writer.close()
            await api.ended.wait()


async def test_a_stream_is_sent_as_it_comes() -> None:
    async with serving() as (api, _, dial):
        caller = await dial()
        _, fields, _ = await caller.ask(get("/stream/few"))
        async with asyncio.timeout(TIMEOUT_S):
            assert fields["transfer-encoding"] == "chunked"
            assert await caller.reader.readexactly(8) == b"3\r\none\r\n"
            api.go_on.set()
            assert await caller.reader.readexactly(13) == b"3\r\ntwo\r\n0\r\n\r\n"
        assert (await caller.ask(get("/hello/a")))[0] == 200

        caller.writer.write(b"GET /stream/few HTTP/1.0\r\n\r\n")
        assert (await caller.rest()).endswith(b"\r\n\r\nonetwo")


async def test_a_fault_of_a_stream_is_a_status_before_it_begins_and_a_cut_after() -> None:
    async with serving() as (_, _, dial):
        caller = await dial()
        refused = await caller.ask(get("/stream/refused"))
        assert (refused[0], json.loads(refused[2])) == (400, {"error": "not this"})

        caller.writer.write(get("/stream/breaks"))
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):  # noqa: PT012 - both may be where it is cut
            async with asyncio.timeout(TIMEOUT_S):
                await caller.reader.readuntil(b"one\r\n")
                await caller.reader.readuntil(b"0\r\n\r\n")


async def test_a_stream_waits_for_a_caller_that_does_not_read() -> None:
    async with serving() as (api, server, dial):
        caller = await dial()
        caller.writer.write(get("/stream/endless"))
        async with asyncio.timeout(TIMEOUT_S):
            sent = -1
            while sent != api.sent_bytes or not sent:
                sent = api.sent_bytes
                await asyncio.sleep(0.2)
        assert sent < 64 << 20

        server.now_s += 1000  # too long, by the server's clock
        server.look_around()
        async with asyncio.timeout(TIMEOUT_S):
            await api.ended.wait()


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"", b""),
        (b"GET / HT", b"408"),
        (get("/echo", "Content-Length: 9", method="POST") + b"1", b"504"),
        (get("/echo", "Content-Length: 900000", method="POST") + b"1", b"504"),
        (get("/hello/a"), b"200"),
    ],
)
async def test_a_caller_that_takes_too_long_is_given_up(sent: bytes, said: bytes) -> None:
    async with serving() as (_, server, dial):
        caller = await dial()
        caller.writer.write(sent)
        await (await dial()).ask(get("/hello/b"))  # what was sent before has arrived, most likely
        server.now_s += 1000
        server.look_around()

        heard = await caller.rest()

        assert said in heard or not heard
        assert server.reserve(4 << 20)


async def test_promises_of_bodies_take_no_room_from_who_sends() -> None:
    async with serving() as (_, server, dial):
        for _ in range(20):
            (await dial()).writer.write(get("/echo", "Content-Length: 900000", method="POST") + b"1")
        async with asyncio.timeout(TIMEOUT_S):
            while server._reserved < 20 << 16:  # each is awaited
                await asyncio.sleep(0.01)

        body = bytes(900_000)
        status, _, got = await (await dial()).ask(post("/echo", body, "X-A: 1"))

        assert (status, got == body) == (200, True)


async def test_connections_over_the_limit_are_refused() -> None:
    async with serving(replace(LIMITS, connections=2)) as (_, _, dial):
        callers = [await dial() for _ in range(2)]
        for caller in callers:
            assert (await caller.ask(get("/hello/a")))[0] == 200

        refused = await (await dial()).answer()

        assert (refused[0], "2 connections are open" in str(refused[2])) == (503, True)
        callers[0].writer.close()
        async with asyncio.timeout(TIMEOUT_S):
            while (await (await dial()).ask(get("/hello/a")))[0] != 200:
                await asyncio.sleep(0.01)


async def test_a_server_that_stops_ends_what_is_at_work_and_takes_no_more() -> None:
    async with serving() as (api, server, dial):
        idle, busy = await dial(), await dial()
        assert (await idle.ask(get("/hello/a")))[0] == 200
        busy.writer.write(get("/slow"))
        await api.begun.wait()

        stopping = asyncio.create_task(server.stop(TIMEOUT_S))
        assert await idle.rest() == b""
        api.go_on.set()
        status, fields, body = await busy.answer()
        assert (status, fields["connection"], body) == (200, "close", b"slow")
        busy.writer.close()
        await stopping
        with pytest.raises(OSError):  # noqa: PT011 - refused, or reset
            await dial()
