"""A connection that a test can cut, or make silent."""

import asyncio
from typing import Any


class Proxy:
    """A TCP relay to `target` that can be cut, or go silent with its connections open."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._server: asyncio.Server | None = None
        self._relays: set[asyncio.Task[Any]] = set()
        self._port = 0

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self._port}"

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Refuse connections, and reset those there are."""
        if self._server:
            self._server.close()
            self._server = None
        for relay in self._relays:
            relay.cancel()
        await asyncio.gather(*self._relays, return_exceptions=True)

    def stall(self) -> None:
        self._flowing.clear()

    def flow(self) -> None:
        self._flowing.set()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relay = asyncio.ensure_future(self._relay(reader, writer))
        self._relays.add(relay)
        relay.add_done_callback(self._relays.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self._target.split(":")
        writers = [writer]
        try:
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            writers.append(far_writer)
            await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
        except OSError:
            pass
        finally:
            for each in writers:
                each.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._flowing.wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError
