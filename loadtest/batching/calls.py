"""Unary gRPC calls over one HTTP/2 connection, as cheaply as Python can: no event loop, task or object a call.

An event loop's timers round to milliseconds, which would turn a Poisson process of 10,000/s into bursts of ten.
"""

import socket
from array import array
from collections.abc import Iterable

from ngh2 import Connection, Role, Setting
from ngh2.events import ConnectionClosed, DataReceived, GoAwayReceived, ResponseReceived, StreamClosed, TrailersReceived

from loadtest.batching.payloads import TAIL_BYTES
from services.core.errors import DEADLINE_EXCEEDED, OK, UNKNOWN

NOTHING = 255  # the code of a call without an outcome
_WINDOW_BYTES = 16 << 20
_RECEIVED_BYTES = 256 << 10
_STATUS, _MESSAGE, _TIMING = b"grpc-status", b"grpc-message", b"turnout-timing"
_PATH = b"/inference.GRPCInferenceService/ModelInfer"
Headers = list[tuple[bytes, bytes]]


class LostError(Exception):
    """The router closed a connection: the run does not count."""


class Ledger:
    """What became of every request of one run, by its number. Times are perf_counter_ns."""

    __slots__ = ("codes", "done_ns", "keeps_words", "left", "sent_ns", "tails", "timings", "words")

    def __init__(self, count: int, *, keeps_words: bool) -> None:
        self.codes = bytearray([NOTHING]) * count
        self.sent_ns = array("q", bytes(8 * count))
        self.done_ns = array("q", bytes(8 * count))
        self.tails = [b""] * count  # the last bytes of each answer
        self.words: dict[int, bytes] = {}  # what refusals said
        self.timings: dict[int, bytes] = {}
        self.keeps_words = keeps_words
        self.left = count  # without an outcome

    def expire(self, number: int, now_ns: int) -> None:
        """Nobody waits for its answer any more, if there is none yet."""
        if self.codes[number] == NOTHING:
            self.codes[number] = DEADLINE_EXCEEDED
            self.done_ns[number] = now_ns
            self.left -= 1

    def answers(self) -> list[bytes]:
        """The last bytes of each good answer; b"" where there was none."""
        return [tail if code == OK else b"" for tail, code in zip(self.tails, self.codes, strict=True)]

    def ended(self, number: int, headers: Iterable[tuple[bytes, bytes]], now_ns: int) -> None:
        """The trailers of a call have come."""
        if self.codes[number] != NOTHING:
            return
        code = UNKNOWN
        for name, value in headers:
            if name == _STATUS:
                code = int(value)
            elif name == _MESSAGE and self.keeps_words:
                self.words[number] = value
            elif name == _TIMING:
                self.timings[number] = value
        self.codes[number] = code
        self.done_ns[number] = now_ns
        self.left -= 1


class Calls:
    """One connection."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=5)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.open = 0  # streams whose end has not come
        self.unsent = b""  # what the socket did not take yet
        self._connection = Connection(Role.CLIENT)
        self._connection.initiate_connection({Setting.INITIAL_WINDOW_SIZE: _WINDOW_BYTES})
        self._connection.set_local_window_size(_WINDOW_BYTES)
        self._numbers: list[int] = []  # of requests, by position of their stream
        self._first = self._connection.next_stream_id >> 1  # position of the run's first stream
        self._ledger = Ledger(0, keeps_words=False)
        self.flush()

    def fileno(self) -> int:
        return self.socket.fileno()

    def begin(self, ledger: Ledger) -> None:
        """Calls belong to this run from now on; answers to earlier ones are nobody's."""
        self._ledger = ledger
        self._numbers = []
        self._first = self._connection.next_stream_id >> 1

    def call(self, number: int, headers: Headers, message: bytes) -> None:
        """Queue a request; it leaves with the next flush."""
        stream = self._connection.send_request(headers)
        self._connection.send_data(stream, message, end_stream=True)
        self._numbers.append(number)
        self.open += 1

    def flush(self) -> None:
        data = self.unsent + self._connection.data_to_send()
        if not data:
            return
        try:
            taken = self.socket.send(data)
        except BlockingIOError:
            taken = 0
        self.unsent = data[taken:]

    def receive(self, now_ns: int) -> None:
        """Read what has come. Raises LostError."""
        try:
            data = self.socket.recv(_RECEIVED_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise LostError("the router closed a connection")
        connection = self._connection
        connection.receive_data(data)
        for event in connection.events():
            kind = type(event)
            if kind is DataReceived or kind is TrailersReceived or kind is ResponseReceived:
                self._heard(event, now_ns)
            elif kind is StreamClosed:
                self.open -= 1
            elif kind is GoAwayReceived or kind is ConnectionClosed:
                raise LostError(f"the router said goodbye: {event}")
        if connection.want_write:
            self.flush()

    def _heard(self, event: DataReceived | TrailersReceived | ResponseReceived, now_ns: int) -> None:
        place = (event.stream_id >> 1) - self._first
        if place < 0:
            return
        number, tails = self._numbers[place], self._ledger.tails
        if type(event) is DataReceived:
            tails[number] = (tails[number] + event.data)[-TAIL_BYTES:]
        elif type(event) is TrailersReceived or event.end_stream:
            self._ledger.ended(number, event.headers, now_ns)

    def close(self) -> None:
        self.socket.close()


def headers_for(authority: str, timeout_us: int, *, timings: bool = False) -> Headers:
    """The headers of one call. Cheap to send again: HPACK remembers them."""
    headers = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", _PATH),
        (b":authority", authority.encode()),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
        (b"grpc-timeout", b"%du" % timeout_us),
    ]
    return [*headers, (b"turnout-timing", b"1")] if timings else headers
