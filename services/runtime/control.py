"""turnout.v1.RuntimeControl on RUN/runtime.sock: which instances there are, for the pod's batcher."""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import grpc.aio

from services.chassis.grpc_server import bind, grpc_server
from services.chassis.listening import CannotListenError
from turnout.v1 import runtime_pb2 as pb
from turnout.v1 import runtime_pb2_grpc as pb_grpc

SOCKET = "runtime.sock"
WORKER_PREFIX = "w-"
_LOCK = "runtime.lock"


class Control(pb_grpc.RuntimeControlServicer):
    """The latest state, sent whole to every watcher at once and after each change; a slow watcher skips states."""

    def __init__(self, runtime: str) -> None:
        self._state = pb.RuntimeState(runtime=runtime)
        self._changed = asyncio.Event()

    def publish(self, instances: Iterable[pb.Instance], *, draining: bool) -> None:
        """Make this the state; a no-op when it is already."""
        state = pb.RuntimeState(runtime=self._state.runtime, instances=instances, draining=draining)
        if state != self._state:
            self._state = state
            self._changed.set()
            self._changed = asyncio.Event()

    async def Watch(
        self,
        request: pb.WatchRequest,
        context: grpc.aio.ServicerContext,
    ) -> AsyncIterator[pb.RuntimeState]:
        while True:
            changed = self._changed
            yield self._state
            await changed.wait()


@contextmanager
def run_folder(folder: Path) -> Iterator[None]:
    """Own a run folder: private to this user, cleared of what an earlier runtime left.

    Raises CannotListenError when another runtime owns it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CannotListenError(str(folder), "is in use: another runtime owns this run folder") from None
        for stale in [folder / SOCKET, *folder.glob(f"{WORKER_PREFIX}*.sock")]:
            stale.unlink(missing_ok=True)
        yield
    finally:
        (folder / SOCKET).unlink(missing_ok=True)
        os.close(descriptor)


@asynccontextmanager
async def serve_control(control: Control, socket: Path) -> AsyncIterator[str]:
    """Serve `control` on an absolute socket path until left; gives the address."""
    server = grpc_server()
    pb_grpc.add_RuntimeControlServicer_to_server(control, server)
    address = bind(server, f"unix:{socket}")
    await server.start()
    try:
        yield address
    finally:
        await server.stop(grace=0)
