"""Requests whose inputs lie in the router's shared memory, to a batcher's process."""

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.chassis.arena import Lender
from services.chassis.arena.arenas import Arenas
from services.core.errors import INTERNAL
from tests.support.batching import ints
from tests.support.puppet_pod import PuppetPod
from turnout.v1 import tensor_pb2


@pytest.fixture
async def arenas(pod: PuppetPod) -> AsyncIterator[Arenas]:
    """Those of a router that is linked to the batcher by its socket, and has proven its arena."""
    arenas = Arenas(16 << 20)
    async with pod.batching():
        await pod.hang_up()
        await pod.call(await pod.process.address("local_link"))
        link = pod.router.link
        assert link is not None
        link.lender = arenas.lender(link)
        assert link.lender is not None
        assert link.lender.lend((b"first",), 5) is None
        await pod.router.values(pod.router.send(1))  # so much later the answer to the offer is here too
        yield arenas
    await pod.hang_up()


def lender(pod: PuppetPod) -> Lender:
    assert pod.router.link is not None
    assert pod.router.link.lender is not None
    return pod.router.link.lender


def lend(pod: PuppetPod, number: int, *values: int, stale: bool = False) -> None:
    """Send a request whose input lies in a block."""
    assert pod.router.link is not None
    request = ints(number, values)
    block = lender(pod).lend((request.inputs[0].data,), len(request.inputs[0].data))
    assert block is not None
    request.inputs[0].ClearField("data")
    request.inputs[0].block.CopyFrom(tensor_pb2.Block.FromString(block))
    request.inputs[0].block.generation -= stale
    pod.router.link.frame_for(100).requests.add().CopyFrom(request)


async def test_a_block_that_is_not_there_is_an_error_of_its_request_alone(pod: PuppetPod, arenas: Arenas) -> None:
    lend(pod, 101, 7, 8)
    lend(pod, 102, 9, stale=True)
    lend(pod, 103, 10)
    good = await pod.router.values(101, 103)
    (broken,) = await pod.router.answers(102)
    await pod.router.until(lambda: lender(pod).blocks == 1)

    assert good == [[7, 8], [10]]
    assert broken.code == INTERNAL
    assert broken.message.startswith("an input could not be read: the block at ")


async def test_an_arena_ends_with_the_batcher_that_read_it(pod: PuppetPod, arenas: Arenas) -> None:
    pod.workers[0].holds = True
    lend(pod, 101, 7)
    await pod.workers[0].until(lambda: pod.workers[0].held)
    arena = lender(pod)._arena
    assert arena is not None
    before = is_there(arena.path)
    pod.process.signal(signal.SIGKILL)
    await pod.router.until(lambda: pod.router.link is None)

    assert (before, is_there(arena.path)) == (True, False)
    assert sum(sample.value for family in arenas.collect() for sample in family.samples if "blocks" in sample.name) == 0


def is_there(path: Path) -> bool:
    return path.exists()
