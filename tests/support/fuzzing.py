"""Mutated requests to a router's doors among good ones: how each was answered, and what became of the good ones."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import grpc.aio

AT_ONCE = 16
GOOD_EVERY = 10
ANSWERED_S = 60.0
# What a caller's fault may end in, and OK where it turns out to be none.
GRPC_CODES = {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED"}
HTTP_STATUSES = {"200", "400", "404", "405", "411", "413", "415", "501"}


class Asked(NamedTuple):
    """A request: over HTTP, its path, headers and body; over gRPC, its message is the body."""

    body: bytes
    path: str = ""
    headers: Sequence[tuple[str, str]] = ()


class Golden(NamedTuple):
    """A good request, and whether an answer's bytes are right for it."""

    asked: Asked
    is_right: Callable[[bytes], bool]


class Door(Protocol):
    async def ask(self, asked: Asked) -> tuple[str, bytes, str]:
        """The status, the answer's body, and what is wrong with the answer, whatever was asked ("" = nothing)."""


@dataclass
class Told:
    """How the requests of one run were answered; `faults` are the first few that were answered wrongly."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def note(self, number: int, asked: Asked, status: str, fault: str) -> None:
        self.counts[status] += 1
        if fault and len(self.faults) < 5:
            self.faults.append(f"#{number} {status}: {fault}: {asked.path} {asked.headers} {asked.body[:600]!r}")


async def fuzz(door: Door, goldens: Sequence[Golden], mutated: Callable[[Asked], Asked], count: int) -> Told:
    """Send `count` mutated requests, some at a time, and a good one after each few of them."""
    told = Told()
    numbers = iter(range(count))

    async def sender() -> None:
        for number in numbers:
            golden = goldens[number % len(goldens)]
            asked = mutated(golden.asked)
            status, _, fault = await door.ask(asked)
            told.note(number, asked, status, fault)
            if number % GOOD_EVERY == 0:
                status, body, fault = await door.ask(golden.asked)
                is_right = not fault and status in {"OK", "200"} and golden.is_right(body)
                told.note(number, golden.asked, f"good {status}", "" if is_right else f"{fault} {body[:300]!r}")

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(sender())
    return told


class GrpcDoor:
    def __init__(self, channel: grpc.aio.Channel, method: str) -> None:
        self._call = channel.unary_unary(method, None, None)

    async def ask(self, asked: Asked) -> tuple[str, bytes, str]:
        try:
            return "OK", await self._call(asked.body, timeout=ANSWERED_S), ""
        except grpc.aio.AioRpcError as error:
            status, said = error.code().name, error.details() or ""
        return status, b"", "" if said and status in GRPC_CODES else f"not a caller's fault: {said!r}"


class HttpDoor:
    """Connections that are kept; one that is closed without an answer is a fault."""

    def __init__(self, address: str) -> None:
        self._host, _, self._port = address.rpartition(":")
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def close(self) -> None:
        for _, writer in self._idle:
            writer.close()
            await writer.wait_closed()

    async def ask(self, asked: Asked) -> tuple[str, bytes, str]:
        reader, writer = self._idle.pop() if self._idle else await asyncio.open_connection(self._host, self._port)
        head = "".join(f"{name}: {value}\r\n" for name, value in asked.headers)
        start = f"POST {asked.path} HTTP/1.1\r\nHost: fuzz\r\nContent-Length: {len(asked.body)}\r\n{head}\r\n"
        try:
            async with asyncio.timeout(ANSWERED_S):
                writer.write(start.encode("latin-1") + asked.body)
                status, headers, body = await _answer(reader)
        except (TimeoutError, OSError, EOFError, ValueError) as error:
            writer.close()
            return "none", b"", f"no answer: {error!r}"
        if headers.get("connection") == "close":
            writer.close()
        else:
            self._idle.append((reader, writer))
        return status, body, _http_fault(status, body)


async def _answer(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes]:
    """Status, headers and body. Raises EOFError or ValueError when it is no answer."""
    start, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {
        name.lower(): value.strip().lower() for name, _, value in (line.partition(":") for line in lines if line)
    }
    return start.split(" ")[1], headers, await reader.readexactly(int(headers["content-length"]))


def _http_fault(status: str, body: bytes) -> str:
    if status == "200":
        return ""
    try:
        error = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        return f"its body is no error: {body[:300]!r}"
    return "" if error and status in HTTP_STATUSES else f"not a caller's fault: {error!r}"
