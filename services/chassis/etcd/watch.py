"""One watch stream: what changed, in order, until it breaks; silence is asked about, then counts as broken."""

import asyncio
from dataclasses import dataclass
from typing import NamedTuple, Self

from services.chassis.etcd.connection import Connection, Method, Stream
from services.chassis.etcd.errors import CompactedError, EtcdError
from turnout.etcd import rpc_pb2 as rpc

_WATCH: Method[rpc.WatchRequest, rpc.WatchResponse] = Method("/etcdserverpb.Watch/Watch", rpc.WatchResponse)
_REQUIRE_LEADER = (("hasleader", "true"),)  # a member cut off from its cluster ends the stream instead of going silent
_PROGRESS = rpc.WatchRequest(progress_request=rpc.WatchProgressRequest())


class Change(NamedTuple):
    """A key's new value, or None where it was deleted, as of `revision`."""

    key: str
    value: bytes | None
    revision: int


@dataclass(frozen=True, slots=True)
class WatchTiming:
    """After how much silence to ask etcd for a sign of life, and after how much to give the stream up."""

    progress_s: float = 5.0
    dead_s: float = 8.0


class Watch:
    """A context; call next() for ever. `skip` is the length of the prefix to cut from keys."""

    def __init__(
        self, connection: Connection, create: rpc.WatchCreateRequest, *, cluster: int, skip: int, timing: WatchTiming
    ) -> None:
        self._connection = connection
        self._create = create
        self._cluster = cluster
        self._skip = skip
        self._timing = timing
        self._stream: Stream[rpc.WatchRequest, rpc.WatchResponse] | None = None

    async def __aenter__(self) -> Self:
        stream = await self._connection.open(_WATCH, _REQUIRE_LEADER)
        self._stream = stream
        try:
            async with asyncio.timeout(self._timing.dead_s):
                await stream.write(rpc.WatchRequest(create_request=self._create))
        except BaseException as error:
            stream.cancel()
            if isinstance(error, TimeoutError):
                raise stream.silent(self._timing.dead_s) from None
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._stream:
            self._stream.cancel()

    async def next(self) -> list[Change]:
        """All changes of one message, atomically; none where it was only a sign of life.

        Raises CompactedError when there is a gap and the keys must be listed again, EtcdError when the watch broke.
        """
        response = await self._read()
        if response.canceled:
            self._refuse(response)
        if response.created:
            self._check_history(response.header)
        return [self._change(event) for event in response.events]

    async def _read(self) -> rpc.WatchResponse:
        if self._stream is None:
            raise RuntimeError("a watch is read inside its context")
        reading = asyncio.ensure_future(self._stream.read())
        try:
            async with asyncio.timeout(self._timing.dead_s):
                await asyncio.wait({reading}, timeout=self._timing.progress_s)
                if not reading.done():
                    await self._stream.write(_PROGRESS)
                return await reading
        except TimeoutError:
            raise self._stream.silent(self._timing.dead_s) from None
        finally:
            reading.cancel()

    def _refuse(self, response: rpc.WatchResponse) -> None:
        if response.compact_revision:
            raise CompactedError(f"revisions up to {response.compact_revision} were compacted")
        self._connection.forget_token()  # etcd reports a stale token as a lack of permission here
        raise EtcdError(f"etcd canceled the watch: {response.cancel_reason or 'no reason given'}")

    def _check_history(self, header: rpc.ResponseHeader) -> None:
        """A store that was wiped or replaced would stay silent until it reached our old revision."""
        if header.revision < self._create.start_revision - 1 or self._cluster not in (0, header.cluster_id):
            raise CompactedError(f"etcd holds another history: revision {header.revision}")

    def _change(self, event: rpc.Event) -> Change:
        key = event.kv.key[self._skip :].decode(errors="surrogateescape")
        value = None if event.type == rpc.Event.DELETE else event.kv.value
        return Change(key, value, event.kv.mod_revision)
