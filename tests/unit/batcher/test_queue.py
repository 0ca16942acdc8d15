"""Buckets, and who is next."""

from services.batcher.policy import BatchPolicy
from services.core.signature import Signature, TensorSpec
from tests.support.batching import MS, Bench, ints, numbers_of, texts
from turnout.v1 import link_pb2 as pb

RAGGED = Signature((TensorSpec("x", "INT32", (-1, -1)),), (TensorSpec("y", "INT32", (-1, -1)),), batches=True)


def ragged(number: int, width: int) -> pb.Request:
    request = pb.Request(id=number, model="echo", version="1", rows=1)
    request.inputs.add(name="x", datatype="INT32", shape=[1, width], data=number.to_bytes(4, "little") * width)
    return request


def test_alternating_shapes_form_batches_of_their_own_and_none_starves() -> None:
    bench = Bench(BatchPolicy(max_batch_rows=8), signature=RAGGED)
    for number in range(33):
        bench.offer(ragged(number, 2 + number % 2))
        bench.time.advance(1)
    bench.batcher.pump(bench.time.now)
    shapes = []
    while batches := bench.puppet.batches():
        shapes.append(tuple(batches[0].inputs[0].shape))
        bench.puppet.echo()

    assert sorted(shapes) == [(1, 2), (8, 2), (8, 2), (8, 3), (8, 3)]
    assert all({*numbers_of(reply.outputs[0].data)} == {n} for n, reply in bench.replies().items())
    assert [shape[1] for shape in shapes[:4]] == [2, 3, 2, 3]


def test_many_shapes_leave_no_empty_buckets_behind() -> None:
    bench = Bench(signature=RAGGED)
    for width in range(100):
        bench.offer(ragged(width, width))
        bench.batcher.pump(bench.time.now)
        bench.puppet.echo()

    assert len(bench.batcher.lobby.queue._primary) <= 8


def test_inputs_in_another_order_share_a_batch() -> None:
    two = tuple(TensorSpec(name, "INT32", (-1,)) for name in ("x", "z"))
    bench = Bench(signature=Signature(two, two, batches=True))
    for number, names in enumerate(["xz", "zx"]):
        request = pb.Request(id=number, model="echo", version="1", rows=1)
        for name in names:
            request.inputs.add(name=name, datatype="INT32", shape=[1], data=name.encode() * 4)
        bench.offer(request)
    bench.batcher.pump(bench.time.now)
    (batch,) = bench.puppet.batches()

    assert [(tensor.name, tensor.data) for tensor in batch.inputs] == [("x", b"x" * 8), ("z", b"z" * 8)]


def test_texts_are_split_by_their_elements() -> None:
    spec = (TensorSpec("x", "BYTES", (-1,)),)
    bench = Bench(BatchPolicy(max_batch_rows=3), signature=Signature(spec, spec, batches=True))
    wanted = {1: [b"a", b"", b"long one\0"], 2: [b"\xff\xfe"], 3: [b"1", b"22", b"333", b"4444", b"5"], 4: []}
    for number, values in wanted.items():
        bench.offer(texts(number, values))
    bench.batcher.pump(bench.time.now)
    while bench.puppet.batches():
        bench.puppet.echo()

    for number, values in wanted.items():
        assert bench.replies()[number].outputs[0].data == texts(0, values).inputs[0].data


def test_a_model_that_does_not_batch_gets_requests_one_by_one_as_they_are() -> None:
    spec = (TensorSpec("x", "INT32", (-1, 2)),)
    bench = Bench(BatchPolicy(max_batch_rows=0), signature=Signature(spec, spec, batches=False))
    for number in (1, 2):
        request = pb.Request(id=number, model="echo", version="1", rows=1)
        request.inputs.add(name="x", datatype="INT32", shape=[3, 2], data=bytes(24))
        bench.offer(request)
    bench.batcher.pump(bench.time.now)

    assert [(b.rows, list(b.inputs[0].shape)) for b in bench.puppet.batches()] == [(1, [3, 2])]

    bench.puppet.echo()
    bench.puppet.echo()

    assert [list(reply.outputs[0].shape) for reply in bench.replies().values()] == [[3, 2], [3, 2]]


def test_a_timeout_of_one_bucket_leaves_the_other() -> None:
    bench = Bench(signature=RAGGED)
    bench.offer(ragged(0, 1))
    bench.batcher.pump(bench.time.now)
    first, second = ragged(1, 2), ragged(2, 3)
    first.deadline_us = 1000
    bench.offer(first)
    bench.offer(second)
    bench.time.advance(2 * MS)
    bench.puppet.echo()

    assert [list(b.inputs[0].shape) for b in bench.puppet.batches()] == [[1, 3]]


def test_requests_of_no_rows_are_bounded_too() -> None:
    bench = Bench(BatchPolicy(max_queue_rows=4, max_batch_rows=2))
    for number in range(10):
        bench.offer(ints(number, []))

    assert len(bench.caller.pending) == 4
