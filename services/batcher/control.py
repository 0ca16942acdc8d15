"""The runtime's word on its instances: RuntimeControl.Watch on RUN/runtime.sock, watched again whenever it ends."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import grpc
import structlog

from services.chassis.backoff import Backoff
from turnout.v1 import runtime_pb2 as pb
from turnout.v1 import runtime_pb2_grpc as pb_grpc

_FIRST_STATE_S = 5.0
_BACKOFF_S = (0.05, 1.0)
_MAX_STATE_BYTES = 64 << 20
_OPTIONS = [
    ("grpc.max_receive_message_length", _MAX_STATE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
]

log = structlog.get_logger()


class RuntimeWatch:
    """Calls `on_state` with every state of the pod's runtime, and `on_lost` when there is nobody to tell it."""

    def __init__(self, socket: Path, on_state: Callable[[pb.RuntimeState], None], on_lost: Callable[[], None]) -> None:
        self.connected = False
        self._socket = socket
        self._on_state = on_state
        self._on_lost = on_lost

    async def run(self) -> None:
        """Never returns."""
        backoff = Backoff(*_BACKOFF_S)
        while True:
            backoff.begin()
            reason = await self._watch()
            if self.connected:
                self.connected = False
                backoff.reset()
                log.warning("runtime_lost", socket=str(self._socket), reason=reason)
                self._on_lost()
            await asyncio.sleep(backoff.next_s())

    async def _watch(self) -> str:
        """Follow one stream to its end; why it ended."""
        async with grpc.aio.insecure_channel(f"unix:{self._socket.absolute()}", options=_OPTIONS) as channel:
            call = pb_grpc.RuntimeControlStub(channel).Watch(pb.WatchRequest())
            try:
                async with asyncio.timeout(_FIRST_STATE_S):
                    state = await call.read()
                while isinstance(state, pb.RuntimeState):
                    if not self.connected:
                        self.connected = True
                        log.info("runtime_found", socket=str(self._socket), instances=len(state.instances))
                    self._on_state(state)
                    state = await call.read()
            except TimeoutError:
                return f"no state within {_FIRST_STATE_S:g} s"
            except grpc.aio.AioRpcError as error:
                return f"{error.code().name}: {error.details()}"
            finally:
                call.cancel()
        return "the stream ended"
