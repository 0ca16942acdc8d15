"""Requests of different lengths in one batch get what they would get alone; the model heeds its mask."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.batcher.policy import BatchPolicy
from services.core.arrays import decode, encode
from services.core.batching_spec import Padding
from services.core.errors import INTERNAL, INVALID_ARGUMENT, OK, RESOURCE_EXHAUSTED
from services.core.signature import Signature, TensorSpec
from tests.support.batching import NAME, Bench
from turnout.v1 import link_pb2 as pb

ANY = -1
SIGNATURE = Signature(
    (
        TensorSpec("ids", "INT32", (ANY, ANY)),
        TensorSpec("mask", "INT64", (ANY, ANY)),
        TensorSpec("weight", "FP64", (ANY, ANY, 2)),
    ),
    (
        TensorSpec("mean", "FP64", (ANY, 2)),
        TensorSpec("sums", "INT64", (ANY, ANY)),
        TensorSpec("words", "BYTES", (ANY, ANY, 2)),
    ),
    batches=True,
)
PAD = Padding(inputs={"ids": -7, "weight": 1e9}, mask="mask", outputs=("sums", "words"))
Arrays = dict[str, np.ndarray]


def model(inputs: Arrays) -> Arrays:
    """The masked mean of the weights, the running sum of the ids, and each id as text."""
    ids, mask, weight = inputs["ids"], inputs["mask"], inputs["weight"]
    mean = (weight * mask[:, :, None]).sum(axis=1) / np.maximum(mask.sum(axis=1), 1)[:, None]
    words = np.empty((*ids.shape, 2), dtype=object)
    for place in np.ndindex(words.shape):
        words[place] = b"\0" * (abs(int(ids[place[:2]])) % 5 + place[2])
    return {"mean": mean, "sums": (ids * mask).cumsum(axis=1), "words": words}


def alone(ids: np.ndarray, weight: np.ndarray) -> Arrays:
    return model({"ids": ids, "weight": weight, "mask": np.ones(ids.shape, np.int64)})


def request(number: int, ids: np.ndarray, weight: np.ndarray, wanted: Sequence[str] = ()) -> pb.Request:
    made = pb.Request(id=number, model=NAME.model, version=NAME.version, rows=len(ids), outputs=wanted)
    for name, array in (("weight", weight), ("ids", ids)):  # in any order
        datatype, data = encode(array)
        made.inputs.add(name=name, datatype=datatype, shape=array.shape, data=data)
    return made


def rows_of(rows: int, length: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(-99, 99, (rows, length), np.int32), rng.integers(-9, 9, (rows, length, 2)).astype(np.float64)


def run(bench: Bench, batch: pb.Request) -> None:
    """Have the model answer a batch."""
    inputs = {tensor.name: decode(tensor.datatype, tuple(tensor.shape), tensor.data) for tensor in batch.inputs}
    assert {array.shape[:2] for array in inputs.values()} == {(batch.rows, inputs["ids"].shape[1])}
    reply = pb.Reply(id=batch.id, executed=pb.EXECUTED_YES, digest="sha256:1", stages_ns=[1, 2, 3], final=True)
    for name, array in model(inputs).items():
        datatype, data = encode(array)
        reply.outputs.add(name=name, datatype=datatype, shape=array.shape, data=data)
    bench.puppet.reply(reply)


def answer(reply: pb.Reply) -> Arrays:
    return {tensor.name: decode(tensor.datatype, tuple(tensor.shape), tensor.data) for tensor in reply.outputs}


def check(reply: pb.Reply, ids: np.ndarray, weight: np.ndarray) -> None:
    assert reply.code == OK
    expected, got = alone(ids, weight), answer(reply)
    assert {name: array.shape for name, array in got.items()} == {n: expected[n].shape for n in got}
    assert all(np.array_equal(array, expected[name]) for name, array in got.items())


@settings(max_examples=150, deadline=None)
@given(
    shapes=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20), st.booleans()), min_size=1, max_size=12),
    most_rows=st.integers(1, 12),
    sizes=st.sampled_from([(), (4, 16), (32,), (3, 5, 6, 7)]),
)
def test_everybody_gets_what_it_would_get_alone(
    shapes: list[tuple[int, int, bool]], most_rows: int, sizes: tuple[int, ...]
) -> None:
    bench = Bench(
        BatchPolicy(max_batch_rows=most_rows, max_request_rows=50),
        signature=SIGNATURE,
        pad_to=PAD.model_copy(update={"sizes": sizes}),
    )
    sent = {}
    for number, (rows, length, asks) in enumerate(shapes, 1):
        sent[number] = rows_of(rows, length, number)
        bench.offer(request(number, *sent[number], wanted=["sums"] if asks else []))
    bench.batcher.pump(bench.time.now)
    while batches := bench.puppet.batches():
        assert batches[0].rows <= most_rows
        run(bench, batches[0])

    replies = bench.replies()
    assert replies.keys() == sent.keys()
    for number, (_, _, asks) in enumerate(shapes, 1):
        check(replies[number], *sent[number])
        assert [tensor.name for tensor in replies[number].outputs] == (["sums"] if asks else ["mean", "sums", "words"])
    assert bench.batcher.is_idle
    assert bench.batcher.lobby.queue.size == 0


def bench_of(**fields: int) -> Bench:
    return Bench(BatchPolicy(**fields), signature=SIGNATURE, pad_to=PAD)


def test_lengths_of_one_place_share_a_batch_and_others_queue_beside_it() -> None:
    bench = bench_of()
    bench.offer(request(1, *rows_of(1, 1, 1)))
    bench.batcher.pump(bench.time.now)
    for number, length in enumerate([5, 17, 6, 8, 18, 7], 2):
        bench.time.advance(1)
        bench.offer(request(number, *rows_of(1, length, number)))
    launched = []
    while batches := bench.puppet.batches():
        launched.append((batches[0].rows, batches[0].inputs[0].shape[1]))
        run(bench, batches[0])

    assert launched == [(1, 1), (4, 8), (2, 32)]


def test_callers_neither_see_nor_send_the_mask() -> None:
    bench = bench_of()
    told = request(1, *rows_of(1, 3, 1))
    told.inputs.add(name="mask", datatype="INT64", shape=[1, 3], data=bytes(24))
    bench.offer(told)

    assert [spec.name for spec in bench.batcher.lobby.intake.signature.inputs] == ["ids", "weight"]
    assert bench.codes() == {1: INVALID_ARGUMENT}
    assert "has no input 'mask'; its inputs are ids INT32[-1, -1], weight" in bench.answers[1].message


def test_inputs_of_different_lengths_are_refused_and_nobody_else() -> None:
    bench = bench_of()
    ids, weight = rows_of(1, 3, 1)
    bench.offer(request(1, ids, weight[:, :2]))
    bench.offer(request(2, ids, weight))
    bench.batcher.pump(bench.time.now)
    run(bench, bench.puppet.batches()[0])

    assert bench.codes() == {1: INVALID_ARGUMENT, 2: OK}
    assert bench.answers[1].message == "padded inputs must have one length (dimension 1), they have 'ids' 3, 'weight' 2"


def test_bytes_count_as_they_will_be_once_filled_up() -> None:
    padded = 8 * 4 + 8 * 16 + 8 * 8
    bench = bench_of(max_request_bytes=padded, max_queue_bytes=4 * padded)
    bench.offer(request(1, *rows_of(1, 5, 1)))
    bench.offer(request(2, *rows_of(2, 5, 1)))

    assert bench.batcher.lobby.queue.size == padded
    assert bench.codes() == {2: RESOURCE_EXHAUSTED}
    assert f"inputs have {2 * padded} bytes" in bench.answers[2].message


@pytest.mark.parametrize(
    ("name", "shape", "said"),
    [
        (
            "sums",
            (2, 3),
            "output 'sums' has rows of shape [3] where rows are filled up to length 4: it cannot be cut back",
        ),
        (
            "sums",
            (2,),
            "output 'sums' has rows of shape [] where rows are filled up to length 4: it cannot be cut back",
        ),
    ],
)
def test_an_output_that_is_not_as_long_fails_its_callers_with_its_shape(
    name: str, shape: tuple[int, ...], said: str
) -> None:
    bench = bench_of()
    bench.offer(request(1, *rows_of(2, 3, 1)))
    bench.batcher.pump(bench.time.now)
    batch = bench.puppet.batches()[0]
    reply = pb.Reply(id=batch.id, executed=pb.EXECUTED_YES, digest="sha256:1", final=True)
    datatype, data = encode(np.zeros(shape, np.int64))
    reply.outputs.add(name=name, datatype=datatype, shape=shape, data=data)
    bench.puppet.reply(reply)

    assert bench.codes() == {1: INTERNAL}
    assert said in bench.answers[1].message


def test_who_waits_when_pad_to_changes_is_answered_as_it_was_read() -> None:
    bench = bench_of()
    sent = {number: rows_of(1, 5, number) for number in (1, 2, 3, 4)}
    bench.offer(request(1, *sent[1]))
    bench.batcher.pump(bench.time.now)
    bench.offer(request(2, *sent[2]))
    bench.facts = bench.facts.__class__(
        "", NAME, "sha256:1", 1, SIGNATURE, PAD.model_copy(update={"sizes": (6,), "inputs": {"ids": 0, "weight": 0}})
    )
    bench.hire(slots=0)
    for number in (3, 4):
        bench.offer(request(number, *sent[number]))
    launched = []
    while batches := bench.puppet.batches():
        launched.append((batches[0].rows, batches[0].inputs[0].shape[1]))
        run(bench, batches[0])

    assert launched == [(1, 8), (1, 8), (2, 6)]
    for number, reply in bench.replies().items():
        check(reply, *sent[number])


def test_what_was_filled_up_is_counted() -> None:
    bench = bench_of()
    bench.offer(request(1, *rows_of(2, 3, 1)))
    bench.batcher.pump(bench.time.now)

    assert (bench.batcher.padding.real, bench.batcher.padding.filled) == (6, 2)
