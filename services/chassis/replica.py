"""One pod as its caller sees it: a link, what it serves, and what is in flight on it."""

import struct
from collections.abc import Callable, Sequence

import structlog

from services.chassis.arena.arenas import Arenas
from services.chassis.link import Link, LinkClient, is_unix
from services.chassis.quick_reply import AnyReply, ReplyReader, whole
from services.chassis.streamed import InOrder
from services.chassis.tls import LinkSecurity
from services.core.errors import UNAVAILABLE
from turnout.v1 import link_pb2 as pb

log = structlog.get_logger()
OnReply = Callable[[AnyReply], None]
OnStats = Callable[["Replica", Sequence[pb.Stats]], None]
_ID_AND_DEADLINE = struct.Struct("<BQBQ")  # Request.id and deadline_us
_ID_TAG, _DEADLINE_TAG = 0x09, 0x29
_MAX_QUEUED_BYTES = 128 << 20  # written to one replica and not yet taken; past it the replica is not chosen


class Replica:
    """One pod as its caller sees it: a link, what it serves, and what is in flight on it."""

    def __init__(
        self,
        address: str,
        hello: pb.Hello,
        on_change: Callable[[], None],
        arenas: Arenas | None = None,
        security: LinkSecurity | None = None,
    ) -> None:
        self.name = address
        self.serving: dict[tuple[str, str], pb.Served] = {}
        self.outstanding_rows = 0
        self.is_draining = False
        self.named_by: set[str] = set()  # endpoint keys
        self.tells_counts = False  # and so may be asked for them
        self.on_stats: OnStats = lambda _replica, _stats: None
        self._address = address
        self._on_change = on_change
        self._arenas = arenas if is_unix(address) else None  # over TCP it may be on another host
        self._link: Link | None = None
        self._pending: dict[int, tuple[OnReply, int]] = {}
        self._streams: dict[int, tuple[OnReply, int, InOrder]] = {}  # those with any number of replies
        self._next_id = 0
        self._reader = ReplyReader()
        self._client = LinkClient(address, self, hello, security=security)
        self._client.start()

    @property
    def is_connected(self) -> bool:
        return self._link is not None

    @property
    def is_open(self) -> bool:
        """May be sent a request now."""
        return self._link is not None and not self.is_draining and self._link.queued_bytes < _MAX_QUEUED_BYTES

    @property
    def in_flight(self) -> int:
        return len(self._pending) + len(self._streams)

    def request(self, rows: int, size_bytes: int, on_reply: OnReply) -> pb.Request:
        """A request with its id set, in the outgoing frame: fill it in this turn. `on_reply` is called exactly once."""
        link = self._link
        if link is None:
            raise ConnectionError(f"the link to {self.name} is down")
        self._next_id = number = self._next_id + 1
        self._pending[number] = (on_reply, rows)
        self.outstanding_rows += rows
        request = link.frame_for(size_bytes).requests.add()
        request.id = number
        return request

    def stream(self, rows: int, size_bytes: int, on_reply: OnReply) -> pb.Request:
        """As `request`, but `on_reply` is called for each of its replies, in order, the final one last."""
        request = self.request(rows, size_bytes, on_reply)
        self._streams[request.id] = (*self._pending.pop(request.id), InOrder())
        return request

    def credit(self, request_id: int, given: int) -> None:
        """There is room for more replies to a streamed request."""
        if request_id in self._streams and self._link is not None:
            self._link.frame_for(24).credits.add(id=request_id, bytes=given)

    def send_encoded(
        self, rows: int, head: bytes, deadline_us: int, rest: bytes, data: bytes | memoryview, on_reply: OnReply
    ) -> int:
        """Send a request that is encoded but for its id and deadline; its id. As `request`, in a fifth of the time."""
        link = self._link
        if link is None:
            raise ConnectionError(f"the link to {self.name} is down")
        self._next_id = number = self._next_id + 1
        self._pending[number] = (on_reply, rows)
        self.outstanding_rows += rows
        link.send_encoded(head, _ID_AND_DEADLINE.pack(_ID_TAG, number, _DEADLINE_TAG, deadline_us), rest, data)
        return number

    def lend(self, data: bytes | memoryview) -> bytes | None:
        """Write a tensor into shared memory; the encoded Block that stands for it, or None: send it as bytes."""
        link = self._link
        if link is None or link.lender is None:
            return None
        return link.lender.lend((data,), len(data))

    def cancel(self, request_id: int) -> None:
        """Nobody waits for this answer: it is dropped when it comes, and the work is not begun if it can be helped."""
        entry = self._pending.pop(request_id, None) or self._streams.pop(request_id, None)
        if entry is not None:
            self.outstanding_rows -= entry[1]
            if self._link is not None:
                self._link.frame_for(12).cancels.append(request_id)

    def ask(self, number: int) -> None:
        """Ask what was counted until now: `on_stats` hears it, the number at its end."""
        if self._link is not None:
            self._link.frame_for(16).stats.add(asks=number)

    async def close(self) -> None:
        await self._client.close()
        self._fail_pending("this process stops")

    # -- what the link calls

    def opened(self, link: Link) -> None:
        self._link = link
        link.read_encoded = self._read_encoded
        if self._arenas is not None:
            link.lender = self._arenas.lender(link)
        self.is_draining = False
        self.name = link.peer.instance or self._address

    def _read_encoded(self, frame: bytes) -> bytes:
        """Take the replies that a frame begins with; the rest is parsed as usual."""
        replies, stop = self._reader.read(frame)
        self._take(replies)
        return frame[stop:]

    def _take(self, replies: Sequence[AnyReply]) -> None:
        pop = self._pending.pop
        for reply in replies:
            entry = pop(reply.id, None)
            if entry is not None:
                self.outstanding_rows -= entry[1]
                entry[0](reply)
            elif self._streams:
                self._streamed(whole(reply))

    def _streamed(self, reply: pb.Reply) -> None:
        entry = self._streams.get(reply.id)
        if entry is None:
            return
        on_reply, rows, order = entry
        for each in order.take(reply):
            if each.final and self._streams.pop(reply.id, None) is not None:
                self.outstanding_rows -= rows
            on_reply(each)

    def received(self, _link: Link, frame: pb.Frame) -> None:
        self._take(frame.replies[:])  # a slice is made in C; iterating costs three times as much
        if frame.HasField("serving"):
            self.serving = {(served.model, served.version): served for served in frame.serving.models}
            self._on_change()
        if frame.stats:
            self.tells_counts = True
            self.on_stats(self, frame.stats)
        if frame.HasField("drain"):
            self.is_draining = True
            self._on_change()

    def closed(self, _link: Link, reason: str) -> None:
        self._link = None
        self.serving = {}
        self.tells_counts = False
        log.warning("replica_lost", replica=self.name, reason=reason, in_flight=len(self._pending))
        self._fail_pending(f"the link to replica {self.name} was lost: {reason}")
        self._on_change()

    def _fail_pending(self, message: str) -> None:
        waiting = [
            (number, entry[0]) for entries in (self._pending, self._streams) for number, entry in entries.items()
        ]
        self._pending, self._streams = {}, {}
        self.outstanding_rows = 0
        for number, on_reply in waiting:
            on_reply(pb.Reply(id=number, code=UNAVAILABLE, message=message, executed=pb.EXECUTED_MAYBE, final=True))
