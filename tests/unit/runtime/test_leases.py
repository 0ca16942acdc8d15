"""Batches whose inputs lie in shared memory, as a worker runs them."""

import asyncio
import gc
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pytest
import structlog

from services.core.errors import INTERNAL
from services.core.signature import Signature, TensorSpec
from services.runtime.executor import Executor
from services.runtime.job import Job
from services.runtime.stamp import Stamp
from tests.support.lending import Pair
from turnout.v1 import link_pb2 as pb

SIGNATURE = Signature((TensorSpec("x", "FP32", (-1, 2)),), (TensorSpec("sum", "FP32", (-1,)),), batches=True)
JOB = {"id": "w-1", "model": "m", "version": "1", "digest": "d1", "framework": "onnx", "file": "/f", "socket": "/s"}
UNLUCKY = 13.0


class Hoarder:
    """Sums rows, and keeps the batches it is told to keep."""

    def __init__(self) -> None:
        self.keeps = False
        self.kept: list[np.ndarray] = []

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        x = inputs["x"]
        if x[0, 0] == UNLUCKY:
            raise ArithmeticError("unlucky")
        if self.keeps:
            self.kept.append(x[:, 1])
        return {"sum": x.sum(axis=1)}


class LinkOf:
    """The worker's end of a link whose other end lends."""

    def __init__(self, pair: Pair) -> None:
        self.peer = pb.Hello(instance="b")
        self.frame = pb.Frame()
        self.borrower = pair.borrower
        self._pair = pair

    def frame_for(self, _size_bytes: int) -> pb.Frame:
        return self.frame

    def release(self, generations: Iterable[int]) -> None:
        self._pair.release(generations)


class Bench:
    def __init__(self, folder: Path) -> None:
        self.pair = Pair(folder)
        self.pair.prove()
        self.backend = Hoarder()
        self.executor = Executor(Job.model_validate(JOB), self.backend, SIGNATURE, Stamp(Stamp.create()))  # type: ignore[arg-type]
        self.link = LinkOf(self.pair)
        self.executor.links.add(self.link)  # type: ignore[arg-type]

    def request(self, number: int, *rows: tuple[float, float], **fields: object) -> pb.Request:
        request = pb.Request(id=number, rows=len(rows), **({"model": "m", "version": "1"} | fields))  # type: ignore[arg-type]
        data = np.array(rows, np.float32).tobytes()
        request.inputs.add(name="x", datatype="FP32", shape=[len(rows), 2], data=data)
        return self.pair.move(request)

    def receive(self, *requests: pb.Request, cancels: Iterable[int] = ()) -> None:
        self.executor.received(self.link, pb.Frame(requests=requests, cancels=cancels))  # type: ignore[arg-type]

    async def settled(self) -> list[pb.Reply]:
        for _ in range(20):
            await asyncio.sleep(0)
        return list(self.link.frame.replies)


@pytest.fixture
async def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def sums(reply: pb.Reply) -> list[float]:
    assert reply.code == 0, reply.message
    return np.frombuffer(reply.outputs[0].data, np.float32).tolist()


async def test_a_batch_is_read_where_it_lies_and_given_back(bench: Bench) -> None:
    bench.receive(bench.request(1, (1, 2), (3, 4)), bench.request(2, (5, 6)))
    first, second = await bench.settled()

    assert (sums(first), sums(second)) == ([3, 7], [11])
    assert bench.pair.lender.blocks == 0


async def test_what_a_model_keeps_is_not_lent_again_until_it_lets_go(bench: Bench) -> None:
    bench.backend.keeps = True
    bench.receive(bench.request(1, (1, 10), (2, 20)))
    bench.backend.keeps = False
    for number in range(2, 6):
        bench.receive(bench.request(number, (number, number), (number, number)))
        await bench.settled()
    outstanding = bench.pair.lender.blocks
    kept = bench.backend.kept.pop().tolist()
    bench.receive(bench.request(9, (1, 1)))
    await bench.settled()

    assert (outstanding, kept) == (1, [10, 20])
    assert bench.pair.lender.blocks == 0


async def test_blocks_of_batches_that_raise_or_are_refused_or_cancelled_are_given_back(bench: Bench) -> None:
    bench.receive(
        bench.request(1, (UNLUCKY, 0)),
        bench.request(2, (1, 1), digest="d2"),
        bench.request(3, (1, 1)),
        bench.request(4, (2, 2)),
    )
    bench.receive(cancels=[3])
    replies = {reply.id: reply.code for reply in await bench.settled()}
    gc.collect()  # an error may hold on to what raised it for a while
    bench.receive(bench.request(5, (1, 1)))

    assert replies == {1: INTERNAL, 2: 9, 4: 0}
    assert bench.pair.lender.blocks == 0


async def test_batches_beyond_the_bound_are_given_back_unread(bench: Bench) -> None:
    bench.receive(*[bench.request(number, (1, 1)) for number in range(300)])
    while len(bench.link.frame.replies) < 300:
        await asyncio.sleep(0)

    assert sum(reply.code != 0 for reply in bench.link.frame.replies) == 44
    assert bench.pair.lender.blocks == 0


async def test_a_stale_block_is_an_error_that_says_so_and_is_not_run(bench: Bench) -> None:
    stale = bench.request(1, (1, 1))
    stale.inputs[0].block.generation -= 1
    bench.receive(stale, bench.request(2, (2, 2)))
    broken, fine = await bench.settled()

    assert (broken.code, broken.executed) == (INTERNAL, pb.EXECUTED_NO)
    assert "an input of the batch could not be read: the block at" in broken.message
    assert sums(fine) == [4]


async def test_stale_blocks_do_not_fill_the_log(bench: Bench) -> None:
    with structlog.testing.capture_logs() as logs:
        for number in range(1, 9):
            stale = bench.request(number, (1, 1))
            stale.inputs[0].block.generation -= 1
            bench.receive(stale)
        answered = await bench.settled()

    assert [reply.code for reply in answered] == [INTERNAL] * 8
    assert sum(line["event"] == "block_refused" for line in logs) < 4


async def test_the_other_blocks_of_a_batch_with_a_stale_one_are_given_back(bench: Bench) -> None:
    mixed = bench.request(1, (1, 1))
    mixed.inputs.add(name="y", datatype="FP32", shape=[1, 2]).block.CopyFrom(mixed.inputs[0].block)
    mixed.inputs[1].block.generation -= 1
    bench.receive(mixed)
    (broken,) = await bench.settled()

    assert "an input of the batch could not be read" in broken.message
    assert bench.pair.lender.blocks == 0
