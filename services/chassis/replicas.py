"""Links to the replicas that endpoints/ names: who is alive, what each serves, and the choice between them.

etcd says where to dial; what a replica serves is what its link says (Serving). So a lapsed lease alone takes nobody out
while the link is healthy, and a lost link takes a replica out at once.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Iterable

import structlog

from services.chassis.arena.arenas import Arenas
from services.chassis.etcd import Change
from services.chassis.replica import OnReply, OnStats, Replica
from services.chassis.tls import LinkSecurity
from services.core import keys
from services.core.registry import Endpoint, dial_address
from services.core.rendezvous import choose
from services.core.spec import BadValueError
from turnout.v1 import link_pb2 as pb

__all__ = ["OnReply", "Replica", "Replicas"]

log = structlog.get_logger()


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
