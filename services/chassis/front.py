"""The front door for one hot unary method; a grpc.aio server beside it, on the same port, serves everything else.

Plaintext listeners are served by pygrpc-native: HTTP/2 and gRPC in Rust, calls reach Python in batches. Where it
is absent or switched off, the same handler is served by grpc.aio. The handler takes raw bytes and answers by call id.
"""

import asyncio
import contextlib
import importlib.util
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import grpc
import structlog

from services.chassis.grpc_server import STATUS, bind
from services.chassis.listening import CannotListenError, split_address
from services.chassis.retry_hint import PUSHBACK
from services.chassis.tls import ListenerSecurity
from services.core.errors import INTERNAL, OK

log = structlog.get_logger()

Metadata = Sequence[tuple[str, str | bytes]]
_BATCH = 512  # events taken from the native front at a time


class FrontHandler(Protocol):
    """Serves the hot method; called on the loop, must not block or raise."""

    def call(
        self,
        call_id: int,
        payload: bytes,
        metadata: Metadata,
        remaining_s: float | None,
        peer: str,
        certificate: bytes,
    ) -> None:
        """A call has come; answer it by `respond` or `fail` with its id, now or later.

        `certificate`: PEM or DER of the caller's, verified; empty = it showed none.
        """

    def cancelled(self, call_id: int) -> None:
        """The caller went away or its deadline passed: answers to this id go nowhere."""


class Front(Protocol):
    """A listener; `address` is the bound host:port."""

    address: str

    def respond(self, call_id: int, payload: bytes, trailing: Metadata | None = None) -> object: ...
    def fail(self, call_id: int, code: int, message: str, trailing: Metadata | None = None) -> object: ...
    async def stop(self, grace_s: float) -> None: ...


def has_native() -> bool:
    return importlib.util.find_spec("pygrpc_native") is not None


async def open_front(
    address: str,
    path: str,
    handler: FrontHandler,
    other: grpc.aio.Server,
    *,
    native: bool,
    reuse_port: bool = False,
    max_concurrent_streams: int = 1024,
    security: ListenerSecurity | None = None,
) -> Front:
    """Listen on `address` for the method `path`; every other method goes to `other`, which this starts.

    Raises CannotListenError when the address is taken.
    """
    if native and security is not None:
        log.info("native_front_left", reason="it has no TLS: grpc.aio serves every method")
    elif native and has_native():
        try:
            front = NativeFront(address, path, handler, other, reuse_port=reuse_port, streams=max_concurrent_streams)
        except OSError as error:
            raise CannotListenError.explain(address, error) from error
        await front.start()
        return front
    fallback = AioFront(address, path, handler, other, security)
    await fallback.start()
    return fallback


class NativeFront:
    """pygrpc-native: a pump thread waits outside the GIL and hands whole batches of calls to the loop."""

    def __init__(
        self,
        address: str,
        path: str,
        handler: FrontHandler,
        other: grpc.aio.Server,
        *,
        reuse_port: bool,
        streams: int,
    ) -> None:
        from pygrpc_native import EVENT_CALL, NativeGrpcFront  # noqa: PLC0415 - an optional package

        self._handler = handler
        self._other = other
        self._call_event = EVENT_CALL
        self._front = NativeGrpcFront(
            address,
            [(path, False)],
            io_threads=1,
            call_details=True,
            metrics=True,
            keepalive_time_ms=60_000,
            max_concurrent_streams=streams,
            reuse_port=reuse_port,
        )
        self._host = split_address(address)[0]
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._pump, name="front-pump", daemon=True)
        self._folder = tempfile.TemporaryDirectory(prefix="turnout-front-")
        self._closing = False
        self.address = address

    async def start(self) -> None:
        """Start the grpc.aio server on a private socket, then listen."""
        socket = Path(self._folder.name) / "other.sock"
        self._other.add_insecure_port(f"unix:{socket}")
        await self._other.start()
        self._front.set_fallback(str(socket))
        self._front.start()
        self.address = f"{self._host}:{self._front.bound_port}"
        self._thread.start()

    def respond(self, call_id: int, payload: bytes, trailing: Metadata | None = None) -> object:
        return self._front.respond(call_id, payload, None, trailing)

    def fail(self, call_id: int, code: int, message: str, trailing: Metadata | None = None) -> object:
        # This front keeps grpc-* keys to itself; the retry hint still travels as RetryInfo in the status details.
        allowed = [pair for pair in trailing or () if pair[0] != PUSHBACK]
        return self._front.fail(call_id, code, message, allowed)

    def metrics(self) -> dict[str, Any]:
        """What the front itself counted, the time before Python saw a call included."""
        return self._front.metrics() or {}

    async def stop(self, grace_s: float) -> None:
        """Close the listener; calls in flight were answered by the drain before this."""
        self._closing = True
        await self._other.stop(grace_s)
        await self._loop.run_in_executor(None, self._front.close)
        await self._loop.run_in_executor(None, self._thread.join, 5)
        self._folder.cleanup()

    def _pump(self) -> None:
        receive = self._front.recv_batch_details
        deliver = self._loop.call_soon_threadsafe
        while (events := receive(_BATCH)) is not None:
            try:
                deliver(self._deliver, events, time.perf_counter())
            except RuntimeError:
                return  # the loop is closed: so is the process, soon

    def _deliver(self, events: list[Any], taken_s: float) -> None:
        """Hand over what came at `taken_s`: what waited for a busy loop since has less time left."""
        call, is_call = self._handler.call, self._call_event
        waited_s = time.perf_counter() - taken_s
        for kind, call_id, _, payload, _, details in events:
            try:
                if kind == is_call:
                    metadata, peer, left_s = details
                    call(call_id, payload, metadata, None if left_s is None else left_s - waited_s, peer, b"")
                else:
                    self._handler.cancelled(call_id)
            except Exception:  # one call's fault is not its neighbours'
                log.exception("call_failed")
                self._front.fail(call_id, INTERNAL, "internal error")


class AioFront:
    """grpc.aio: a task a call. Slower, and it knows TLS and connection ages."""

    def __init__(
        self,
        address: str,
        path: str,
        handler: FrontHandler,
        other: grpc.aio.Server,
        security: ListenerSecurity | None = None,
    ) -> None:
        self._security = security
        self._handler = handler
        self._server = other
        self._calls: dict[int, asyncio.Future[tuple[int, Any, Metadata | None]]] = {}
        self._last_id = 0
        self.address = address
        service, _, method = path.strip("/").rpartition("/")
        handlers = {method: grpc.unary_unary_rpc_method_handler(self._serve)}
        # Not only add_generic_rpc_handlers: a registered method wins over generic handlers of the same service.
        self._server.add_registered_method_handlers(service, handlers)  # type: ignore[attr-defined]

    async def start(self) -> None:
        self.address = bind(self._server, self.address, self._security)
        await self._server.start()

    def respond(self, call_id: int, payload: bytes, trailing: Metadata | None = None) -> object:
        return self._settle(call_id, OK, payload, trailing)

    def fail(self, call_id: int, code: int, message: str, trailing: Metadata | None = None) -> object:
        return self._settle(call_id, code, message, trailing)

    async def stop(self, grace_s: float) -> None:
        await self._server.stop(grace_s)

    def _settle(self, call_id: int, code: int, value: bytes | str, trailing: Metadata | None) -> bool:
        future = self._calls.pop(call_id, None)
        if future is None or future.done():
            return False
        future.set_result((code, value, trailing))
        return True

    async def _serve(self, payload: bytes, context: grpc.aio.ServicerContext) -> bytes:
        self._last_id = call_id = self._last_id + 1
        future = self._calls[call_id] = asyncio.get_running_loop().create_future()
        metadata: Any = context.invocation_metadata() or ()
        self._handler.call(call_id, payload, metadata, remaining_s(context), context.peer(), certificate_of(context))
        try:
            code, value, trailing = await future
        except asyncio.CancelledError:
            self._calls.pop(call_id, None)
            self._handler.cancelled(call_id)
            raise
        if code == OK:
            if trailing:
                context.set_trailing_metadata(tuple(trailing))
            return bytes(value)
        try:
            await context.abort(STATUS.get(code, grpc.StatusCode.UNKNOWN), str(value), tuple(trailing or ()))
        except grpc.aio.InternalError:  # the caller went away this very moment: that is a cancel, and no news
            raise asyncio.CancelledError from None
        return b""  # never: abort raises


def certificate_of(context: grpc.aio.ServicerContext) -> bytes:
    """The caller's certificate in PEM, which TLS has verified; empty where there is none."""
    return next(iter(context.auth_context().get("x509_pem_cert", ())), b"")


def remaining_s(context: grpc.aio.ServicerContext) -> float | None:
    """Until the caller's deadline; None when it has none."""
    with contextlib.suppress(TypeError):
        remaining = float(context.time_remaining())
        return remaining if remaining < 1e9 else None
    return None
