from typing import Any

import pytest

from services.core.errors import INVALID_ARGUMENT, OK, UNAVAILABLE
from services.core.signature import Signature, TensorSpec
from tests.support.batching import MS, texts
from tests.support.sequencing import SIGNATURE, SequenceBench, controls, entries, policy_of, tensor
from turnout.v1 import link_pb2 as pb

OLDEST = {"max_candidate_sequences": 8}


def test_the_model_is_told_of_each_row_and_the_worker_which_state_is_whose() -> None:
    bench = SequenceBench()
    first = bench.step(7, 10, start=True)
    bench.step(8, 20, start=True, end=True)
    bench.step(9, 30, start=True)
    bench.run()
    (request,) = bench.puppet.batches()
    (_, started, ended_), (_, starts, ends) = entries(request)[1:]

    assert controls(bench.puppet.launched[0]) == {"start": [True], "ready": [1], "end": [0], "id": [7]}
    assert bench.rows_of() == [[0, 20, 30]]
    assert controls(request) == {
        "start": [False, True, True],
        "ready": [-1, 1, 1],
        "end": [0, 1, 0],
        "id": [0, 8, 9],
    }
    assert request.sequence_rows[0] == 0
    assert [(started, ended_), (starts, ends)] == [(True, True), (True, False)]
    assert [list(tensor(request, name).shape) for name in ("x", "start", "ready")] == [[3], [3, 1], [3]]
    assert "before" not in [given.name for given in request.inputs]
    assert bench.values(first) == [10]


def test_every_caller_gets_its_own_row_whatever_rows_are_empty() -> None:
    bench = SequenceBench()
    sent = [bench.step(name, name, start=True) for name in range(1, 5)]
    bench.run()
    bench.run()
    more = [bench.step(4, 44), bench.step(2, 22)]
    bench.run()

    assert bench.rows_of() == [[0, 22]]
    bench.run()
    assert bench.puppet.rows() == []
    assert [bench.values(number) for number in sent + more] == [[1], [2], [3], [4], [44], [22]]


def test_requests_of_one_sequence_never_share_a_batch_or_pass_each_other() -> None:
    bench = SequenceBench(slots=2)
    sent = [bench.step(1, value, start=value == 0) for value in range(4)]

    assert [bench.run() for _ in sent] == [[0], [1], [2], [3]]
    assert [code for code, _ in map(bench.told, sent)] == [OK] * 4
    assert len({number for batch in bench.puppet.launched for number, _, _ in entries(batch)}) == 1


def test_batches_of_the_oldest_hold_one_request_of_each_without_empty_rows() -> None:
    bench = SequenceBench(oldest=OLDEST)
    for name in range(1, 8):
        bench.step(name, name, start=True)
    bench.run()

    assert bench.run() == [2, 3, 4, 5]
    assert bench.run() == [6, 7]
    bench.step(6, 66)
    assert bench.run() == [66]
    assert controls(bench.puppet.launched[-1]) == {"start": [False], "ready": [1], "end": [0], "id": [6]}


def test_more_sequences_than_places_wait_until_one_ends() -> None:
    bench = SequenceBench(batching={"max_batch_size": 2})
    bench.step(1, 1, start=True)
    for name in (2, 3, 4):
        bench.step(name, name, start=True)
    bench.run()
    assert bench.run() == [0, 2]
    assert bench.puppet.rows() == []

    bench.step(2, 22, end=True)
    assert bench.run() == [0, 22]
    assert bench.rows_of() == [[0, 3]]


def test_sequences_spread_over_workers_and_stay_there() -> None:
    bench = SequenceBench(workers=2)
    for round_ in range(3):
        for name in range(1, 5):
            bench.step(name, name, start=round_ == 0)
        for puppet in bench.puppets:
            while puppet.rows():
                bench.run(puppet)
    homes = [
        {number for batch in puppet.launched for number, _, _ in entries(batch) if number} for puppet in bench.puppets
    ]

    assert [len(home) for home in homes] == [2, 2]
    assert not homes[0] & homes[1]


def test_batches_of_a_worker_overlap_as_far_as_it_has_slots() -> None:
    bench = SequenceBench(slots=2, oldest=OLDEST)
    for name in range(1, 4):
        bench.step(name, name, start=True)

    assert bench.rows_of() == [[1], [2]]


def test_a_direct_batch_waits_for_its_share_of_rows_but_no_longer_than_the_delay() -> None:
    bench = SequenceBench(direct={"max_queue_delay_microseconds": 5000, "minimum_slot_utilization": 0.5})
    for name in (1, 2, 3):
        bench.step(name, start=True)
    bench.run()
    bench.run()
    bench.step(1, 11)
    assert bench.puppet.rows() == []
    bench.time.advance(4 * MS)
    assert bench.puppet.rows() == []
    bench.step(3, 33)
    assert bench.run() == [11, 0, 33]
    bench.step(2, 22)
    bench.time.advance(6 * MS)

    assert bench.run() == [0, 22]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "send a sequence_id, and sequence_start at first"),
        ({"sequence": pb.Sequence(start=True)}, "send a sequence_id"),
        ({"sequence": pb.Sequence(number=1)}, "sequence 1 of echo/1 is not active here: it did not start here"),
        ({"sequence": pb.Sequence(text="a", start=True)}, "'a' of echo/1 is text, and the model takes a number"),
        ({"sequence": pb.Sequence(number=1, start=True), "shadow": True}, "a copy of a request cannot be compared"),
    ],
)
def test_what_is_no_step_of_a_sequence_is_refused_saying_what_is_right(fields: dict[str, Any], text: str) -> None:
    bench = SequenceBench()
    (number,) = bench.send([1], **fields)

    assert bench.told(number)[0] == INVALID_ARGUMENT
    assert text in bench.told(number)[1]


def test_a_request_has_one_row() -> None:
    bench = SequenceBench()
    two, none = bench.send([1, 2], [], sequence=pb.Sequence(number=1, start=True))

    assert bench.told(two)[1] == "a request of a sequence has 1 row, not 2; echo/1 keeps state for each"
    assert [bench.told(number)[0] for number in (two, none)] == [INVALID_ARGUMENT] * 2


def test_a_refused_start_begins_nothing() -> None:
    bench = SequenceBench()
    number = bench.step(1, 1, start=True, digest="another")

    assert bench.told(number)[0] != OK
    assert bench.told(bench.step(1))[0] == INVALID_ARGUMENT
    assert len(bench.batcher.lobby.queue.table) == 0


def test_sequences_that_wait_are_bounded_by_the_queue() -> None:
    bench = SequenceBench(batching={"max_batch_size": 1, "max_queue_size": 3})
    for name in range(1, 5):
        bench.step(name, start=True)
    number = bench.step(5, start=True)

    assert bench.told(number)[0] == UNAVAILABLE
    assert "3 of 3 rows wait" in bench.told(number)[1]


def test_a_model_that_does_not_batch_holds_a_sequence_a_slot() -> None:
    single = Signature(
        tuple(spec._replace(shape=(1, *spec.shape[2:])) for spec in SIGNATURE.inputs),
        tuple(spec._replace(shape=(1,)) for spec in SIGNATURE.outputs),
        batches=False,
    )
    bench = SequenceBench(slots=2, signature=single)
    for name in (1, 2, 3):
        bench.step(name, name, start=True)
    (first, second) = bench.puppet.batches()

    assert [list(tensor(batch, name).shape) for batch in (first, second) for name in ("x", "id")] == [[1]] * 4
    assert controls(first)["id"] == [1]
    assert [bench.run(), bench.run()] == [[1], [2]]
    bench.step(1, end=True)
    bench.run()
    assert bench.run() == [3]


def test_sequences_of_different_shapes_run_beside_each_other() -> None:
    inner = TensorSpec("x", "INT32", (-1, -1))
    signature = Signature((inner, *SIGNATURE.inputs[1:]), SIGNATURE.outputs, batches=True)
    bench = SequenceBench(signature=signature)
    for name, width in ((1, 1), (2, 2), (3, 1), (4, 2)):
        request = pb.Request(id=name, model="echo", version="1", rows=1)
        request.sequence.number, request.sequence.start = name, True
        request.inputs.add(name="x", datatype="INT32", shape=[1, width], data=bytes([name, 0, 0, 0]) * width)
        bench.offer(request)
        bench.batcher.pump(bench.time.now)
    shapes = []
    while bench.puppet.rows():
        shapes.append(list(tensor(bench.puppet.batches()[0], "x").shape))
        bench.run()

    assert shapes == [[1, 1], [4, 2], [3, 1]]


def test_empty_rows_of_text_are_empty_texts_and_ids_may_be_text() -> None:
    inputs = {"x": "BYTES", "id": "BYTES"}
    given = tuple(spec._replace(datatype=inputs.get(spec.name, spec.datatype)) for spec in SIGNATURE.inputs)
    bench = SequenceBench(signature=Signature(given, SIGNATURE.outputs, batches=True))
    for number, name in ((1, "a"), (2, "b"), (3, "c")):
        request = texts(number, [name.encode() * 2])
        request.sequence.text, request.sequence.start = name, True
        bench.offer(request)
        if number != 2:
            bench.batcher.pump(bench.time.now)
    bench.run()
    (batch,) = bench.puppet.batches()

    assert tensor(batch, "x").data == b"\0\0\0\0\2\0\0\0bb\2\0\0\0cc"
    assert tensor(batch, "id").data == b"\0\0\0\0\1\0\0\0b\1\0\0\0c"


def test_times_change_without_harm_to_sequences() -> None:
    bench = SequenceBench()
    bench.step(1, start=True)
    bench.run()
    bench.batcher.apply(policy_of(max_sequence_idle_microseconds=500_000))
    bench.time.advance(400 * MS)
    bench.step(1, 2)

    assert bench.run() == [2]


def test_who_waits_for_a_place_gets_one_on_a_worker_that_takes_new_ones_again() -> None:
    bench = SequenceBench()
    bench.puppet.worker.accepting = False
    bench.step(1, 1, start=True)
    assert bench.rows_of() == []
    bench.puppet.worker.accepting = True
    bench.batcher.pump(bench.time.now)

    assert bench.rows_of() == [[1]]
