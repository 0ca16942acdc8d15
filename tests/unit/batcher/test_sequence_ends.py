import pytest

from services.batcher.sequences import REASONS
from services.core.errors import DEADLINE_EXCEEDED, INTERNAL, INVALID_ARGUMENT, OK, UNAVAILABLE
from tests.support.batching import MS
from tests.support.sequencing import SequenceBench, entries
from turnout.v1 import link_pb2 as pb


def ended(bench: SequenceBench) -> dict[str, int]:
    counts = zip(REASONS, bench.batcher.lobby.queue.table.ended, strict=True)
    return {reason: count for reason, count in counts if count}


def test_silence_ends_sequences_with_one_timer_and_promotes_who_waits() -> None:
    bench = SequenceBench(batching={"max_batch_size": 2})
    for name in (1, 2, 3):
        bench.step(name, name, start=True)
    bench.run()
    bench.run()
    bench.time.advance(110 * MS)

    assert bench.run() == [3]
    assert ended(bench) == {"idle": 2}
    assert bench.told(bench.step(1)) == (
        INVALID_ARGUMENT,
        "sequence 1 of echo/1 is not active here: it sent nothing for too long; begin it anew with sequence_start",
    )
    bench.time.advance(1000 * MS)
    wakes = bench.time.wakes
    bench.time.advance(100_000 * MS)
    assert bench.time.wakes == wakes


def test_a_thousand_silent_sequences_cost_no_timer_each() -> None:
    bench = SequenceBench(oldest={"max_candidate_sequences": 1000}, batching={"max_batch_size": 1000})
    for name in range(1, 1001):
        bench.step(name, start=True)
    while bench.puppet.rows():
        bench.run()
    wakes = bench.time.wakes
    bench.time.advance(500 * MS)

    assert ended(bench) == {"idle": 1000}
    assert bench.time.wakes - wakes < 5
    bench.step(1, start=True)
    assert len(bench.puppet.batches()[0].sequences_over) == 1000


@pytest.mark.parametrize("where", ["queue", "worker"])
def test_a_cancelled_request_ends_its_sequence_and_later_ones_are_told(where: str) -> None:
    bench = SequenceBench(batching={"max_batch_size": 1})
    first, behind = bench.step(1, 1, start=True), bench.step(1, 2)
    bench.step(2, 9, start=True)
    bench.cancel(first if where == "worker" else behind)
    bench.time.advance(MS)

    assert bench.run() == [1]
    assert bench.run() == [9]
    assert bench.told(bench.step(1))[1].startswith("sequence 1 of echo/1 is not active here: one of its requests was")
    assert ended(bench) == {"cancelled": 1}
    if where == "worker":
        assert bench.told(behind)[0] == INVALID_ARGUMENT
    else:
        assert bench.told(first)[0] == OK
    assert list(bench.puppet.launched[1].sequences_over) == [entries(bench.puppet.launched[0])[0][0]]


@pytest.mark.parametrize("where", ["queue", "worker"])
def test_a_request_that_comes_too_late_ends_its_sequence(where: str) -> None:
    bench = SequenceBench()
    first = bench.step(1, 1, start=True, deadline_us=1_000_000 if where == "queue" else 20_000)
    behind = bench.step(1, 2, deadline_us=20_000 if where == "queue" else 1_000_000)
    bench.time.advance(30 * MS)
    late, other = (behind, first) if where == "queue" else (first, behind)

    assert bench.told(late)[0] == DEADLINE_EXCEEDED
    bench.run()
    assert bench.told(other)[0] == (OK if where == "queue" else INVALID_ARGUMENT)
    assert bench.told(bench.step(1))[0] == INVALID_ARGUMENT
    assert ended(bench) == {"cancelled": 1}


def test_a_raise_is_not_searched_and_ends_the_sequences_of_the_batch() -> None:
    bench = SequenceBench(slots=2)
    sent = [bench.step(name, name, start=True) for name in (1, 2)]
    behind = bench.step(1, 11)
    bench.puppet.error(INTERNAL, "bad row")
    bench.run()

    assert [bench.told(number) for number in sent] == [(INTERNAL, "bad row"), (OK, "")]
    assert "is not active here: one of its requests failed" in bench.told(behind)[1]
    assert bench.puppet.rows() == []
    bench.step(2, 22)
    assert bench.run() == [0, 22]
    assert ended(bench) == {"failed": 1}


def test_a_worker_that_dies_takes_its_sequences_along_and_a_new_start_works() -> None:
    bench = SequenceBench(workers=2, batching={"max_batch_size": 1})
    sent = [bench.step(name, name, start=True) for name in (1, 2, 3)]
    behind = bench.step(1, 11)
    bench.puppets[0].die()

    assert bench.told(sent[0]) == (INTERNAL, "the process of echo/1 died with this request; its sequence is over")
    assert bench.told(behind)[0] == INVALID_ARGUMENT
    assert bench.told(bench.step(1))[1].startswith(
        "sequence 1 of echo/1 is not active here: the process that held its state is gone"
    )
    bench.run(bench.puppets[1])
    again = bench.step(1, 7, start=True)
    newcomer = bench.hire()
    assert bench.run(newcomer) == [3]
    bench.step(3, end=True)
    bench.run(newcomer)
    assert bench.run(newcomer) == [7]
    assert [bench.told(number)[0] for number in (sent[1], sent[2], again)] == [OK] * 3


def test_a_worker_that_refuses_a_batch_ends_its_sequences_without_another_try() -> None:
    bench = SequenceBench()
    number = bench.step(1, start=True)
    bench.puppet.error(UNAVAILABLE, "busy", executed=pb.EXECUTED_NO)

    assert bench.told(number) == (UNAVAILABLE, "busy")
    assert (bench.puppet.rows(), ended(bench)) == ([], {"failed": 1})


def test_wrong_rows_from_a_model_fail_all_and_end_their_sequences() -> None:
    bench = SequenceBench()
    number = bench.step(1, start=True)
    (request,) = bench.puppet.batches()
    reply = pb.Reply(id=request.id, executed=pb.EXECUTED_YES)
    reply.outputs.add(name="y", datatype="INT32", shape=[2], data=bytes(8))
    bench.puppet.reply(reply)

    assert bench.told(number)[0] == INTERNAL
    assert ended(bench) == {"failed": 1}


def test_what_a_lost_link_sent_is_over_at_once() -> None:
    bench = SequenceBench(batching={"max_batch_size": 1})
    bench.step(1, start=True)
    bench.run()
    bench.batcher.lobby.forget(bench.caller)

    assert ended(bench) == {"link": 1}
    bench.step(2, 5, start=True)
    assert bench.run() == [5]


def test_draining_and_giving_up_answer_everyone() -> None:
    bench = SequenceBench()
    running, behind, other = bench.step(1, start=True), bench.step(1), bench.step(2, start=True)
    bench.batcher.drain()
    refused = bench.step(3, start=True)
    bench.batcher.give_up("this replica stops")

    assert [bench.told(number)[0] for number in (running, other, refused)] == [INTERNAL, UNAVAILABLE, UNAVAILABLE]
    assert bench.told(behind)[0] in {UNAVAILABLE, INVALID_ARGUMENT}
    assert len(bench.caller.pending) == 0
