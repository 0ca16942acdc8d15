"""One request, and the way its answer goes back."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Protocol

from services.chassis.http import HttpRequest, HttpResponse
from services.chassis.http_server.encoding import LEAST_BYTES, Data, compress
from services.chassis.http_server.head import Head
from services.core.errors import ServingError

_LARGE_BYTES = 64 << 10  # compressed on a thread
_NO_BODY = (204, 304)
OK = 200


class Gone(Protocol):
    """Hears that the caller of an exchange went away."""

    def gone(self) -> None: ...


class Way(Protocol):
    """What an exchange needs of its connection."""

    peer: str
    certificate: bytes

    def send(self, *parts: Data) -> None: ...
    def start(self, head: Head, status: int, *, closes: bool = False) -> bytes: ...
    def done(self) -> None: ...
    def abort(self) -> None: ...
    def refusal(self, head: Head, error: ServingError) -> HttpResponse: ...
    async def writable(self) -> None: ...


class Exchange:
    """`respond` or `refuse` ends it, once; after its caller went away they do nothing.

    `body` is the request's, whole and inflated. `waiter`: whoever is at work on it, told when the caller is gone.
    """

    __slots__ = ("_wire", "body", "head", "waiter")

    def __init__(self, wire: Way, head: Head, body: bytes | memoryview) -> None:
        self._wire: Way | None = wire
        self.head = head
        self.body = body
        self.waiter: Gone | None = None

    def request(self) -> HttpRequest:
        """As handlers see it."""
        head = self.head
        return HttpRequest(
            method=head.method,
            path=head.path,
            headers=head.headers,
            body=self.body,
            query=head.query,
            peer=self.peer,
            certificate=self.certificate,
        )

    @property
    def peer(self) -> str:
        """The caller's address."""
        return self._wire.peer if self._wire else ""

    @property
    def certificate(self) -> bytes:
        """What the caller showed, DER; empty = nothing."""
        return self._wire.certificate if self._wire else b""

    def gone(self) -> None:
        """The connection is lost: whoever works on the answer may stop."""
        self._wire = None
        waiter, self.waiter = self.waiter, None
        if waiter is not None:
            waiter.gone()

    def respond(self, status: int, fields: bytes, body: Data) -> None:
        """Answer; `fields` are whole header lines, each with its CR LF, Content-Type among them.

        Only predictions are compressed: tritonclient's aio client asks for it always, and reads it there only.
        """
        head = self.head
        if not head.accepts or len(body) < LEAST_BYTES or status != OK or not head.route.is_hot:
            self._respond(status, fields, body)
        elif len(body) < _LARGE_BYTES:
            self._respond(status, fields + _encoded(head.accepts), compress(head.accepts, body))
        else:
            self.waiter = None
            work = asyncio.get_running_loop().run_in_executor(None, compress, head.accepts, bytes(body))
            work.add_done_callback(lambda done: self._compressed(fields, done))

    def _compressed(self, fields: bytes, done: "asyncio.Future[bytes]") -> None:
        if not done.cancelled():
            self._respond(OK, fields + _encoded(self.head.accepts), done.result())

    def _respond(self, status: int, fields: bytes, body: Data) -> None:
        wire = self._wire
        if wire is None:
            return
        head = self.head
        self._wire = self.waiter = None
        start = wire.start(head, status)
        length = b"" if status in _NO_BODY else b"content-length: %d\r\n" % len(body)
        if head.is_head or not len(body):
            wire.send(b"%b%b%b\r\n" % (start, fields, length))
        else:
            wire.send(b"%b%b%b\r\n" % (start, fields, length), body)
        wire.done()

    def refuse(self, error: ServingError) -> None:
        wire = self._wire
        if wire is not None:
            response = wire.refusal(self.head, error)
            self.respond(response.status, fields_of(response), bytes(response.body))  # type: ignore[arg-type]

    async def reply(self, response: HttpResponse) -> None:
        """Answer with what a handler gave, which may be a stream."""
        body = response.body
        if not isinstance(body, bytes | bytearray | memoryview):
            await self._stream(response, body)
            return
        self.respond(response.status, fields_of(response), body)

    async def _stream(self, response: HttpResponse, parts: AsyncIterator[bytes]) -> None:
        """Send the parts of an answer as they come, each once the caller has taken enough of those before."""
        try:
            first = await anext(parts, b"")  # a fault before it has its own status
            wire = self._wire
            if wire is not None:
                await self._send_stream(wire, response, first, parts)
        finally:
            if isinstance(parts, AsyncGenerator):
                await parts.aclose()

    async def _send_stream(self, wire: Way, response: HttpResponse, first: bytes, parts: AsyncIterator[bytes]) -> None:
        head = self.head
        framing = b"" if head.is_old else b"transfer-encoding: chunked\r\n"
        fields = fields_of(response)
        wire.send(b"%b%b%b\r\n" % (wire.start(head, response.status, closes=head.is_old), fields, framing))
        try:
            if not head.is_head:
                self._part(wire, first)
                async for part in parts:
                    await wire.writable()
                    self._part(wire, part)
                if not head.is_old:
                    wire.send(b"0\r\n\r\n")
        except Exception:
            self._wire = self.waiter = None
            wire.abort()  # cut off, so that nobody takes what came for the whole
            raise
        self._wire = self.waiter = None
        wire.done()

    def _part(self, wire: Way, part: Data) -> None:
        if not len(part):
            return  # an empty chunk would end the stream
        if self.head.is_old:
            wire.send(part)
        else:
            wire.send(b"%x\r\n" % len(part), part, b"\r\n")


def _encoded(coding: str) -> bytes:
    return b"content-encoding: %b\r\nvary: accept-encoding\r\n" % coding.encode()


def fields_of(response: HttpResponse) -> bytes:
    """Header lines. Raises ValueError for a value that would end its line."""
    lines = [f"content-type: {response.content_type}\r\n"] if response.content_type else []
    lines += [f"{name.lower()}: {value}\r\n" for name, value in response.headers.items()]
    for line in lines:
        if line.find("\r") != len(line) - 2 or "\n" in line[:-1] or "\0" in line:
            raise ValueError(f"header field {line[:40]!r} has a line end in it")
    return "".join(lines).encode()
