"""The links of routers and shadow comparators: frames in, offers and cancels out."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import structlog

from services.batcher.batcher import Batcher
from services.batcher.quick_request import AnyRequest, BrokenRequest, RequestReader, key_of, with_blocks
from services.batcher.replies import error_reply, send_error
from services.batcher.request import Caller
from services.batcher.statistics import Statistics
from services.batcher.stream_batcher import StreamLobby
from services.chassis.arena import Borrower
from services.chassis.link import Link
from services.chassis.throttle import Throttle
from services.core.errors import INTERNAL, UNAVAILABLE
from turnout.v1 import link_pb2 as pb

log = structlog.get_logger()
_MOST_UNREAD_BYTES = 64 << 20  # answers a peer has not read; beyond, its requests are refused
_RETRY_US = 1_000_000


class CallerLinks:
    """A LinkHandler: one Caller a link."""

    def __init__(
        self, batchers: Mapping[tuple[str, str], Batcher], statistics: Statistics, clock: Callable[[], int]
    ) -> None:
        self.serving = pb.Serving()
        self.refused = 0  # requests that met no batcher
        self._batchers = batchers
        self._statistics = statistics
        self._clock = clock
        self._callers: dict[Link, Caller] = {}
        self._reader = RequestReader()
        self._unreadable = Throttle()

    def __len__(self) -> int:
        return len(self._callers)

    def opened(self, link: Link) -> None:
        link.borrower = borrower = Borrower(link)
        caller = self._callers[link] = Caller(link, borrower)
        link.read_encoded = partial(self._read_encoded, caller, borrower)
        self._tell(link)
        for part in self._statistics.whole():
            link.send_encoded(part)

    def tell_counts(self) -> None:
        """Say on every link what was counted since this was called before."""
        for part in self._statistics.changed():
            for link in self._callers:
                link.send_encoded(part)

    def tell(self, serving: pb.Serving) -> None:
        """Say on every link what is served from now on."""
        self.serving = serving
        for link in self._callers:
            self._tell(link)

    def _read_encoded(self, caller: Caller, borrower: Borrower, frame: bytes) -> bytes:
        """Take a frame that holds nothing but requests; another is parsed as usual, whole."""
        requests = self._reader.read(frame, borrower)
        if requests is None:
            return frame
        now_ns = self._clock()
        for batcher in self._offer(caller, requests, now_ns):
            batcher.pump(now_ns)
        return b""

    def received(self, link: Link, frame: pb.Frame) -> None:
        caller = self._callers.get(link)
        if caller is None:
            return
        now_ns = self._clock()
        requests = frame.requests
        touched: Sequence[Batcher] = ()
        if requests:
            borrower = caller.borrower
            touched = self._offer(caller, [with_blocks(request, borrower) for request in requests[:]], now_ns)
        for credit in frame.credits:
            streamed = caller.pending.get(credit.id)
            if streamed is not None and isinstance(streamed.home, StreamLobby):
                streamed.home.credit(streamed, credit.bytes)
        self._cancel(caller, frame.cancels)  # after the requests: one may be cancelled in the frame that brought it
        for batcher in touched:
            batcher.pump(now_ns)
        if frame.stats:
            self.tell_counts()
            link.send_encoded(self._statistics.answered(frame.stats[-1].asks))

    @staticmethod
    def _cancel(caller: Caller, numbers: Iterable[int]) -> None:
        for number in numbers:
            pending = caller.pending.get(number)
            if pending is not None:
                pending.home.cancel(pending)

    def closed(self, link: Link, reason: str) -> None:
        caller = self._callers.pop(link, None)
        if caller is not None:
            for batcher in self._batchers.values():
                batcher.lobby.forget(caller)
            for pending in list(caller.pending.values()):
                pending.home.cancel(pending)

    def _offer(self, caller: Caller, requests: Iterable[AnyRequest | BrokenRequest], now_ns: int) -> list[Batcher]:
        """Queue or refuse them all; the batchers that have something new."""
        batchers, waiting = self._batchers, caller.pending
        touched: list[Batcher] = []
        last: Batcher | None = None
        unread = caller.link.queued_bytes > _MOST_UNREAD_BYTES
        for request in requests:
            batcher = batchers.get(key_of(request))
            if batcher is None or unread or isinstance(request, BrokenRequest):
                self._refuse(caller, request, unread=unread)
                continue
            number = request.id
            if number in waiting:
                caller.link.close(f"request id {number} is in flight already")
                break
            batcher.lobby.offer(caller, request, number, now_ns)
            if batcher is not last:
                last = batcher
                if batcher not in touched:
                    touched.append(batcher)
        return touched

    def _refuse(self, caller: Caller, request: AnyRequest | BrokenRequest, *, unread: bool) -> None:
        self.refused += 1
        if isinstance(request, BrokenRequest):
            requests = self._unreadable.count(self._clock())
            if requests:
                log.error("block_refused", peer=caller.link.peer.instance, reason=request.message, requests=requests)
            send_error(caller, error_reply(request.id, INTERNAL, request.message))
            return
        model, version = key_of(request)
        message = f"{model}/{version} is not served here"
        if unread:
            message = f"{caller.link.queued_bytes} bytes of answers wait for {caller.link.peer.instance} to read them"
        send_error(caller, error_reply(request.id, UNAVAILABLE, message, retry_after_us=_RETRY_US))

    def _tell(self, link: Link) -> None:
        link.frame_for(self.serving.ByteSize() + 16).serving.CopyFrom(self.serving)
