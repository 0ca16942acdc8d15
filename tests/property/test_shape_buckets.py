"""Requests of different shapes: each shape has its own batches, and none waits behind another."""

import gc
import sys
import tracemalloc
from types import FrameType

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from services.batcher.buckets import Bucket
from services.batcher.policy import BatchPolicy
from services.core.signature import Signature, TensorSpec
from tests.support.batching import MS, NAME, Bench
from turnout.v1 import link_pb2 as pb

SIGNATURE = Signature((TensorSpec("x", "INT32", (-1, -1)),), (TensorSpec("y", "INT32", (-1, -1)),), batches=True)


def bench_of(policy: BatchPolicy | None = None, slots: int = 1) -> Bench:
    return Bench(policy, signature=SIGNATURE, slots=slots)


class Shapes:
    """A bench, and who waits in it since when."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.waiting: dict[int, int] = {}  # id -> length
        self.launches: list[tuple[int, int]] = []  # length, rows
        self._next = 1

    def send(self, length: int, rows: int = 1) -> None:
        number, self._next = self._next, self._next + 1
        request = pb.Request(id=number, model=NAME.model, version=NAME.version, rows=rows)
        data = np.full((rows, length), number, np.int32).tobytes()
        request.inputs.add(name="x", datatype="INT32", shape=[rows, length], data=data)
        self.bench.time.advance(1)
        self.bench.offer(request)
        self.waiting[number] = length

    def launched(self) -> list[int]:
        """Ids in the batches that were sent since the last call, one batch's after the other's."""
        self.bench.batcher.pump(self.bench.time.now)
        found: list[int] = []
        for batch in self.bench.puppet.link.take().requests:
            self.bench.puppet.launched.append(batch)
            rows, length = batch.inputs[0].shape
            self.launches.append((length, rows))
            values = np.frombuffer(batch.inputs[0].data, np.int32).reshape(rows, length)
            found += dict.fromkeys(values[:, 0].tolist())
        return found

    def step(self, kind: str, one: int, other: int) -> None:
        match kind:
            case "send":
                self.send(one, other)
            case "flood":
                for _ in range(other):
                    self.send(one % 3 + 1)
            case "answer":
                self.answer()
            case "cancel" if self.waiting:
                number = list(self.waiting)[one % len(self.waiting)]
                del self.waiting[number]
                self.bench.cancel(number)

    def check_launched(self) -> None:
        """What was sent now is of one shape, and holds who waited longest."""
        numbers = self.launched()

        assert len({self.waiting[number] for number in numbers}) <= 1
        assert not numbers or min(self.waiting) in numbers
        for number in numbers:
            del self.waiting[number]

    def answer(self) -> None:
        """The worker answers all it has."""
        for batch in self.bench.puppet.batches():
            self.bench.puppet.echo(batch)
        self.bench.puppet.launched.clear()


def test_alternating_shapes_form_batches_of_their_own() -> None:
    shapes = Shapes(bench_of(BatchPolicy(max_batch_rows=16)))
    for _ in range(64):
        shapes.send(3)
        shapes.send(5)
        shapes.launched()
    while not shapes.bench.batcher.is_idle:
        shapes.answer()
        shapes.launched()

    first, *full = [rows for _, rows in shapes.launches]
    assert first == 1  # the worker was idle
    assert sum(full) / len(full) >= 8
    assert {length for length, _ in shapes.launches} == {3, 5}
    assert len(shapes.bench.replies()) == 128


def test_a_shape_that_waits_for_more_does_not_hold_others_up() -> None:
    shapes = Shapes(bench_of(BatchPolicy(max_batch_rows=2, delay_ns=10 * MS)))
    shapes.send(3)
    assert shapes.launched() == []
    shapes.send(5)
    shapes.send(5)

    assert shapes.launched() == [2, 3]
    shapes.answer()
    shapes.bench.time.advance(10 * MS)
    assert shapes.launched() == [1]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 40), st.integers(1, 3)),
        st.tuples(st.just("flood"), st.integers(1, 3), st.integers(1, 9)),
        st.tuples(st.just("answer"), st.just(0), st.just(0)),
        st.tuples(st.just("cancel"), st.integers(0, 99), st.just(0)),
    ),
    max_size=80,
)


@settings(max_examples=200, deadline=None)
@given(steps=steps, most_rows=st.integers(3, 8))
def test_every_batch_has_one_shape_and_takes_along_who_waits_longest(
    steps: list[tuple[str, int, int]], most_rows: int
) -> None:
    shapes = Shapes(bench_of(BatchPolicy(max_batch_rows=most_rows, max_queue_rows=10_000)))
    for step in steps:
        shapes.step(*step)
        shapes.check_launched()
    while not shapes.bench.batcher.is_idle:
        shapes.answer()
        shapes.check_launched()

    assert not shapes.waiting
    assert shapes.bench.batcher.lobby.queue.rows == shapes.bench.batcher.lobby.queue.size == 0


def buckets() -> int:
    gc.collect()
    return sum(type(each) is Bucket for each in gc.get_objects())


def test_thousands_of_shapes_are_not_kept() -> None:
    shapes = Shapes(bench_of())
    sizes = []
    tracemalloc.start()
    for length in range(1, 1501):
        shapes.send(length)
        shapes.launched()
        shapes.answer()
        shapes.bench.replies().clear()
        if length % 500 == 0:
            sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()

    assert buckets() <= 20
    assert sizes[-1] - sizes[0] < 500_000


def test_what_a_launch_costs_does_not_grow_with_the_shapes_that_wait() -> None:
    def calls_a_launch(count: int) -> float:
        """Python calls, which are counted as time cannot be."""
        shapes = Shapes(bench_of(BatchPolicy(max_queue_rows=10_000)))
        for length in range(1, count + 1):
            shapes.send(length)
        counted = 0

        def count_call(_frame: FrameType, event: str, _arg: object) -> None:
            nonlocal counted
            counted += event == "call"

        sys.setprofile(count_call)
        try:
            while not shapes.bench.batcher.is_idle:
                shapes.launched()
                shapes.answer()
        finally:
            sys.setprofile(None)
        return counted / count

    assert calls_a_launch(1600) < 1.5 * calls_a_launch(200)
