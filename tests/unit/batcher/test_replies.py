"""Answers are encoded by hand; protobuf must read what was meant."""

import pytest

from services.batcher.policy import BatchPolicy
from services.core.protowire import varint
from tests.support.batching import Bench
from turnout.v1 import link_pb2 as pb


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 16383, 16384, 2**21, 2**28 - 1, 2**32])
def test_sizes_are_encoded_as_protobuf_does(number: int) -> None:
    assert pb.Reply.FromString(b"\x58" + varint(number)).retry_after_us == number


@pytest.mark.parametrize("rows", [0, 1, 31, 32, 100, 5000])
def test_an_answer_of_any_size_is_read_back_whole(rows: int) -> None:
    bench = Bench(BatchPolicy(max_batch_rows=10_000, max_request_rows=10_000, max_queue_rows=20_000))
    values = list(range(rows))
    one, other = bench.send(values, [7])
    bench.puppet.echo()

    assert bench.values(one) == values
    assert bench.values(other) == [7]
    assert bench.answers[one].final
    assert bench.answers[one].batch_rows == rows + 1
    assert list(bench.answers[one].outputs[0].shape) == [rows]


def test_members_of_different_sizes_alternate_in_one_batch() -> None:
    bench = Bench()
    bench.send([0])
    numbers = bench.send([1], [2, 3], [4], [], [5, 6])
    bench.puppet.echo()
    bench.puppet.echo()

    assert [bench.values(number) for number in numbers] == [[1], [2, 3], [4], [], [5, 6]]


def test_the_expected_wait_travels_with_every_answer() -> None:
    bench = Bench(BatchPolicy(max_batch_rows=2))
    for _ in range(10):
        bench.send([0])
        bench.time.advance(10_000_000)
        bench.puppet.echo()
    bench.send(*[[n] for n in range(20)])
    bench.time.advance(10_000_000)
    bench.puppet.echo()

    assert bench.replies()[11].expected_wait_us > 50_000
