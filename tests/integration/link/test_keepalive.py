"""Who is given up for silence, and who is not."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from services.chassis.link import LinkClient, connection, listen
from tests.integration.link.test_link import Echo, Recorder, hello
from tests.support.relay import Proxy
from turnout.v1 import link_pb2 as pb

KEEPALIVE_S = 0.1
LARGE_BYTES = 16 << 20


@contextmanager
def silent(relay: Proxy) -> Iterator[None]:
    """As a peer that hangs."""
    relay.stall()
    try:
        yield
    finally:
        relay.flow()


@asynccontextmanager
async def relayed(dials_s: float = KEEPALIVE_S, listens_s: float = 0) -> AsyncIterator[tuple[Recorder, str, Proxy]]:
    """A link through a relay, whose ends look so often for silence (0 = never); and where it goes to."""
    near = Recorder()
    server = await listen("127.0.0.1:0", Echo(), hello("far"), keepalive_s=listens_s)
    relay = Proxy(server.address)
    await relay.open()
    client = LinkClient(relay.endpoint, near, hello(), keepalive_s=dials_s)
    client.start()
    await near.until(lambda: near.links)
    try:
        yield near, server.address, relay
    finally:
        await client.close()
        await server.close()
        await relay.cut()


def ask(near: Recorder, size_bytes: int) -> None:
    request = pb.Request(id=1)
    request.inputs.add(name="x", datatype="UINT8", shape=[size_bytes], data=bytes(size_bytes))
    near.links[-1].frame_for(size_bytes).requests.append(request)


async def test_a_peer_that_hangs_is_given_up() -> None:
    async with relayed() as (near, _, relay):
        with silent(relay):
            await near.until(lambda: near.closed_with)

        assert "the peer was silent for" in near.closed_with[0]


async def test_a_peer_at_work_on_something_large_is_given_longer() -> None:
    async with relayed() as (near, _, relay):
        ask(near, LARGE_BYTES)
        with silent(relay):
            began = time.monotonic()
            await near.until(lambda: near.closed_with)
            took_s = time.monotonic() - began

        assert took_s >= 3.5  # 16 MiB at 4 MiB a second, and not the 0.2 of others

    async with relayed() as (near, _, relay):
        ask(near, LARGE_BYTES)
        with silent(relay):
            await asyncio.sleep(3 * KEEPALIVE_S)
        await near.until(near.replies)

        assert near.closed_with == []


async def test_an_end_that_was_away_itself_gives_nobody_up() -> None:
    async with relayed() as (near, _, relay):
        with silent(relay):
            await asyncio.sleep(1.5 * KEEPALIVE_S)  # a ping is out
            time.sleep(5 * KEEPALIVE_S)  # noqa: ASYNC251 - this end is away, and its peer's answer waits unread
        ask(near, 10)
        await near.until(near.replies)

        assert near.closed_with == []


async def test_who_listens_is_patient_with_those_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "KEEPALIVE_S", KEEPALIVE_S)
    async with relayed(dials_s=0, listens_s=60) as (near, address, relay):
        with silent(relay):
            reader, writer = await asyncio.open_connection(*address.split(":"))
            async with asyncio.timeout(20):
                while await reader.read(1000):  # until it is given up, which never said who it is
                    pass
            writer.close()
        ask(near, 10)
        await near.until(near.replies)

        assert near.closed_with == []
