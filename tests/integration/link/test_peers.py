"""Links to the processes that etcd lists, which a lapsed record alone does not end."""

import asyncio

from services.chassis.etcd import Change
from services.chassis.link import Link, listen
from services.chassis.peers import Peers
from services.core.registry import ServiceRecord
from turnout.v1 import link_pb2 as pb

KEY = "services/proxy/proxy-1"


class Heard:
    """A LinkHandler that keeps how many links are open."""

    def __init__(self) -> None:
        self.open = 0
        self.opened_ever = 0
        self._changed = asyncio.Event()

    def opened(self, link: Link) -> None:
        self.open += 1
        self.opened_ever += 1
        self._changed.set()

    def received(self, link: Link, frame: pb.Frame) -> None:
        pass

    def closed(self, link: Link, reason: str) -> None:
        self.open -= 1
        self._changed.set()

    async def until_open(self, count: int) -> None:
        async with asyncio.timeout(10):
            while self.open != count:
                self._changed.clear()
                await self._changed.wait()


def hello(name: str) -> pb.Hello:
    return pb.Hello(service=name, instance=f"{name}-1", protocol=1)


def record(address: str) -> Change:
    return Change(KEY, ServiceRecord(address=address).dump(), 1)


async def test_a_lapsed_record_ends_no_healthy_link_and_one_written_anew_opens_no_second() -> None:
    server = await listen("127.0.0.1:0", Heard(), hello("proxy"))
    heard = Heard()
    peers = Peers("proxy", heard, hello("router"), "here")
    peers.apply([record(server.address)])
    await heard.until_open(1)

    peers.apply([Change(KEY, None, 2)])
    peers.apply([record(server.address)])
    await asyncio.sleep(0.2)  # nothing happens, which no event tells

    assert (heard.open, heard.opened_ever) == (1, 1)
    await peers.close()
    await server.close()


async def test_a_link_lost_after_its_record_lapsed_is_dialled_no_more() -> None:
    server = await listen("127.0.0.1:0", Heard(), hello("proxy"))
    heard = Heard()
    peers = Peers("proxy", heard, hello("router"), "here")
    peers.apply([record(server.address)])
    await heard.until_open(1)

    peers.apply([Change(KEY, None, 2)])
    await server.close()
    await heard.until_open(0)
    again = await listen(server.address, Heard(), hello("proxy"))
    await asyncio.sleep(0.5)  # longer than the first pauses between two dials

    assert heard.opened_ever == 1
    await peers.close()
    await again.close()
