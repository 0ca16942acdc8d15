"""Links to the processes that services/NAME/ lists: dialled when they appear, dropped when they are gone."""

from collections.abc import Iterable

import structlog

from services.chassis.etcd import Change
from services.chassis.link import Link, LinkClient, LinkHandler
from services.core import keys
from services.core.registry import ServiceRecord
from services.core.spec import BadValueError
from turnout.v1 import link_pb2 as pb

log = structlog.get_logger()


class Peers:
    """Every live process of one service, as links of this one."""

    def __init__(self, service: str, handler: LinkHandler, hello: pb.Hello, host: str) -> None:
        self._prefix = keys.service(service, "")
        self._handler = handler
        self._hello = hello
        self._host = host
        self._clients: dict[str, LinkClient] = {}
        self._retired: list[LinkClient] = []

    def apply(self, changes: Iterable[Change]) -> None:
        """Follow the service's records; other keys are ignored."""
        for change in changes:
            if change.key.startswith(self._prefix):
                self._follow(change.key.removeprefix(self._prefix), self._address(change))

    def connected(self) -> dict[str, Link]:
        """Instance -> its open link."""
        return {
            name: client.link
            for name, client in self._clients.items()
            if client.link is not None and client.link.peer.instance
        }

    async def close(self) -> None:
        for client in [*self._clients.values(), *self._retired]:
            await client.close()

    def _follow(self, name: str, address: str) -> None:
        known = self._clients.get(name)
        if known is not None and known.address != address:
            del self._clients[name]
            known.stop()
            self._retired = [*(old for old in self._retired if not old.is_stopped), known]
        if address and name not in self._clients:
            client = self._clients[name] = LinkClient(address, self._handler, self._hello)
            client.start()

    def _address(self, change: Change) -> str:
        if change.value is None:
            return ""
        try:
            record = ServiceRecord.parse(change.value)
        except BadValueError as error:
            log.warning("peer_refused", key=change.key, reason=str(error))
            return ""
        if record.local_socket and record.host == self._host:
            return f"unix:{record.local_socket}"
        return record.address
