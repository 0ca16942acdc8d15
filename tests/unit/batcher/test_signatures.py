"""An artifact with several signatures: requests for one never share a batch with those for another."""

from dataclasses import replace

import pytest

from services.batcher.policy import BatchPolicy
from services.core.errors import INVALID_ARGUMENT
from services.core.signature import Signature
from tests.support.batching import ECHO, MS, NAME, Bench, ints, numbers_of
from turnout.v1 import link_pb2 as pb

OTHER = replace(ECHO, name="classify")
WHOLE = replace(ECHO, name="explain", batches=False)
SEVERAL = replace(ECHO, name="serving_default", more=(OTHER, WHOLE))


def sent(bench: Bench) -> list[tuple[str, list[int]]]:
    """The batches that wait for an answer."""
    return [(batch.signature_name, numbers_of(batch.inputs[0].data)) for batch in bench.puppet.batches()]


def named(number: int, name: str, *values: int) -> pb.Request:
    request = ints(number, values, signature_name=name)
    if name == "explain":
        request.rows = 1  # it counts none
    return request


def test_requests_of_equal_shapes_for_different_signatures_run_apart() -> None:
    bench = Bench(signature=SEVERAL)
    bench.send([0])
    bench.send([1], [2])
    for number, name, value in [(11, "classify", 3), (12, "serving_default", 4), (13, "classify", 5)]:
        bench.offer(named(number, name, value))
    seen = []
    while bench.puppet.batches():
        seen += sent(bench)
        bench.puppet.echo()

    assert seen == [("", [0]), ("", [1, 2, 4]), ("classify", [3, 5])]
    assert [bench.values(number) for number in (1, 2, 3, 11, 12, 13)] == [[0], [1], [2], [3], [4], [5]]


def test_one_that_does_not_count_rows_runs_each_request_alone_beside_one_that_does() -> None:
    bench = Bench(BatchPolicy(delay_ns=0), signature=SEVERAL)
    bench.send([0])
    for number in (11, 12):
        bench.offer(named(number, "explain", number, number))
    bench.send([1], [2])
    seen = []
    while bench.puppet.batches():
        seen += [(batch.rows, batch.signature_name) for batch in bench.puppet.batches()]
        bench.puppet.echo()

    assert sorted(seen) == [(1, ""), (1, "explain"), (1, "explain"), (2, "")]
    assert [bench.values(number) for number in (11, 12)] == [[11, 11], [12, 12]]


def test_a_large_request_for_another_is_cut_and_its_parts_run_as_it_asked() -> None:
    bench = Bench(BatchPolicy(max_batch_rows=2), signature=SEVERAL)
    bench.offer(named(11, "classify", 1, 2, 3))
    bench.batcher.pump(bench.time.now)
    seen = []
    while bench.puppet.batches():
        seen += sent(bench)
        bench.puppet.echo()

    assert seen == [("classify", [1, 2]), ("classify", [3])]
    assert bench.values(11) == [1, 2, 3]


def test_what_a_worker_did_not_begin_runs_again_as_it_asked() -> None:
    bench = Bench(signature=SEVERAL)
    bench.offer(named(11, "classify", 7))
    bench.batcher.pump(bench.time.now)
    bench.puppet.error(14, "not now", pb.EXECUTED_NO)
    bench.batcher.pump(bench.time.now)

    assert sent(bench) == [("classify", [7])]


@pytest.mark.parametrize(
    ("signature", "known"), [(SEVERAL, "serving_default, classify, explain"), (ECHO, "it has one, without a name")]
)
def test_one_that_there_is_not_is_refused_with_those_there_are(signature: Signature, known: str) -> None:
    bench = Bench(signature=signature)
    bench.offer(named(11, "regress", 1))

    reply = bench.replies()[11]
    assert (reply.code, reply.message) == (INVALID_ARGUMENT, f"signature 'regress' is asked for; there is: {known}")


def test_outputs_are_those_of_the_signature_that_was_asked_for() -> None:
    two = replace(OTHER, outputs=(*OTHER.outputs, OTHER.outputs[0]._replace(name="z")))
    bench = Bench(signature=replace(ECHO, more=(two,)))
    bench.offer(ints(11, [1], signature_name="classify", outputs=["z"]))
    bench.batcher.pump(bench.time.now)
    (batch,) = bench.puppet.batches()
    reply = pb.Reply(id=batch.id, executed=pb.EXECUTED_YES, digest="sha256:1", stages_ns=[1, 2, 3], final=True)
    for name in "yz":
        reply.outputs.add(name=name, datatype="INT32", shape=[1], data=bytes(4))
    bench.puppet.reply(reply)
    bench.time.advance(MS)

    assert [output.name for output in bench.replies()[11].outputs] == ["z"]
    assert (batch.model, batch.version) == NAME
