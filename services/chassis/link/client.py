"""The dialling end of a link."""

import asyncio
import contextlib
import random
import ssl

import structlog
from ngh2 import Role

from services.chassis.link.connection import KEEPALIVE_S, Link, LinkHandler, is_unix
from services.chassis.listening import split_address
from services.chassis.tls import LinkSecurity
from services.chassis.tls.contexts import reason_of
from turnout.v1 import link_pb2 as pb

CONNECT_TIMEOUT_S = 5.0
_BACKOFF_S = (0.05, 2.0)

log = structlog.get_logger()


class LinkClient:
    """A link that is dialled again, with jittered backoff, until closed."""

    def __init__(
        self,
        address: str,
        handler: LinkHandler,
        hello: pb.Hello,
        *,
        keepalive_s: float = KEEPALIVE_S,
        security: LinkSecurity | None = None,
    ) -> None:
        self.address = address
        self.link: Link | None = None
        self._handler = handler
        self._hello = hello
        self._keepalive_s = keepalive_s
        self._security = None if is_unix(address) else security
        self._refused_by = ""  # as last said in the log
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"link-{self.address}")

    def stop(self) -> None:
        """Hang up and dial no more; `close` also waits for it."""
        if self._task is not None:
            self._task.cancel()

    @property
    def is_stopped(self) -> bool:
        return self._task is None or self._task.done()

    async def close(self) -> None:
        self.stop()
        if self._task is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        least, most = _BACKOFF_S
        wait = least
        while True:
            try:
                link, lost = await self._dial()
            except (OSError, TimeoutError, ValueError) as error:  # ValueError: it is no address
                wait = min(most, wait * 2)
                if isinstance(error, ssl.SSLError):
                    self._refused(reason_of(error))
            else:
                try:
                    self.link = link
                    reason = await lost
                    wait = least if link.peer.protocol else min(most, wait * 2)
                    self._refused("" if link.peer.protocol else reason)
                finally:
                    self.link = None
                    link.close("this end stops")
            await asyncio.sleep(wait * random.uniform(0.5, 1.5))  # noqa: S311 - jitter

    def _refused(self, reason: str) -> None:
        """Say why TLS was not agreed, unless that was said."""
        if self._security is not None and reason != self._refused_by:
            self._refused_by = reason
            if reason:
                log.warning("link_refused", address=self.address, reason=reason)

    async def _dial(self) -> tuple[Link, "asyncio.Future[str]"]:
        loop = asyncio.get_running_loop()
        lost: asyncio.Future[str] = loop.create_future()
        link = Link(self._handler, self._hello, Role.CLIENT, self._keepalive_s)
        link.on_lost = lambda _, reason: None if lost.done() else lost.set_result(reason)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                if is_unix(self.address):
                    await loop.create_unix_connection(lambda: link.protocol, self.address.removeprefix("unix:"))
                else:
                    host, port = split_address(self.address)
                    tls = (self._security.client, self._security.name_of(host)) if self._security else (None, None)
                    await loop.create_connection(lambda: link.protocol, host, port, ssl=tls[0], server_hostname=tls[1])
        except BaseException:
            link.protocol.drop()
            raise
        return link, lost
