"""A real service process of a few methods, to try the chassis with: python -m tests.support.tiny_service."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import grpc.aio

from services.chassis.app import App
from services.chassis.config import ServiceConfig
from services.chassis.grpc_server import bind, grpc_server
from services.chassis.lifecycle import run


class TinyConfig(ServiceConfig):
    grpc_address: str = "127.0.0.1:0"
    hang: str = ""  # where the stop hangs: start, drain, leave, thread; empty = nowhere


class Tiny:
    """Hold answers only once the drain has begun; Fail ends a task of the app; NotReady sets why it is not ready."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._released = asyncio.Event()
        self._reason: str | None = None
        app.ready_when(lambda: self._reason)
        app.on_drain(self._release)

    async def hold(self, _request: bytes, _context: object) -> AsyncIterator[bytes]:
        yield b"begun"
        await self._released.wait()
        yield b"finished"

    async def fail(self, _request: bytes, _context: object) -> bytes:
        self._app.spawn(self._raise(), "doomed")
        return b""

    async def not_ready(self, request: bytes, _context: object) -> bytes:
        self._reason = request.decode() or None
        return b""

    async def _release(self) -> None:
        self._released.set()

    async def _raise(self) -> None:
        raise RuntimeError("the loop of it broke")

    def handlers(self) -> grpc.GenericRpcHandler:
        methods = {
            "Hold": grpc.unary_stream_rpc_method_handler(self.hold),
            "Fail": grpc.unary_unary_rpc_method_handler(self.fail),
            "NotReady": grpc.unary_unary_rpc_method_handler(self.not_ready),
        }
        return grpc.method_handlers_generic_handler("test.Tiny", methods)


@asynccontextmanager
async def build(config: TinyConfig, app: App) -> AsyncIterator[None]:
    async def for_ever() -> None:
        await asyncio.Event().wait()

    if config.hang == "start":
        app.log.info("start_hangs")
        await for_ever()
    if config.hang == "thread":
        threading.Thread(target=threading.Event().wait).start()
    server = grpc_server()
    server.add_generic_rpc_handlers([Tiny(app).handlers()])
    address = bind(server, config.grpc_address)
    await server.start()
    app.log.info("listening", name="grpc", address=address)
    app.announce(address=address)
    app.spawn(for_ever(), "background")

    async def stop() -> None:
        await server.stop(config.drain_s)

    app.on_drain(stop)
    if config.hang == "drain":
        app.on_drain(for_ever)
    yield
    if config.hang == "leave":
        await for_ever()


if __name__ == "__main__":
    run("tiny", TinyConfig, build)
