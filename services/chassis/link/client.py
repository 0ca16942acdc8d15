"""The dialling end of a link."""

import asyncio
import contextlib
import random

from ngh2 import Role

from services.chassis.link.connection import KEEPALIVE_S, Link, LinkHandler, is_unix
from services.chassis.listening import split_address
from turnout.v1 import link_pb2 as pb

CONNECT_TIMEOUT_S = 5.0
_BACKOFF_S = (0.05, 2.0)


class LinkClient:
    """A link that is dialled again, with jittered backoff, until closed."""

    def __init__(
        self, address: str, handler: LinkHandler, hello: pb.Hello, *, keepalive_s: float = KEEPALIVE_S
    ) -> None:
        self.address = address
        self.link: Link | None = None
        self._handler = handler
        self._hello = hello
        self._keepalive_s = keepalive_s
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
            except (OSError, TimeoutError, ValueError):  # ValueError: it is no address
                wait = min(most, wait * 2)
            else:
                try:
                    self.link = link
                    await lost
                    wait = least if link.peer.protocol else min(most, wait * 2)
                finally:
                    self.link = None
                    link.close("this end stops")
            await asyncio.sleep(wait * random.uniform(0.5, 1.5))  # noqa: S311 - jitter

    async def _dial(self) -> tuple[Link, "asyncio.Future[str]"]:
        loop = asyncio.get_running_loop()
        lost: asyncio.Future[str] = loop.create_future()
        link = Link(self._handler, self._hello, Role.CLIENT, self._keepalive_s)
        link.on_lost = lambda _, reason: None if lost.done() else lost.set_result(reason)
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            if is_unix(self.address):
                await loop.create_unix_connection(lambda: link.protocol, self.address.removeprefix("unix:"))
            else:
                await loop.create_connection(lambda: link.protocol, *split_address(self.address))
        return link, lost
