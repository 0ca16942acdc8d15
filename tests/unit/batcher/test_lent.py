"""Inputs in shared memory: right while they are needed, given back once, whichever way a request leaves."""

from collections.abc import Callable
from pathlib import Path

import pytest

from services.batcher.policy import BatchPolicy
from services.batcher.quick_request import with_blocks
from services.batcher.request import Caller
from services.core.errors import DEADLINE_EXCEEDED, INTERNAL, INVALID_ARGUMENT, OK, UNAVAILABLE
from tests.support.batching import MS, Bench
from tests.support.lending import Pair
from turnout.v1 import link_pb2 as pb


class LentBench(Bench):
    """Every request's input lies in a block."""

    def __init__(self, folder: Path, policy: BatchPolicy | None = None, **fields: int) -> None:
        super().__init__(policy, **fields)  # type: ignore[arg-type]
        self.pair = Pair(folder)
        self.pair.prove()
        self.caller = Caller(self.link, self.pair.borrower)  # type: ignore[arg-type]

    def offer(self, request: pb.Request) -> None:
        lent = with_blocks(self.pair.move(request), self.pair.borrower)
        self.batcher.lobby.offer(self.caller, lent, request.id, self.time.now)  # type: ignore[arg-type]

    @property
    def blocks(self) -> int:
        return self.pair.lender.blocks


def answered(bench: LentBench) -> dict[int, int]:
    bench.send([1])
    bench.send([2, 3])
    assert bench.blocks == 2
    bench.puppet.echo()
    assert bench.blocks == 1
    bench.puppet.echo()
    assert bench.values(2) == [2, 3]
    return {1: OK, 2: OK}


def raised(bench: LentBench) -> dict[int, int]:
    bench.send([1])
    bench.puppet.error(INTERNAL, "no")
    return {1: INTERNAL}


def found_by_a_search(bench: LentBench) -> dict[int, int]:
    bench.send([0], [1], [2], [3])
    while bench.puppet.batches():
        if 2 in [row for tensor in bench.puppet.batches()[0].inputs for row in tensor.data[::4]]:
            bench.puppet.error(INTERNAL, "two")
        else:
            bench.puppet.echo()
    assert [bench.values(number) for number in (1, 2, 4)] == [[0], [1], [3]]
    return {1: OK, 2: OK, 3: INTERNAL, 4: OK}


def cancelled(bench: LentBench) -> dict[int, int]:
    bench.send([1])
    bench.send([2])
    bench.cancel(2)
    assert bench.blocks == 1
    bench.cancel(1)
    assert bench.blocks == 0
    bench.puppet.echo()
    return {}


def expired(bench: LentBench) -> dict[int, int]:
    bench.send([1], deadline_us=1000)
    bench.send([2], deadline_us=1000)
    bench.time.advance(5 * MS)
    return {1: DEADLINE_EXCEEDED, 2: DEADLINE_EXCEEDED}


def refused_unread(bench: LentBench) -> dict[int, int]:
    bench.send([1] * 17)
    return {1: INVALID_ARGUMENT}


def refused_as_wrong(bench: LentBench) -> dict[int, int]:
    request = pb.Request(id=1, model="echo", version="1", rows=2)
    request.inputs.add(name="x", datatype="INT32", shape=[2], data=b"four")
    bench.offer(request)
    return {1: INVALID_ARGUMENT}


def shed(bench: LentBench) -> dict[int, int]:
    bench.send([0])
    bench.send(*[[number] * 4 for number in range(5)])
    assert bench.blocks == 5
    while bench.puppet.batches():
        bench.puppet.echo()
    return dict.fromkeys(range(1, 6), OK) | {6: UNAVAILABLE}


def cut_in_parts(bench: LentBench) -> dict[int, int]:
    bench.send(list(range(10)))
    while bench.puppet.batches():
        assert bench.blocks == 1
        bench.puppet.echo()
    assert bench.values(1) == list(range(10))
    return {1: OK}


def run_again_after_a_death(bench: LentBench) -> dict[int, int]:
    bench.send([7])
    bench.puppet.die()
    assert bench.blocks == 1
    second = bench.hire()
    second.echo()
    assert bench.values(1) == [7]
    return {1: OK}


def killing_twice(bench: LentBench) -> dict[int, int]:
    bench.send([7])
    bench.puppet.die()
    bench.hire().die()
    bench.hire()
    bench.send([7], [8])
    bench.batcher.give_up("the pod stops")
    return {1: INTERNAL, 2: INTERNAL, 3: INTERNAL}


def told_at_the_end(bench: LentBench) -> dict[int, int]:
    bench.send([1])
    bench.send([2])
    bench.batcher.give_up("the pod stops")
    return {1: INTERNAL, 2: UNAVAILABLE}


@pytest.mark.parametrize(
    "story",
    [
        answered,
        raised,
        found_by_a_search,
        cancelled,
        expired,
        refused_unread,
        refused_as_wrong,
        shed,
        cut_in_parts,
        run_again_after_a_death,
        killing_twice,
        told_at_the_end,
    ],
)
def test_blocks_are_given_back_however_a_request_leaves(
    tmp_path: Path, story: Callable[[LentBench], dict[int, int]]
) -> None:
    bench = LentBench(tmp_path, BatchPolicy(max_batch_rows=4, max_queue_rows=16, max_request_rows=16))
    codes = story(bench)

    assert bench.codes() == codes
    assert bench.blocks == 0
    assert bench.caller.lent == {}


def test_a_batch_that_leaves_as_bytes_is_copied_before_its_blocks_can_be_lent_again(tmp_path: Path) -> None:
    bench = LentBench(tmp_path, BatchPolicy(max_batch_rows=1 << 16, max_request_rows=1 << 16, max_queue_rows=1 << 17))
    sent: list[bytes | memoryview] = []
    bench.puppet.link.send_encoded = lambda *parts: sent.extend(parts)  # type: ignore[method-assign]
    bench.send([1] * 20_000, [2] * 20_000)

    assert [part for part in sent if isinstance(part, memoryview)] == []
    assert len(sent[-1]) == 2 * 80_000
