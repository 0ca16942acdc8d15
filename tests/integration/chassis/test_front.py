"""Both fronts hand calls over with the time that is really left."""

import asyncio
import contextlib
import threading
import time

import grpc
import grpc.aio
import pytest

from services.chassis.front import Front, Metadata, open_front

PATH = "/test.Test/Call"


class Handler:
    """Keeps what it was told, and answers with the payload."""

    front: Front

    def __init__(self) -> None:
        self.remaining_s: list[float | None] = []
        self.came = asyncio.Event()

    def call(
        self,
        call_id: int,
        payload: bytes,
        metadata: Metadata,
        remaining_s: float | None,
        peer: str,
        certificate: bytes,
    ) -> None:
        self.remaining_s.append(remaining_s)
        self.front.respond(call_id, payload)
        self.came.set()

    def cancelled(self, call_id: int) -> None:
        pass


def send(address: str, timeout_s: float | None) -> threading.Thread:
    """A call on a thread of its own, whose outcome nobody looks at."""

    def run() -> None:
        with grpc.insecure_channel(address) as channel, contextlib.suppress(grpc.RpcError):
            channel.unary_unary(PATH)(b"x", timeout=timeout_s)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.parametrize("kind", ["native", "aio"])
@pytest.mark.parametrize("timeout_s", [None, 30.0])
async def test_a_call_has_the_time_that_its_caller_gave(kind: str, timeout_s: float | None) -> None:
    handler = Handler()
    handler.front = await open_front("127.0.0.1:0", PATH, handler, grpc.aio.server(), native=kind == "native")
    thread = send(handler.front.address, timeout_s)
    await asyncio.wait_for(handler.came.wait(), 20)
    await asyncio.to_thread(thread.join)
    await handler.front.stop(0)

    (remaining_s,) = handler.remaining_s
    if timeout_s is None:
        assert remaining_s is None
    else:
        assert remaining_s is not None
        assert timeout_s - 15 < remaining_s < timeout_s + 1  # gRPC rounds up what it sends


async def test_what_a_busy_loop_took_is_no_time_left() -> None:
    handler = Handler()
    handler.front = await open_front("127.0.0.1:0", PATH, handler, grpc.aio.server(), native=True)
    threads = []
    for _ in range(3):
        handler.came.clear()
        threads.append(send(handler.front.address, 30.0))
        time.sleep(1.0)  # noqa: ASYNC251 - the loop is busy, and the call waits for it
        await asyncio.wait_for(handler.came.wait(), 20)
    for thread in threads:
        await asyncio.to_thread(thread.join)
    await handler.front.stop(0)

    least = min(left for left in handler.remaining_s if left is not None)
    assert least < 29.6  # of 30: once at least it had come well before the loop was free
