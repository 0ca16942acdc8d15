"""Decoupled models in the batcher: answers passed on, slots, cancels, credit, and ends of every kind."""

from dataclasses import replace

from services.batcher.policy import BatchPolicy, WaitPolicy
from services.batcher.stream_batcher import StreamBatcher
from services.core.errors import (
    CANCELLED,
    DEADLINE_EXCEEDED,
    INTERNAL,
    OK,
    UNAVAILABLE,
    UNIMPLEMENTED,
)
from tests.support.batching import ECHO, MS, Bench, Puppet
from turnout.v1 import link_pb2 as pb

STREAM = replace(ECHO, batches=False, decoupled=True)


def bench_of(policy: BatchPolicy | None = None, *, slots: int = 1, workers: int = 1) -> Bench:
    bench = Bench(policy or BatchPolicy(max_batch_rows=0), slots=slots, workers=workers, signature=STREAM)
    assert isinstance(bench.batcher, StreamBatcher)
    return bench


def ask(bench: Bench, count: int = 1, **fields: object) -> list[int]:
    return bench.send(*[[1]] * count, credit=8192, **fields)


def say(puppet: Puppet, number: int, seq: int, code: int = OK, *, final: bool = False, message: str = "") -> None:
    puppet.reply(
        pb.Reply(
            id=number, seq=seq, code=code, message=message, final=final, executed=pb.EXECUTED_YES,
            stages_ns=[0, 5, 0], digest="sha256:1",
        )
    )  # fmt: skip


def told(bench: Bench, number: int) -> list[tuple[int, int, bool]]:
    """(seq, code, final) of what the caller of a request was told since last asked."""
    return [(reply.seq, reply.code, reply.final) for reply in bench.link.take().replies if reply.id == number]


def test_answers_are_passed_on_as_they_come_and_the_slot_is_held_to_the_end() -> None:
    bench = bench_of()
    first, second = ask(bench, 2)
    (request,) = bench.puppet.batches()
    assert (request.credit, request.rows) == (8192, 1)

    say(bench.puppet, request.id, 0)
    say(bench.puppet, request.id, 1)
    assert told(bench, first) == [(0, OK, False), (1, OK, False)]
    assert len(bench.puppet.batches()) == 1
    say(bench.puppet, request.id, 2, final=True)
    assert told(bench, first) == [(2, OK, True)]

    (following,) = bench.puppet.batches()
    say(bench.puppet, following.id, 0, final=True)
    assert told(bench, second) == [(0, OK, True)]
    assert bench.batcher.is_idle
    assert not bench.caller.pending
    assert bench.batcher.lobby.tally.by_code[OK] == 2
    assert bench.batcher.lobby.tally.streamed == 2


def test_a_reply_tells_the_stages_in_the_batchers_words() -> None:
    bench = bench_of()
    (number,) = ask(bench)
    (request,) = bench.puppet.batches()
    bench.time.advance(3 * MS)
    say(bench.puppet, request.id, 0, final=True)
    (reply,) = bench.link.take().replies

    assert (reply.id, list(reply.stages_ns), reply.total_ns) == (number, [0, 0, 3 * MS - 5, 0, 5, 0, 0], 3 * MS)


def test_an_end_that_overtakes_a_large_answer_waits_for_it() -> None:
    bench = bench_of()
    (number,) = ask(bench)
    (request,) = bench.puppet.batches()
    say(bench.puppet, request.id, 1, final=True)
    assert told(bench, number) == []
    say(bench.puppet, request.id, 0)

    assert told(bench, number) == [(0, OK, False), (1, OK, True)]


def test_a_cancelled_request_is_cancelled_at_its_worker_and_frees_the_slot_when_that_has_stopped() -> None:
    bench = bench_of()
    first, second = ask(bench, 2)
    (request,) = bench.puppet.batches()
    say(bench.puppet, request.id, 0)
    bench.cancel(first)
    assert list(bench.puppet.link.take().cancels) == [request.id]
    say(bench.puppet, request.id, 1)  # it was on its way
    assert bench.puppet.batches()[0].id == request.id
    say(bench.puppet, request.id, 2, CANCELLED, final=True)

    assert told(bench, first) == [(0, OK, False)]
    (following,) = [each for each in bench.puppet.batches() if each.id != request.id]
    bench.cancel(second)
    assert list(bench.puppet.link.take().cancels) == [following.id]
    assert bench.batcher.lobby.tally.raised == 0


def test_who_waits_in_the_queue_is_cancelled_there() -> None:
    bench = bench_of()
    _, second = ask(bench, 2)
    bench.puppet.batches()
    bench.cancel(second)

    assert not bench.puppet.link.take().cancels


def test_room_for_answers_is_told_to_the_worker() -> None:
    bench = bench_of()
    first, second = ask(bench, 2)
    (request,) = bench.puppet.batches()
    for number in (first, second):
        pending = bench.caller.pending[number]
        pending.home.credit(pending, 100)
    assert [(each.id, each.bytes) for each in bench.puppet.link.take().credits] == [(request.id, 100)]
    say(bench.puppet, request.id, 0, final=True)

    assert bench.puppet.batches()[0].credit == 8192 + 100


def test_a_deadline_ends_it_in_the_middle() -> None:
    bench = bench_of()
    (number,) = ask(bench, deadline_us=5000)
    (request,) = bench.puppet.batches()
    say(bench.puppet, request.id, 0)
    bench.time.advance(10 * MS)

    assert told(bench, number) == [(0, OK, False), (1, DEADLINE_EXCEEDED, True)]
    assert list(bench.puppet.link.take().cancels) == [request.id]


def test_a_queue_timeout_ends_who_waits() -> None:
    bench = bench_of(BatchPolicy(max_batch_rows=0, wait=WaitPolicy(timeout_ns=5 * MS)))
    first, second = ask(bench, 2)
    bench.time.advance(10 * MS)

    assert told(bench, second) == [(0, UNAVAILABLE, True)]
    assert first in bench.caller.pending


def test_higher_priorities_are_first() -> None:
    bench = bench_of(BatchPolicy(max_batch_rows=0, levels=(WaitPolicy(), WaitPolicy()), default_level=2))
    ask(bench)
    (low,) = ask(bench, priority=2)
    (high,) = ask(bench, priority=1)
    (running,) = bench.puppet.batches()
    say(bench.puppet, running.id, 0, final=True)
    (following,) = bench.puppet.batches()
    say(bench.puppet, following.id, 0, final=True)

    assert high not in bench.caller.pending
    assert low in bench.caller.pending


def test_a_worker_that_dies_in_the_middle_is_an_error_and_nothing_runs_again() -> None:
    bench = bench_of(workers=2)
    (number,) = ask(bench)
    puppet = next(each for each in bench.puppets if each.batches())
    (request,) = puppet.batches()
    say(puppet, request.id, 0)
    puppet.die()

    (_, reply) = bench.link.take().replies
    assert (reply.id, reply.seq, reply.code, reply.final) == (number, 1, INTERNAL, True)
    assert reply.message == "the process of echo/1 died with this request, after 1 answers"
    assert not any(each.batches() for each in bench.puppets if each is not puppet)


def test_a_worker_that_dies_before_an_answer_is_another_try() -> None:
    bench = bench_of(workers=2)
    (number,) = ask(bench)
    puppet, other = sorted(bench.puppets, key=lambda each: not each.batches())
    puppet.die()
    (request,) = other.batches()
    say(other, request.id, 0)
    say(other, request.id, 1, final=True)

    assert (request.credit, told(bench, number)) == (8192, [(0, OK, False), (1, OK, True)])


def test_an_error_after_answers_is_passed_on_and_never_put_back() -> None:
    bench = bench_of()
    (number,) = ask(bench)
    (request,) = bench.puppet.batches()
    say(bench.puppet, request.id, 0)
    bench.puppet.reply(
        pb.Reply(id=request.id, seq=1, code=UNAVAILABLE, message="gone", executed=pb.EXECUTED_NO, final=True)
    )

    assert told(bench, number) == [(0, OK, False), (1, UNAVAILABLE, True)]
    assert bench.batcher.is_idle


def test_who_takes_one_answer_only_is_told() -> None:
    bench = bench_of()
    (number,) = bench.send([1])

    assert bench.codes() == {number: UNIMPLEMENTED}


def test_nothing_is_learnt_of_how_long_they_take() -> None:
    bench = bench_of()
    for _ in range(20):
        ask(bench)
        (request,) = bench.puppet.batches()
        bench.time.advance(1000 * MS)
        say(bench.puppet, request.id, 0, final=True)
    (number,) = ask(bench, deadline_us=1000)

    assert number in bench.caller.pending
