"""Large tensors over real links: through shared memory where the peer proves that it sees it, as bytes elsewhere."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest

from services.chassis.arena import Borrower
from services.chassis.arena.arenas import Arenas
from services.chassis.link import Link, LinkClient, listen
from turnout.v1 import link_pb2 as pb
from turnout.v1 import link_pb2_grpc, tensor_pb2

DATA = bytes(range(256)) * 1024


def hello(name: str) -> pb.Hello:
    return pb.Hello(service=name, instance=f"{name}-1", protocol=1)


def arenas_in(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("turnout-*")]


class End:
    """Keeps what comes and can wait for it."""

    def __init__(self) -> None:
        self.link: Link | None = None
        self.requests: list[pb.Request] = []
        self.replies: list[pb.Reply] = []
        self._changed = asyncio.Event()

    def opened(self, link: Link) -> None:
        self.link = link
        self._changed.set()

    def received(self, link: Link, frame: pb.Frame) -> None:
        self.requests += frame.requests
        self.replies += frame.replies
        for request in frame.requests:
            link.frame_for(16).replies.add(id=request.id)
        self._changed.set()

    def closed(self, link: Link, reason: str) -> None:
        self.link = None
        self._changed.set()

    async def until(self, condition: object) -> None:
        async with asyncio.timeout(10):
            while not condition():  # type: ignore[operator]
                self._changed.clear()
                await self._changed.wait()


class Sender(End):
    """Lends its large tensors when it can."""

    def __init__(self, arenas: Arenas) -> None:
        super().__init__()
        self._arenas = arenas

    def opened(self, link: Link) -> None:
        link.lender = self._arenas.lender(link)
        super().opened(link)

    async def ask(self, number: int) -> bool:
        """Send one request, and wait for its answer; whether its data went through shared memory."""
        assert self.link is not None
        assert self.link.lender is not None
        block = self.link.lender.lend((DATA,), len(DATA))
        request = self.link.frame_for(100 if block else len(DATA)).requests.add(id=number)
        if block:
            request.inputs.add(name="x").block.CopyFrom(tensor_pb2.Block.FromString(block))
        else:
            request.inputs.add(name="x", data=DATA)
        await self.until(lambda: any(reply.id == number for reply in self.replies))
        return block is not None


class Reader(End):
    """Reads blocks, and gives them back when told."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self.read: list[bytes] = []

    def opened(self, link: Link) -> None:
        link.borrower = Borrower(link, self._folder)
        super().opened(link)

    def received(self, link: Link, frame: pb.Frame) -> None:
        assert link.borrower is not None
        for request in frame.requests:
            block = request.inputs[0].block
            if block.length:
                view = link.borrower.read(request.id, block.offset, block.length, block.generation)
                self.read.append(bytes(view))
            else:
                self.read.append(request.inputs[0].data)
        super().received(link, frame)


@pytest.fixture
def folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="t-"))
    yield folder
    shutil.rmtree(folder)


async def sent_to(address: str, sender: Sender) -> LinkClient:
    client = LinkClient(address, sender, hello("near"))
    client.start()
    await sender.until(lambda: sender.link)
    return client


async def test_blocks_follow_the_proof_and_are_free_once_given_back(folder: Path) -> None:
    arenas, reader = Arenas(16 << 20, folder), Reader(folder)
    server = await listen(f"unix:{folder}/s.sock", reader, hello("far"))
    sender = Sender(arenas)
    client = await sent_to(server.address, sender)
    went = [await sender.ask(number) for number in range(1, 6)]
    assert sender.link is not None
    assert sender.link.lender is not None
    assert reader.link is not None
    assert reader.link.borrower is not None
    outstanding = sender.link.lender.blocks
    for number in range(1, 6):
        reader.link.borrower.give_back(number)
    went.append(await sender.ask(6))
    left = sender.link.lender.blocks
    await client.close()
    await server.close()

    assert went == [False, True, True, True, True, True]
    assert reader.read == [DATA] * 6
    assert (outstanding, left) == (4, 1)
    assert arenas_in(folder) == []


async def test_a_link_that_is_lost_takes_its_arena_along_and_the_next_one_has_its_own(folder: Path) -> None:
    arenas, reader = Arenas(16 << 20, folder), Reader(folder)
    server = await listen(f"unix:{folder}/s.sock", reader, hello("far"))
    sender = Sender(arenas)
    client = await sent_to(server.address, sender)
    await sender.ask(1)
    await sender.ask(2)
    (first,) = arenas_in(folder)
    for link in list(server.links):
        link.protocol.abort("killed")
    await sender.until(lambda: sender.link is None)
    after = arenas_in(folder)
    await sender.until(lambda: sender.link is not None)
    went = [await sender.ask(3), await sender.ask(4)]
    (second,) = arenas_in(folder)
    await client.close()
    await server.close()

    assert after == []
    assert went == [False, True]
    assert first != second
    assert reader.read == [DATA] * 4


async def test_a_peer_elsewhere_gets_bytes(folder: Path) -> None:
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    arenas, reader = Arenas(16 << 20, folder), Reader(elsewhere)
    server = await listen(f"unix:{folder}/s.sock", reader, hello("far"))
    sender = Sender(arenas)
    client = await sent_to(server.address, sender)
    went = [await sender.ask(number) for number in range(1, 4)]
    await client.close()
    await server.close()

    assert went == [False] * 3
    assert reader.read == [DATA] * 3


async def test_a_grpc_aio_peer_gets_bytes(folder: Path) -> None:
    sizes: list[int] = []

    class Servicer(link_pb2_grpc.LinkServicer):
        async def Open(
            self, frames: AsyncIterator[pb.Frame], context: grpc.aio.ServicerContext
        ) -> AsyncIterator[pb.Frame]:
            yield pb.Frame(hello=hello("far"))
            async for frame in frames:
                sizes.extend(len(request.inputs[0].data) for request in frame.requests)
                yield pb.Frame(replies=[pb.Reply(id=request.id) for request in frame.requests])

        Bulk = Open

    server = grpc.aio.server()
    link_pb2_grpc.add_LinkServicer_to_server(Servicer(), server)
    server.add_insecure_port(f"unix:{folder}/s.sock")
    await server.start()
    sender = Sender(Arenas(16 << 20, folder))
    client = await sent_to(f"unix:{folder}/s.sock", sender)
    went = [await sender.ask(number) for number in range(1, 4)]
    await client.close()
    await server.stop(0)

    assert went == [False] * 3
    assert sizes == [len(DATA)] * 3
