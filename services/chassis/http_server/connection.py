"""One caller's connection: requests in, one after the other, and their answers out in the same order."""

import asyncio
from typing import cast

from services.chassis.http_server.chunked import ChunkedBody
from services.chassis.http_server.exchange import Exchange
from services.chassis.http_server.head import CHUNKED, END, Beginning, Head, HttpFaultError, read_head, too_large
from services.chassis.http_server.large_body import LargeBody, first_bytes
from services.chassis.http_server.wire import NEVER, Owner, Wire
from services.core.errors import DeadlineExceededError, OverloadedError, ServingError

_LARGE_BYTES = 64 << 10
_VIEW_BYTES = 4 << 10  # a body larger than that is not copied out of what came with its head
_MOST_HELD_BYTES = 64 << 10  # of requests that were sent before the answer to the one before
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Connection(Wire):
    """Bytes to exchanges."""

    def __init__(self, owner: Owner) -> None:
        super().__init__(owner)
        self._heads = owner.heads
        self._beginning: Beginning | None = None
        self._head: Head | None = None  # whose body is awaited
        self._body: ChunkedBody | bytearray = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if not self._owner.opened(self):
            self._refuse(OverloadedError(f"{self._limits.connections} connections are open, the most that are taken"))
            transport.close()

    def data_received(self, data: bytes) -> None:
        if self._exchange is not None or self._unread is not None:
            self._hold(data)
        elif self._head is not None:
            self._more_body(data)
        elif self._held:
            self._held += data
            if self._beginning is not None:  # else `_next` is under way, and reads all of it
                self._more_head(data)
        elif not self._is_refused:
            self._read(data)

    def look(self, now_s: int) -> None:
        """End what took too long."""
        if now_s <= self.until_s or self._transport is None:
            return
        if self._is_refused or self._unread is not None:
            self._transport.abort()
        elif self._head is not None:
            self._refuse_it(DeadlineExceededError(f"the body did not come within {self._limits.body_s} s"))
        elif self._held:
            self._refuse_it(HttpFaultError(f"the head of the request did not come within {self._limits.head_s} s", 408))
        else:
            self._transport.close()

    # -- the way of a request

    def _read(self, data: bytes) -> None:
        """Take the request that `data` begins with."""
        end = data.find(END) + 4
        if end < 4 or data.startswith(b"\r\n"):
            self._held += data
            self._more_head(data)
            return
        head = self._heads.find(data[:end])
        if head is None:
            head = self._new_head(data[:end])
            if head is None:
                return
        size = head.content_length
        rest = len(data) - end
        if rest == size:
            self._begin(head, data[end:] if rest <= _VIEW_BYTES else memoryview(data)[end:])
        elif 0 <= size < rest:
            self._hold(data[end + size :])
            self._begin(head, data[end : end + size])
        else:
            self._await_body(head, data[end:])

    def _new_head(self, data: bytes) -> Head | None:
        try:
            head = read_head(data, self._limits)
            self._owner.resolve(head)
        except ServingError as error:
            self._refuse_it(error)
            return None
        self._heads.learn(data, head)
        return head

    def _more_head(self, data: bytes) -> None:
        """`data`, just added to what is held, may be the rest of a head."""
        held = self._held
        while held.startswith(b"\r\n"):  # some clients end a body with a line of its own
            del held[:2]
        if not held:
            return
        if held.find(END, max(0, len(held) - len(data) - 3)) >= 0:
            self._held, self._beginning = bytearray(), None
            self._read(bytes(held))
            return
        if self._beginning is None:
            self._beginning = Beginning()
            self.until_s = self._owner.now_s + self._limits.head_s
            data = bytes(held)
        try:
            self._beginning.look(data)
            if len(held) > self._limits.head_bytes:
                raise HttpFaultError(f"the head of the request has over {self._limits.head_bytes} bytes", 431)
        except ServingError as error:
            self._refuse_it(error)

    def _await_body(self, head: Head, data: bytes) -> None:
        size = head.content_length
        self._head = head
        self.until_s = self._owner.now_s + self._limits.body_s
        if head.expects_continue and not data:
            self.send(_CONTINUE)
        if size == CHUNKED:
            self._body = ChunkedBody(self._limits.body_bytes, too_large)
            self._more_body(data)
        elif self.body_grew(first_bytes(size, len(data))):
            if size - len(data) > _LARGE_BYTES:
                self._switch(LargeBody(self, size, data))
            else:
                self._body = bytearray(data)

    def _more_body(self, data: bytes) -> None:
        head, body = cast("Head", self._head), self._body
        if isinstance(body, ChunkedBody):
            before = len(body.content)
            try:
                left = body.feed(data)
            except ServingError as error:
                self._refuse_it(error)
                return
            if not self.body_grew(len(body.content) - before) or not body.is_whole:
                return
            body = body.content
        else:
            missing = head.content_length - len(body)
            body += data[:missing]
            left = data[missing:]
            if len(body) < head.content_length:
                return
        if left:
            self._hold(left)
        self._whole(body)

    def body_grew(self, count: int) -> bool:
        """Make room for `count` more bytes of a body that is not whole; where there is none, it is refused."""
        if self._owner.reserve(count):
            self._reserved += count
            return True
        self._refuse_it(OverloadedError("too many bytes of unfinished bodies are held; try again"))
        return False

    def body_came(self, body: bytearray) -> None:
        """A large body is whole."""
        self._switch(self)
        self._whole(body)

    def _switch(self, protocol: asyncio.BaseProtocol) -> None:
        transport = self._transport
        if transport is not None:
            transport.pause_reading()  # the way bytes are handed over is chosen when reading begins
            transport.set_protocol(protocol)
            transport.resume_reading()

    def _whole(self, body: bytearray) -> None:
        head, self._head = cast("Head", self._head), None
        self._body = bytearray()
        self._release()
        self._begin(head, memoryview(body) if len(body) > _VIEW_BYTES else bytes(body))

    def _begin(self, head: Head, body: bytes | memoryview) -> None:
        self.until_s = NEVER
        exchange = self._exchange = Exchange(self, head, body)
        self._owner.work(exchange)

    def _next(self) -> None:
        """Go on with what was held while another request was at work."""
        if self._exchange is None and self._unread is None and not self._is_refused and self._transport is not None:
            if self._is_paused:
                self._is_paused = False
                self._transport.resume_reading()
            if self._held:
                held, self._held = bytes(self._held), bytearray()
                self._read(held)

    # -- inside

    def _hold(self, data: bytes) -> None:
        self._held += data
        if len(self._held) > _MOST_HELD_BYTES and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def _refuse_it(self, error: ServingError) -> None:
        """Refuse the request that is being received."""
        head, self._head = self._head, None
        transport = self._transport
        if transport is not None:
            if transport.get_protocol() is not self:
                self._switch(self)
            self._refuse(error, head)
