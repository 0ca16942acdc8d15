"""A dial that is given up half-way, on the loop that services run on."""

import asyncio
import tempfile
from typing import Any

import pytest
import uvloop

from services.chassis.link import LinkClient, listen
from tests.integration.link.test_link import Recorder, hello

_TURNS = 8  # of the loop; after fewer the connection is there


async def _given_up_after(turns: int, address: str) -> tuple[list[dict[str, Any]], Recorder, Recorder]:
    """What the loop reported, and what either end heard."""
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    near, far = Recorder(), Recorder()
    server = await listen(address, far, hello("far"))
    client = LinkClient(server.address, near, hello("near"), keepalive_s=0.05)
    client.start()
    for _ in range(turns):
        await asyncio.sleep(0)
    await client.close()
    last = LinkClient(server.address, near, hello("last"))  # who dialled before is heard of before
    last.start()
    await far.until(lambda: any(link.peer.service == "last" for link in far.links))
    await last.close()
    await far.until(lambda: len(far.closed_with) == len(far.links))
    await server.close()
    return reported, near, far


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_a_dial_given_up_leaves_no_connection_and_no_error(kind: str) -> None:
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        for turns in range(_TURNS):
            address = f"unix:{folder}/{turns}.sock" if kind == "unix" else "127.0.0.1:0"
            reported, near, far = uvloop.run(_given_up_after(turns, address))

            assert not reported
            assert len(far.closed_with) == len(far.links)
            assert len(near.closed_with) == len(near.links)
