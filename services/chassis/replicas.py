"""Links to the replicas that endpoints/ names: who is alive, what each serves, and the choice between them.

etcd says where to dial; what a replica serves is what its link says (Serving). So a lapsed lease alone takes nobody out
while the link is healthy, and a lost link takes a replica out at once.
"""

import asyncio
import random
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import structlog

from services.chassis.arena.arenas import Arenas
from services.chassis.etcd import Change
from services.chassis.link import Link, LinkClient, is_unix
from services.chassis.quick_reply import AnyReply, ReplyReader
from services.chassis.tls import LinkSecurity
from services.core import keys
from services.core.errors import UNAVAILABLE
from services.core.registry import Endpoint, dial_address
from services.core.rendezvous import choose
from services.core.spec import BadValueError
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
        return len(self._pending)

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
        entry = self._pending.pop(request_id, None)
        if entry is not None:
            self.outstanding_rows -= entry[1]
            if self._link is not None:
                self._link.frame_for(12).cancels.append(request_id)

    def ask(self, number: int, model: str) -> None:
        """Ask what was counted of `model` (empty = of all) until now: `on_stats` hears it, the number at its end."""
        if self._link is not None:
            self._link.frame_for(len(model) + 16).stats.add(asks=number, model=model)

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
        pending, self._pending = self._pending, {}
        self.outstanding_rows = 0
        for number, (on_reply, _) in pending.items():
            on_reply(pb.Reply(id=number, code=UNAVAILABLE, message=message, executed=pb.EXECUTED_MAYBE, final=True))


class Replicas:
    """Every replica that endpoints/ names. `on_change` is called when what can be served changes."""

    def __init__(
        self,
        hello: pb.Hello,
        host: str,
        on_change: Callable[[], None],
        arenas: Arenas | None = None,
        security: LinkSecurity | None = None,
    ) -> None:
        self._security = security
        self.on_stats: OnStats = lambda _replica, _stats: None  # set before the first replica is known
        self._arenas = arenas  # for large tensors to replicas on this host; None = as bytes
        self._hello = hello
        self._host = host
        self._on_change = on_change
        self._by_address: dict[str, Replica] = {}
        self._addresses: dict[str, str] = {}  # endpoint key -> address
        self._ready: dict[tuple[str, str], tuple[Replica, ...]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def apply(self, changes: Iterable[Change]) -> None:
        """Follow endpoints/ keys; others are ignored, and a value that is no Endpoint is logged and left out."""
        for change in changes:
            if not change.key.startswith(keys.ENDPOINTS):
                continue
            self._forget(change.key)
            if change.value is not None:
                try:
                    self._add(change.key, Endpoint.parse(change.value))
                except BadValueError as error:
                    log.warning("endpoint_refused", key=change.key, reason=str(error))
        self._changed()

    def versions(self) -> dict[tuple[str, str], tuple[Replica, ...]]:
        """(model, version) -> the live replicas that serve it; never an empty tuple."""
        return self._ready

    def all(self) -> list[Replica]:
        return list(self._by_address.values())

    def served(self, model: str, version: str) -> pb.Served | None:
        """What a live replica says of a version: signature, digest, limits."""
        ready = self._ready.get((model, version))
        return ready[0].serving.get((model, version)) if ready else None

    def pick(self, model: str, version: str, besides: Replica | None = None) -> Replica | None:
        """The less loaded of two live replicas drawn at random; None when there is none (but `besides`).

        Load is `outstanding_rows` as this process sees it.
        Source: Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing" (2001).
        """
        ready = self._ready.get((model, version))
        if ready is None:
            return None
        if len(ready) == 1:
            only = ready[0]
            return only if only is not besides and only.is_open else None
        choices = [replica for replica in ready if replica is not besides and replica.is_open]
        if len(choices) > 2:
            choices = random.sample(choices, 2)
        elif random.random() < 0.5:  # noqa: S311 - of two that are equally loaded, each gets its share
            choices.reverse()
        return min(choices, key=lambda replica: replica.outstanding_rows, default=None)

    def holder(self, model: str, version: str, key: str) -> Replica | None:
        """The one live replica that everything with `key` goes to; None when there is none, or none it can be sent now.

        Every process chooses the same one. When replicas come or go, only the keys of those move.
        """
        ready = {replica.name: replica for replica in self._ready.get((model, version), ())}
        chosen = choose(ready, f"{model}/{version}/{key}")
        return ready[chosen] if chosen is not None and ready[chosen].is_open else None

    async def close(self) -> None:
        await asyncio.gather(*(replica.close() for replica in self._by_address.values()), *self._closing)

    def _add(self, key: str, endpoint: Endpoint) -> None:
        address = dial_address(endpoint, self._host)
        replica = self._by_address.get(address)
        if replica is None:
            replica = Replica(address, self._hello, self._changed, self._arenas, self._security)
            self._by_address[address] = replica
            replica.on_stats = self.on_stats
        replica.named_by.add(key)
        self._addresses[key] = address

    def _forget(self, key: str) -> None:
        address = self._addresses.pop(key, None)
        if address is not None:
            self._by_address[address].named_by.discard(key)

    def _changed(self) -> None:
        for address, replica in list(self._by_address.items()):
            if not replica.named_by and not replica.is_connected:
                del self._by_address[address]
                task = asyncio.get_running_loop().create_task(replica.close(), name=f"close-{address}")
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
        ready: defaultdict[tuple[str, str], list[Replica]] = defaultdict(list)
        for replica in self._by_address.values():
            if not replica.is_draining:
                for served in replica.serving:
                    ready[served].append(replica)
        self._ready = {served: tuple(replicas) for served, replicas in ready.items()}
        self._on_change()
