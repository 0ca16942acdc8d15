"""Answers are encoded by hand; protobuf must read what was meant."""

from dataclasses import replace

import pytest

from services.batcher.policy import BatchPolicy
from services.core.errors import RESOURCE_EXHAUSTED
from services.core.protowire import varint
from services.core.signature import Signature
from tests.support.batching import ECHO, Bench
from turnout.v1 import link_pb2 as pb

TWO = Signature(ECHO.inputs, (*ECHO.outputs, ECHO.outputs[0]._replace(name="y2")), batches=True)


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


def test_a_cut_request_whose_joined_answer_no_link_takes_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.batcher.replies.MAX_OUTPUT_BYTES", 20)
    bench = Bench(BatchPolicy(max_batch_rows=2, max_request_rows=10))
    large, small = bench.send([1, 2, 3, 4, 5, 6, 7], [8, 9, 10, 11, 12])
    while bench.puppet.batches():
        bench.puppet.echo()

    assert bench.codes()[large] == RESOURCE_EXHAUSTED
    assert "outputs of 7 rows" in bench.replies()[large].message
    assert bench.values(small) == [8, 9, 10, 11, 12]
    assert not bench.caller.pending
    assert bench.batcher.is_idle


@pytest.mark.parametrize("neighbours", [0, 1])
@pytest.mark.parametrize("wanted", [["y", "y2"], ["y2", "y"], ["y2"]])
def test_outputs_come_in_the_order_they_were_asked_for_whoever_is_in_the_batch(
    neighbours: int, wanted: list[str]
) -> None:
    bench = Bench(signature=TWO)
    bench.send([0])
    (number,) = bench.send([1], outputs=wanted)
    bench.send(*[[2]] * neighbours)
    while batches := bench.puppet.batches():
        tensors = [{"name": name, "datatype": "INT32", "shape": [batches[0].rows]} for name in ("y", "y2")]
        outputs = [{**tensor, "data": batches[0].inputs[0].data} for tensor in tensors]
        bench.puppet.reply(pb.Reply(id=batches[0].id, executed=pb.EXECUTED_YES, outputs=outputs, final=True))

    assert [output.name for output in bench.replies()[number].outputs] == wanted


THREE = Signature(
    ECHO.inputs,
    tuple(ECHO.outputs[0]._replace(name=name) for name in ("y", "y2", "leaf")),
    batches=True,
    on_request=("leaf",),
)


def answered(bench: Bench) -> list[list[str]]:
    """Answer every batch with what it asks for; what that was."""
    asked = []
    while batches := bench.puppet.batches():
        (batch,) = batches
        asked.append(list(batch.outputs))
        tensors = [{"name": name, "datatype": "INT32", "shape": [batch.rows]} for name in asked[-1] or ["y", "y2"]]
        outputs = [{**tensor, "data": batch.inputs[0].data} for tensor in tensors]
        bench.puppet.reply(pb.Reply(id=batch.id, executed=pb.EXECUTED_YES, outputs=outputs, final=True))
    return asked[1:]


@pytest.mark.parametrize(
    ("wanted", "asked"),
    [
        ([[], []], []),
        ([["y"], ["y2"]], ["y", "y2"]),
        ([["y2"], ["y2"]], ["y2"]),
        ([[], ["leaf"]], ["y", "y2", "leaf"]),
        ([["leaf", "y"], ["leaf"]], ["y", "leaf"]),
        ([["y"], []], ["y", "y2"]),
        ([["leaf"]], ["leaf"]),
    ],
)
def test_a_worker_is_asked_for_what_any_member_wants_and_each_gets_its_own(
    wanted: list[list[str]], asked: list[str]
) -> None:
    bench = Bench(signature=THREE)
    bench.send([0])
    numbers = [number for each in wanted for number in bench.send([1], outputs=each)]

    assert answered(bench) == [asked]
    given = [[output.name for output in bench.replies()[number].outputs] for number in numbers]
    assert given == [each or ["y", "y2"] for each in wanted]


def test_every_part_of_a_cut_request_asks_for_what_it_wants() -> None:
    bench = Bench(BatchPolicy(max_batch_rows=2, max_request_rows=10), signature=THREE)
    bench.send([0])
    (number,) = bench.send([1, 2, 3], outputs=["leaf"])

    assert answered(bench) == [["leaf"], ["leaf"]]
    assert bench.values(number) == [1, 2, 3]


def test_a_model_that_does_not_batch_is_asked_for_what_is_wanted() -> None:
    bench = Bench(BatchPolicy(max_batch_rows=0), signature=replace(THREE, batches=False))
    bench.send([0])
    (one,), (other,) = bench.send([1], outputs=["leaf"]), bench.send([2])

    assert answered(bench) == [["leaf"], []]
    assert [output.name for output in bench.replies()[one].outputs] == ["leaf"]
    assert [output.name for output in bench.replies()[other].outputs] == ["y", "y2"]
