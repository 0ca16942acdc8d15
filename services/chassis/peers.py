"""Links to the processes that services/NAME/ lists: dialled when they appear, dropped when they are gone.

A record that lapsed alone drops nobody while the link is healthy: when etcd was away, every lease lapses at once.
"""

from collections.abc import Iterable

import structlog

from services.chassis.etcd import Change
from services.chassis.link import Link, LinkClient, LinkHandler
from services.chassis.tls import LinkSecurity
from services.core import keys
from services.core.registry import ServiceRecord, dial_address
from services.core.spec import BadValueError
from turnout.v1 import link_pb2 as pb

log = structlog.get_logger()


class Peers:
    """Every live process of one service, as links of this one. A LinkHandler in front of `handler`."""

    def __init__(
        self, service: str, handler: LinkHandler, hello: pb.Hello, host: str, security: LinkSecurity | None = None
    ) -> None:
        self._prefix = keys.service(service, "")
        self._handler = handler
        self._hello = hello
        self._host = host
        self._security = security
        self._addresses: dict[str, str] = {}  # of the instances that have a record
        self._clients: dict[str, LinkClient] = {}  # by address
        self._retired: list[LinkClient] = []

    def apply(self, changes: Iterable[Change]) -> None:
        """Follow the service's records; other keys are ignored."""
        for change in changes:
            if change.key.startswith(self._prefix):
                self._follow(change.key.removeprefix(self._prefix), self._address(change))
        self._drop_the_gone()

    async def close(self) -> None:
        for client in [*self._clients.values(), *self._retired]:
            await client.close()

    # -- what the links call

    def opened(self, link: Link) -> None:
        self._handler.opened(link)

    def received(self, link: Link, frame: pb.Frame) -> None:
        self._handler.received(link, frame)

    def closed(self, link: Link, reason: str) -> None:
        self._handler.closed(link, reason)
        self._drop_the_gone(link)

    def _follow(self, name: str, address: str) -> None:
        self._addresses.pop(name, None)
        if address:
            self._addresses[name] = address
            if address not in self._clients:
                client = self._clients[address] = LinkClient(address, self, self._hello, security=self._security)
                client.start()

    def _drop_the_gone(self, lost: Link | None = None) -> None:
        """Dial those no more who have neither a record nor a link; `lost` is a link that has just closed."""
        listed = set(self._addresses.values())
        for address, client in list(self._clients.items()):
            link = client.link
            is_open = link is not None and link is not lost and bool(link.peer.instance)
            if address not in listed and not is_open:
                del self._clients[address]
                client.stop()
                self._retired = [*(old for old in self._retired if not old.is_stopped), client]

    def _address(self, change: Change) -> str:
        if change.value is None:
            return ""
        try:
            record = ServiceRecord.parse(change.value)
        except BadValueError as error:
            log.warning("peer_refused", key=change.key, reason=str(error))
            return ""
        return dial_address(record, self._host)
