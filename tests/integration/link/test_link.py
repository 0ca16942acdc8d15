"""Links between two ends of our own, and between one of them and grpc.aio."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
import structlog

from services.chassis.link import FRAME_BYTES, Link, LinkClient, LinkServer, listen
from services.core.errors import NotFoundError
from tests.support.channels import own_channel
from turnout.v1 import link_pb2 as pb
from turnout.v1 import link_pb2_grpc


class Recorder:
    """A LinkHandler that keeps what happens and can wait for it."""

    def __init__(self) -> None:
        self.links: list[Link] = []
        self.frames: list[pb.Frame] = []
        self.closed_with: list[str] = []
        self._changed = asyncio.Event()

    def opened(self, link: Link) -> None:
        self.links.append(link)
        self._changed.set()

    def received(self, link: Link, frame: pb.Frame) -> None:
        if not frame.HasField("hello"):
            self.frames.append(frame)
        self._changed.set()

    def closed(self, link: Link, reason: str) -> None:
        self.closed_with.append(reason)
        self._changed.set()

    async def until(self, condition: object, timeout_s: float = 10) -> None:
        async with asyncio.timeout(timeout_s):
            while not condition():  # type: ignore[operator]
                self._changed.clear()
                await self._changed.wait()

    def requests(self) -> list[pb.Request]:
        return [request for frame in self.frames for request in frame.requests]

    def replies(self) -> list[pb.Reply]:
        return [reply for frame in self.frames for reply in frame.replies]


class Echo(Recorder):
    """Answers each request with its inputs, in reverse order within a frame."""

    def received(self, link: Link, frame: pb.Frame) -> None:
        super().received(link, frame)
        for request in reversed(frame.requests):
            reply = link.frame_for(sum(len(t.data) for t in request.inputs) + 64).replies.add()
            reply.id = request.id
            reply.outputs.extend(request.inputs)


def hello(name: str = "test") -> pb.Hello:
    return pb.Hello(service=name, instance=f"{name}-1", protocol=1)


@pytest.fixture
def short_path() -> Path:
    return Path(tempfile.mkdtemp(prefix="t-")) / "s.sock"


@asynccontextmanager
async def connected(
    address: str = "127.0.0.1:0", server_side: Recorder | None = None
) -> AsyncIterator[tuple[Recorder, Recorder, LinkServer, LinkClient]]:
    near, far = Recorder(), server_side or Echo()
    server = await listen(address, far, hello("far"))
    client = LinkClient(server.address, near, hello("near"))
    client.start()
    try:
        await near.until(lambda: near.links)
        yield near, far, server, client
    finally:
        await client.close()
        await server.close()


@pytest.mark.parametrize("kind", ["tcp", "unix"])
async def test_everything_of_one_turn_travels_in_one_frame(kind: str, short_path: Path) -> None:
    async with connected("127.0.0.1:0" if kind == "tcp" else f"unix:{short_path}") as (near, far, _, _):
        for number in range(100):
            near.links[0].frame_for(10).requests.add().id = number
        await near.until(lambda: len(near.replies()) == 100)

    assert len(far.frames) == 1
    assert sorted(reply.id for reply in near.replies()) == list(range(100))


async def test_hello_names_the_peer_on_both_sides() -> None:
    async with connected() as (near, far, _, _):
        await far.until(lambda: far.links)

        assert near.links[0].peer.service == "far"
        assert far.links[0].peer.service == "near"


async def test_a_large_envelope_takes_the_bulk_stream_and_small_ones_do_not_wait_behind_it() -> None:
    async with connected() as (near, far, _, _):
        big = bytes(20_000_000)
        request = near.links[0].frame_for(len(big)).requests.add()
        request.id = 1
        request.inputs.add(data=big)
        near.links[0].frame_for(10).requests.add().id = 2
        await near.until(lambda: len(near.replies()) == 2, 30)

    assert [request.id for request in far.requests()] == [2, 1]
    assert near.replies()[1].outputs[0].data == big


async def test_a_frame_is_cut_at_its_size() -> None:
    async with connected() as (near, far, _, _):
        for number in range(10):
            request = near.links[0].frame_for(100_000).requests.add()
            request.id = number
            request.inputs.add(data=bytes(100_000))
        await near.until(lambda: len(near.replies()) == 10)

    assert max(frame.ByteSize() for frame in far.frames) <= FRAME_BYTES
    assert [request.id for request in far.requests()] == list(range(10))


async def test_the_client_dials_again_when_the_server_comes_back() -> None:
    near = Recorder()
    server = await listen("127.0.0.1:0", Echo(), hello())
    client = LinkClient(server.address, near, hello())
    client.start()
    await near.until(lambda: near.links)
    await server.close()
    await near.until(lambda: near.closed_with)

    again = await listen(server.address, Echo(), hello())
    await near.until(lambda: len(near.links) == 2)
    near.links[1].frame_for(10).requests.add().id = 5
    await near.until(lambda: near.replies())
    await client.close()
    await again.close()

    assert near.replies()[0].id == 5


@pytest.mark.parametrize("address", ["127.0.0.1:99999999", "nowhere", f"{'a' * 70}.example:80"])
async def test_what_is_no_address_is_dialled_in_vain_and_closed_in_peace(address: str) -> None:
    client = LinkClient(address, Recorder(), hello())
    client.start()
    await asyncio.sleep(0.05)

    assert not client.is_stopped
    await client.close()


async def test_a_silent_peer_is_given_up() -> None:
    near = Recorder()

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            pass
        writer.close()

    server = await asyncio.start_server(swallow, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = LinkClient(f"127.0.0.1:{port}", near, hello(), keepalive_s=0.1)
    client.start()
    try:
        async with asyncio.timeout(5):
            while client.link is None:
                await asyncio.sleep(0.01)
            while client.link is not None:
                await asyncio.sleep(0.01)
    finally:
        await client.close()
        server.close()

    assert near.links == []


class RaisesAtFirst(Echo):
    def opened(self, link: Link) -> None:
        super().opened(link)
        if len(self.links) == 1:
            raise RuntimeError("not yet")


async def test_a_link_whose_opening_raises_is_closed_and_the_next_one_serves() -> None:
    with structlog.testing.capture_logs() as logs:
        async with connected(server_side=RaisesAtFirst()) as (near, far, _, _):
            await far.until(lambda: len(far.links) == 2)
            await near.until(lambda: len(near.links) - len(near.closed_with) == 1)
            near.links[-1].frame_for(10).requests.add().id = 1
            await near.until(lambda: near.replies())

    assert len(far.closed_with) == 2
    assert [str(line["exc_info"]) for line in logs if line["event"] == "frame_failed"] == ["not yet"]


async def test_drain_reaches_every_peer() -> None:
    async with connected() as (near, _, server, _):
        server.drain("restart")
        await near.until(lambda: near.frames)

    assert near.frames[0].drain.reason == "restart"


@pytest.mark.parametrize(
    "rubbish", [b"GET / HTTP/1.1\r\n\r\n", bytes(1000), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 500]
)
async def test_rubbish_closes_only_its_own_connection(rubbish: bytes) -> None:
    async with connected() as (near, _, server, _):
        host, _, port = server.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(rubbish)
        async with asyncio.timeout(20):
            while await reader.read(65536):
                pass
        writer.close()
        near.links[0].frame_for(10).requests.add().id = 1
        await near.until(lambda: near.replies())

    assert near.replies()[0].id == 1


async def test_a_grpc_aio_client_talks_to_our_server() -> None:
    server = await listen("127.0.0.1:0", Echo(), hello("far"))
    async with own_channel(server.address, max_receive_message_length=-1) as channel:
        call = link_pb2_grpc.LinkStub(channel).Open()
        await call.write(pb.Frame(hello=hello()))
        for size in (1, 3_000_000):
            await call.write(pb.Frame(requests=[pb.Request(id=size, inputs=[{"data": bytes(size)}])]))
        frames: list[pb.Frame] = []
        while sum(len(frame.replies) for frame in frames) < 2:
            frames.append(await call.read())
        await call.done_writing()
    await server.close()

    assert frames[0].hello.service == "far"
    assert [len(r.outputs[0].data) for f in frames for r in f.replies] == [1, 3_000_000]


async def test_our_client_talks_to_a_grpc_aio_server() -> None:
    class Servicer(link_pb2_grpc.LinkServicer):
        async def Open(
            self, frames: AsyncIterator[pb.Frame], context: grpc.aio.ServicerContext
        ) -> AsyncIterator[pb.Frame]:
            yield pb.Frame(hello=hello("far"))
            async for frame in frames:
                yield pb.Frame(replies=[pb.Reply(id=r.id, outputs=r.inputs) for r in frame.requests])

        Bulk = Open

    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
    link_pb2_grpc.add_LinkServicer_to_server(Servicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    near = Recorder()
    client = LinkClient(f"127.0.0.1:{port}", near, hello())
    client.start()
    await near.until(lambda: near.links)
    for size in (1, 3_000_000):
        request = near.links[0].frame_for(size).requests.add()
        request.id = size
        request.inputs.add(data=bytes(size))
    await near.until(lambda: len(near.replies()) == 2)
    await client.close()
    await server.stop(0)

    assert {r.id: len(r.outputs[0].data) for r in near.replies()} == {1: 1, 3_000_000: 3_000_000}


async def test_plain_unary_methods_share_the_port_and_errors_keep_their_status() -> None:
    async def shout(body: bytes) -> bytes:
        if not body:
            raise NotFoundError("nothing to shout; send some text — any text")
        return body.upper()

    server = await listen("127.0.0.1:0", Echo(), hello(), unary={"/test.Test/Shout": shout})
    async with own_channel(server.address) as channel:
        shouted = await channel.unary_unary("/test.Test/Shout")(b"hey" * 30_000)
        with pytest.raises(grpc.aio.AioRpcError) as empty:
            await channel.unary_unary("/test.Test/Shout")(b"")
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await channel.unary_unary("/test.Test/Whisper")(b"x")
    await server.close()

    assert shouted == b"HEY" * 30_000
    assert (empty.value.code(), empty.value.details()) == (
        grpc.StatusCode.NOT_FOUND,
        "nothing to shout; send some text — any text",
    )
    assert unknown.value.code() == grpc.StatusCode.UNIMPLEMENTED
