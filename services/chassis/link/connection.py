"""One link, either end: frames gathered, cut, sent, and handed over as they come."""

from collections.abc import Callable, Iterable
from typing import Protocol

import structlog
from google.protobuf.message import DecodeError
from ngh2 import Role

from services.chassis.arena import Borrower, Lender
from services.chassis.http2 import Data, Headers, Http2
from services.core.protowire import packed_fixed64_field
from turnout.v1 import link_pb2 as pb

PROTOCOL = 1
OPEN, BULK = "/turnout.v1.Link/Open", "/turnout.v1.Link/Bulk"
FRAME_BYTES = 256 << 10  # a frame is cut here, and a larger envelope takes the bulk stream
KEEPALIVE_S = 2.0  # of who dials: callers wait until it turns to another
LISTENING_KEEPALIVE_S = 10.0  # of who listens: a peer that has no processor for a while must not lose what it asked for
_RELEASES = 11  # Frame.releases

log = structlog.get_logger()


class LinkHandler(Protocol):
    """What a service does with its links; called on the loop, must not block or raise."""

    def opened(self, link: "Link") -> None: ...
    def received(self, link: "Link", frame: pb.Frame) -> None: ...
    def closed(self, link: "Link", reason: str) -> None: ...


class Link:
    """One connection to a peer, either end; handed to a LinkHandler once the peer's Hello is there."""

    def __init__(self, handler: LinkHandler, hello: pb.Hello, role: Role, keepalive_s: float) -> None:
        self.peer = pb.Hello()
        self._handler = handler
        self._hello = hello
        self._role = role
        self._patience_s = keepalive_s
        self._http2 = Http2(role, self, keepalive_s=min(keepalive_s, KEEPALIVE_S))  # until it is known as a peer
        self._http2.before_flush(self._gather)
        self._open_stream = 0
        self._bulk_stream = 0
        self._frame = pb.Frame()
        self._frame_bytes = 0  # of what is gathered, encoded parts included
        self._is_frame_used = False
        self._bulk: list[tuple[Data, ...] | pb.Frame] = []
        self._encoded: list[Data] = []
        self._released: list[int] = []
        self._is_open = False
        self.lender: Lender | None = None  # large tensors may go through shared memory: see services.chassis.arena
        self.borrower: Borrower | None = None  # they may come so
        self.read_encoded: Callable[[bytes], bytes] | None = None  # sees a frame's bytes first; gives what it left
        self.on_connected: Callable[[Link], None] | None = None
        self.on_lost: Callable[[Link, str], None] | None = None
        self.on_other: Callable[[Link, int, str], None] | None = None
        self.unary_calls: dict[int, bytes] = {}

    @property
    def protocol(self) -> Http2:
        return self._http2

    @property
    def queued_bytes(self) -> int:
        """Written to the link, not yet taken by the socket."""
        return self._http2.queued_bytes + self._frame_bytes

    def frame_for(self, size_bytes: int) -> pb.Frame:
        """The outgoing frame for one envelope of about `size_bytes`; fill it in this turn, it leaves at its end."""
        self._http2.schedule_flush()
        if size_bytes > FRAME_BYTES:
            frame = pb.Frame()
            self._bulk.append(frame)
            return frame
        if self._frame_bytes and self._frame_bytes + size_bytes > FRAME_BYTES:
            self._send_frame()
        self._frame_bytes += size_bytes + 1
        self._is_frame_used = True
        return self._frame

    def send_encoded(self, *parts: Data) -> None:
        """Send one envelope that is encoded already: the parts are a field of Frame, tag and length included.

        For hot paths: a frame is the concatenation of its fields, so nothing is copied until it leaves.
        """
        self._http2.schedule_flush()
        size = 0
        for part in parts:
            size += len(part)
        if size > FRAME_BYTES:
            self._bulk.append(parts)
            return
        if self._frame_bytes and self._frame_bytes + size > FRAME_BYTES:
            self._send_frame()
        self._frame_bytes += size
        self._encoded += parts

    def close(self, reason: str) -> None:
        """Write out what is queued, then close; the handler hears `closed`."""
        self._http2.close(reason)

    # -- shared memory

    def offer_arena(self, name: str) -> None:
        """Say where large tensors could lie; the peer proves that it sees them there."""
        hello = self.frame_for(len(name) + 100).hello
        hello.CopyFrom(self._hello)
        hello.arena = name

    def answer_arena(self, nonce: bytes) -> None:
        """The proof; empty = this end does not see the arena."""
        self.frame_for(len(nonce) + 4).arena_opened.nonce = nonce

    def release(self, generations: Iterable[int]) -> None:
        """Give blocks back; that is said behind all else that this turn sends."""
        self._released += generations
        self._http2.schedule_flush()

    # -- what Http2 calls

    def connected(self) -> None:
        if self.on_connected is not None:
            self.on_connected(self)
        if self._role is Role.CLIENT:
            self._open_stream = self._http2.request(OPEN)
            self._bulk_stream = self._http2.request(BULK)
            self._greet(self._open_stream)
            self._greet(self._bulk_stream)

    def headers(self, stream: int, headers: Headers, *, ended: bool) -> None:
        fields = dict(headers)
        if self._role is Role.CLIENT:
            if fields.get(b":status") != b"200" or b"grpc-status" in fields:
                self._http2.close(f"the peer refused the link: {fields}")
            return
        path = fields.get(b":path", b"").decode("latin-1")
        if path not in {OPEN, BULK}:
            if self.on_other is not None:
                self.on_other(self, stream, path)
            return
        if path == OPEN:
            self._open_stream = stream
        else:
            self._bulk_stream = stream
        self._http2.respond(stream)
        self._greet(stream)
        if ended:
            self._http2.finish(stream, [(b"grpc-status", b"0")])

    def message(self, stream: int, payload: bytes) -> None:
        if stream != self._open_stream and stream != self._bulk_stream:  # noqa: PLR1714 - a set would be made each time
            if stream in self.unary_calls:  # else the request of a call that was refused already
                self.unary_calls[stream] += payload
            return
        try:
            if self.read_encoded is not None:
                payload = self.read_encoded(payload)
                if not payload:
                    return
            frame = pb.Frame.FromString(payload)
        except DecodeError:
            self._http2.abort("the peer sent bytes that are not a turnout.v1.Frame")
            return
        except Exception as error:  # noqa: BLE001 - it is logged, and ends this link only
            self._failed(error)
            return
        self._handle(stream, frame)

    def _handle(self, stream: int, frame: pb.Frame) -> None:
        says_hello = frame.HasField("hello")
        if not (says_hello or self._is_open):
            self._http2.abort("the peer sent a frame before its Hello")
            return
        try:
            if says_hello:
                self._greeted(stream, frame.hello)
            if self.lender is not None:
                self._lent(self.lender, frame)
            self._handler.received(self, frame)
        except Exception as error:  # noqa: BLE001 - it is logged, and ends this link only
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        log.error("frame_failed", peer=self.peer.instance, exc_info=error)
        self._http2.abort("a frame could not be handled; see the log")

    def ended(self, stream: int) -> None:
        if stream in {self._open_stream, self._bulk_stream}:
            self._http2.close("the peer ended the link")
        elif stream in self.unary_calls and self.on_other is not None:
            self.on_other(self, stream, "")

    def lost(self, reason: str) -> None:
        was_open, self._is_open = self._is_open, False
        if was_open:
            self._handler.closed(self, reason)
        for end in (self.lender, self.borrower):
            if end is not None:
                end.close()
        if self.on_lost is not None:
            self.on_lost(self, reason)

    # -- inside

    def _greet(self, stream: int) -> None:
        self._http2.send(stream, pb.Frame(hello=self._hello).SerializeToString())

    def _greeted(self, stream: int, hello: pb.Hello) -> None:
        if hello.protocol != PROTOCOL:
            self._http2.close(f"the peer speaks link protocol {hello.protocol}, this is {PROTOCOL}")
        elif stream == self._open_stream and not self._is_open:
            self.peer = hello
            self._is_open = True
            self._http2.keepalive_s = self._patience_s
            self._handler.opened(self)
        if hello.arena and self.borrower is not None:
            self.borrower.offered(hello.arena)

    @staticmethod
    def _lent(lender: Lender, frame: pb.Frame) -> None:
        """What a frame says to the lender of this end."""
        if frame.releases:
            lender.released(frame.releases)
        if frame.HasField("arena_opened"):
            lender.proven(frame.arena_opened.nonce)

    def _gather(self) -> None:
        if self._released:
            self._encoded.append(packed_fixed64_field(_RELEASES, self._released))
            self._frame_bytes += 1
            self._released = []
        if self._frame_bytes:
            self._send_frame()
        if self._bulk:
            stream = self._bulk_stream or self._open_stream
            for frame in self._bulk:
                if isinstance(frame, tuple):
                    self._http2.send(stream, *frame)
                else:
                    self._http2.send(stream, frame.SerializeToString())
            self._bulk.clear()

    def _send_frame(self) -> None:
        encoded = self._encoded
        if self._is_frame_used:
            encoded.append(self._frame.SerializeToString())
            self._frame = pb.Frame()
            self._is_frame_used = False
        self._http2.send(self._open_stream, *encoded)
        self._encoded = []
        self._frame_bytes = 0


def is_unix(address: str) -> bool:
    return address.startswith("unix:")
