"""A thin etcd client: keys, compare-and-swap, leases and watches below one prefix."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from services.chassis.etcd.connection import Connection, Method, TlsFiles
from services.chassis.etcd.errors import CompactedError, EtcdError, LeaseLostError
from services.chassis.etcd.watch import Watch, WatchTiming
from services.chassis.tls import Material
from services.core import keys
from turnout.etcd import rpc_pb2 as rpc

_RANGE: Method[rpc.RangeRequest, rpc.RangeResponse] = Method(
    "/etcdserverpb.KV/Range", rpc.RangeResponse, repeatable=True
)
_PUT: Method[rpc.PutRequest, rpc.PutResponse] = Method("/etcdserverpb.KV/Put", rpc.PutResponse)
_DELETE: Method[rpc.DeleteRangeRequest, rpc.DeleteRangeResponse] = Method(
    "/etcdserverpb.KV/DeleteRange", rpc.DeleteRangeResponse
)
_TXN: Method[rpc.TxnRequest, rpc.TxnResponse] = Method("/etcdserverpb.KV/Txn", rpc.TxnResponse)
_GRANT: Method[rpc.LeaseGrantRequest, rpc.LeaseGrantResponse] = Method(
    "/etcdserverpb.Lease/LeaseGrant", rpc.LeaseGrantResponse
)
_REVOKE: Method[rpc.LeaseRevokeRequest, rpc.LeaseRevokeResponse] = Method(
    "/etcdserverpb.Lease/LeaseRevoke", rpc.LeaseRevokeResponse, repeatable=True
)
_KEEP_ALIVE: Method[rpc.LeaseKeepAliveRequest, rpc.LeaseKeepAliveResponse] = Method(
    "/etcdserverpb.Lease/LeaseKeepAlive", rpc.LeaseKeepAliveResponse, repeatable=True
)
_STATUS: Method[rpc.StatusRequest, rpc.StatusResponse] = Method(
    "/etcdserverpb.Maintenance/Status", rpc.StatusResponse, repeatable=True
)


class Entry(NamedTuple):
    """A key (below the client's prefix) as etcd holds it; lease 0 = none."""

    key: str
    value: bytes
    mod_revision: int
    create_revision: int
    lease: int


class Listing(NamedTuple):
    """All entries below a prefix at one revision of one cluster."""

    revision: int
    entries: dict[str, Entry]
    cluster: int = 0


class ServerStatus(NamedTuple):
    """Of the endpoint that answered; leader 0 = it knows none."""

    version: str
    leader: int


class EtcdClient:
    """Keys passed in and out are below `prefix`. Every call has a deadline of `timeout_s` and raises EtcdError."""

    def __init__(
        self,
        endpoints: Sequence[str],
        prefix: str = keys.PREFIX,
        *,
        user: str = "",
        password: str = "",
        tls: TlsFiles | Material | None = None,
        timeout_s: float = 5.0,
    ) -> None:
        self.prefix = prefix
        self._prefix = prefix.encode()
        self._connection = Connection(endpoints, user=user, password=password, tls=tls, timeout_s=timeout_s)

    async def get(self, key: str) -> Entry | None:
        response = await self._connection.call(_RANGE, rpc.RangeRequest(key=self._full(key)))
        return self._entry(response.kvs[0]) if response.kvs else None

    async def list(self, prefix: str) -> Listing:
        """Every entry below `prefix` at one revision."""
        start = self._full(prefix)
        response = await self._connection.call(_RANGE, rpc.RangeRequest(key=start or b"\0", range_end=range_end(start)))
        entries = (self._entry(kv) for kv in response.kvs)
        return Listing(response.header.revision, {entry.key: entry for entry in entries}, response.header.cluster_id)

    async def earlier(self, key: str, before: int) -> AsyncIterator[Entry]:
        """Values of `key` before revision `before`, newest first, back to its creation or to what was compacted."""
        while before > 1:
            request = rpc.RangeRequest(key=self._full(key), revision=before - 1)
            try:
                response = await self._connection.call(_RANGE, request)
            except CompactedError:
                return
            if not response.kvs:
                return
            entry = self._entry(response.kvs[0])
            yield entry
            before = entry.mod_revision

    async def put(self, key: str, value: bytes, *, lease: int = 0) -> int:
        """The revision of this write. Raises LeaseLostError where etcd does not know `lease`."""
        request = rpc.PutRequest(key=self._full(key), value=value, lease=lease)
        return (await self._connection.call(_PUT, request)).header.revision

    async def put_if(self, key: str, value: bytes, *, mod_revision: int) -> bool:
        """Compare-and-swap: False if the key was changed after `mod_revision`; 0 = it must not exist."""
        full = self._full(key)
        compare = rpc.Compare(target=rpc.Compare.MOD, key=full, mod_revision=mod_revision)
        put = rpc.RequestOp(request_put=rpc.PutRequest(key=full, value=value))
        return await self._if(compare, put)

    async def swap(self, key: str, value: bytes | None, *, mod_revision: int) -> int:
        """As put_if, or delete where `value` is None: the revision of this change, 0 if the key was changed before."""
        full = self._full(key)
        compare = rpc.Compare(target=rpc.Compare.MOD, key=full, mod_revision=mod_revision)
        if value is None:
            operation = rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=full))
        else:
            operation = rpc.RequestOp(request_put=rpc.PutRequest(key=full, value=value))
        response = await self._connection.call(_TXN, rpc.TxnRequest(compare=[compare], success=[operation]))
        return response.header.revision if response.succeeded else 0

    async def delete(self, key: str) -> bool:
        """Whether there was such a key."""
        return (await self._connection.call(_DELETE, rpc.DeleteRangeRequest(key=self._full(key)))).deleted > 0

    async def delete_if_lease(self, key: str, lease: int) -> bool:
        """Delete only what hangs on `lease`; False if it was someone else's, or not there."""
        full = self._full(key)
        compare = rpc.Compare(target=rpc.Compare.LEASE, key=full, lease=lease)
        return await self._if(compare, rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=full)))

    async def grant(self, ttl_s: int) -> int:
        """A new lease, which etcd forgets, with its keys, `ttl_s` after the last keep_alive."""
        response = await self._connection.call(_GRANT, rpc.LeaseGrantRequest(ttl=ttl_s))
        if response.error:
            raise EtcdError(f"etcd granted no lease: {response.error}")
        return response.id

    async def keep_alive(self, lease: int) -> None:
        """Start the lease's time anew. Raises LeaseLostError where etcd does not know it."""
        stream = await self._connection.open(_KEEP_ALIVE)
        try:
            async with asyncio.timeout(self._connection.timeout_s):
                await stream.write(rpc.LeaseKeepAliveRequest(id=lease))
                response = await stream.read()
        except TimeoutError:
            raise stream.silent(self._connection.timeout_s) from None
        finally:
            stream.cancel()
        if response.ttl <= 0:
            raise LeaseLostError(f"etcd does not know lease {lease:x}")

    async def revoke(self, lease: int) -> None:
        """End a lease and delete the keys that hang on it."""
        await self._connection.call(_REVOKE, rpc.LeaseRevokeRequest(id=lease))

    async def status(self) -> ServerStatus:
        response = await self._connection.call(_STATUS, rpc.StatusRequest())
        return ServerStatus(response.version, response.leader)

    def watch(self, prefix: str, after: int, *, cluster: int, timing: WatchTiming) -> Watch:
        """What changes below `prefix` after revision `after` of `cluster` (see Listing): a context."""
        start = self._full(prefix)
        create = rpc.WatchCreateRequest(
            key=start or b"\0", range_end=range_end(start), start_revision=after + 1, progress_notify=True
        )
        return Watch(self._connection, create, cluster=cluster, skip=len(self._prefix), timing=timing)

    def renew(self, tls: Material) -> None:
        """Show and believe something else from the next call on."""
        self._connection.renew(tls)

    async def close(self) -> None:
        await self._connection.close()

    async def _if(self, compare: rpc.Compare, operation: rpc.RequestOp) -> bool:
        return (await self._connection.call(_TXN, rpc.TxnRequest(compare=[compare], success=[operation]))).succeeded

    def _full(self, key: str) -> bytes:
        return self._prefix + key.encode(errors="surrogateescape")

    def _entry(self, kv: rpc.KeyValue) -> Entry:
        key = kv.key[len(self._prefix) :].decode(errors="surrogateescape")
        return Entry(key, kv.value, kv.mod_revision, kv.create_revision, kv.lease)


def range_end(prefix: bytes) -> bytes:
    r"""The first key after all that start with `prefix`; b"\0" = no end."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1]) if head else b"\0"
