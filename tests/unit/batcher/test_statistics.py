"""What is said of counts on links: what changed, once; to who asks, with the question's number at the end."""

from dataclasses import replace

from services.batcher.policy import BatchPolicy
from services.batcher.statistics import Statistics
from services.batcher.tally import Tally
from services.core.errors import INTERNAL
from tests.support.batching import ECHO, MS, Bench
from turnout.v1 import link_pb2 as pb


def said(envelopes: list[bytes]) -> list[pb.Stats]:
    return list(pb.Frame.FromString(b"".join(envelopes)).stats)


def test_only_what_changed_is_said_again() -> None:
    bench = Bench(BatchPolicy(max_batch_rows=4))
    tally = bench.batcher.lobby.tally
    statistics = Statistics({("echo", "1"): tally, ("idle", "1"): Tally()}, bench.time.clock)
    assert [len(each.versions) for each in said(statistics.whole())] == [2]
    statistics.changed()
    assert statistics.changed() == []

    bench.send([1, 2, 3])
    bench.time.advance(MS)
    bench.puppet.echo()
    ((version,),) = [stats.versions for stats in said(statistics.changed())]

    assert (version.model, version.success, version.fail) == ("echo", 1, 0)
    assert [(size.rows, size.count, size.compute_ns) for size in version.sizes] == [(3, 1, 2)]
    assert (version.queue_ns, version.compute_ns) == (0, 2)
    assert version.last_ms > 0
    assert statistics.changed() == []


def test_failures_and_those_who_left_are_counted_with_the_time_they_spent() -> None:
    bench = Bench(BatchPolicy(max_batch_rows=1))
    statistics = Statistics({("echo", "1"): bench.batcher.lobby.tally}, bench.time.clock)
    (first,) = bench.send([1])
    (second,) = bench.send([2])
    assert first != second
    bench.time.advance(2 * MS)
    bench.cancel(second)
    bench.puppet.error(INTERNAL, "no")
    ((version,),) = [stats.versions for stats in said(statistics.whole())]

    assert (version.success, version.fail, version.fail_ns) == (0, 2, 4 * MS)
    assert (list(version.sizes), version.last_ms) == ([], 0)


def test_a_streamed_request_is_one_execution_however_many_answers_it_has() -> None:
    signature = replace(ECHO, batches=False, decoupled=True)
    bench = Bench(BatchPolicy(max_batch_rows=0), signature=signature)
    statistics = Statistics({("echo", "1"): bench.batcher.lobby.tally}, bench.time.clock)
    bench.send([1], credit=8192)
    (request,) = bench.puppet.batches()
    for seq, final in ((0, False), (1, False), (2, True)):
        bench.puppet.reply(pb.Reply(id=request.id, seq=seq, final=final, stages_ns=[0, 5, 0], digest="sha256:1"))
    ((version,),) = [stats.versions for stats in said(statistics.whole())]

    assert (version.success, version.fail) == (1, 0)
    assert [(size.rows, size.count, size.compute_ns) for size in version.sizes] == [(1, 1, 5)]


def test_an_answer_ends_with_the_number_of_its_question() -> None:
    assert said([Statistics.answered(7)]) == [pb.Stats(answers=7)]


def test_no_envelope_is_so_large_that_it_would_be_overtaken() -> None:
    tallies = {}
    for number in range(40):
        tally = tallies["m", str(number)] = Tally()
        for rows in range(1, 1000):
            tally.ran(rows, 1 << 40, 1)
    envelopes = Statistics(tallies, lambda: 1).whole()

    assert sum(len(each.versions) for each in said(envelopes)) == 40
    assert max(map(len, envelopes)) < 256 << 10


def test_a_replica_that_has_counted_nothing_says_so() -> None:
    assert said(Statistics({}, lambda: 1).whole()) == [pb.Stats()]
