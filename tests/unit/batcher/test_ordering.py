"""preserve_ordering: answers leave as their requests came."""

from services.batcher.ordering import Order
from services.batcher.policy import BatchPolicy, WaitPolicy
from services.core.errors import INTERNAL, OK, UNAVAILABLE
from tests.support.batching import MS, Bench

ORDERED = BatchPolicy(max_batch_rows=1, preserve_ordering=True)


def answered(bench: Bench) -> list[tuple[int, int]]:
    """Number and code of each answer since the last call, in the order of leaving."""
    return [(reply.id, reply.code) for reply in bench.link.take().replies]


def test_an_answer_waits_for_those_before_it_though_batches_run_side_by_side() -> None:
    bench = Bench(ORDERED, workers=2)
    bench.send([1], [2], [3])
    one, two = bench.puppets
    two.echo()
    assert answered(bench) == []

    two.echo()
    one.echo()

    assert answered(bench) == [(1, OK), (2, OK), (3, OK)]


def test_errors_and_timeouts_have_their_place_too() -> None:
    bench = Bench(BatchPolicy(max_batch_rows=1, preserve_ordering=True, wait=WaitPolicy(timeout_ns=5 * MS)), workers=2)
    bench.send([1], [2], [3])
    bench.puppets[1].error(INTERNAL, "no")
    bench.send([4])
    bench.time.advance(6 * MS)
    assert answered(bench) == []

    bench.puppets[0].echo()
    assert answered(bench) == [(1, OK), (2, INTERNAL)]
    bench.puppets[1].echo()

    assert answered(bench) == [(3, OK), (4, UNAVAILABLE)]


def test_nobody_waits_for_an_answer_that_was_cancelled() -> None:
    bench = Bench(ORDERED, workers=2)
    bench.send([1], [2])
    bench.puppets[1].echo()
    bench.cancel(1)

    assert answered(bench) == [(2, OK)]


def test_what_is_refused_at_the_door_is_told_at_once() -> None:
    bench = Bench(BatchPolicy(max_batch_rows=1, max_queue_rows=1, preserve_ordering=True))
    for value in (1, 2, 3):
        bench.send([value])

    assert answered(bench) == [(3, UNAVAILABLE)]


def test_a_request_that_was_cut_has_one_place() -> None:
    bench = Bench(ORDERED, workers=3)
    bench.send([1, 2], [3])
    for puppet in (bench.puppets[2], bench.puppets[1], bench.puppets[0]):
        puppet.echo()

    assert answered(bench) == [(1, OK), (2, OK)]


def test_switched_off_live_it_holds_only_for_those_who_wait() -> None:
    bench = Bench(ORDERED, workers=3)
    bench.send([1], [2])
    bench.batcher.apply(BatchPolicy(max_batch_rows=1))
    bench.send([3])
    bench.puppets[2].echo()
    bench.puppets[1].echo()
    assert answered(bench) == [(3, OK)]

    bench.puppets[0].echo()

    assert answered(bench) == [(1, OK), (2, OK)]


def test_an_order_keeps_nothing_of_what_has_left() -> None:
    sent: list[bytes] = []
    order = Order(lambda *parts: sent.append(b"".join(parts)))
    first, second, third = order.join(), order.join(), order.join()
    third.say(b"3")
    second.skip()
    assert (sent, len(order)) == ([], 3)

    first.say(b"1", b"!")

    assert (sent, len(order)) == ([b"1!", b"3"], 0)
