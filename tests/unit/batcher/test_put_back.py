"""Requests that a worker did not begin with, and wait again."""

from dataclasses import replace

from services.batcher.policy import BatchPolicy
from services.core.errors import INTERNAL, OK, UNAVAILABLE
from services.core.signature import TensorSpec
from tests.support.batching import ECHO, MS, Bench
from turnout.v1 import link_pb2 as pb

WIDE = replace(ECHO, outputs=(*ECHO.outputs, TensorSpec("z", "INT32", (-1,))))


def refuse(bench: Bench) -> None:
    bench.puppet.error(UNAVAILABLE, "stops", pb.EXECUTED_NO)


def closed_while_running() -> tuple[Bench, list[int]]:
    """Three requests run together while what comes begins to be read otherwise; the worker has not begun."""
    bench = Bench(signature=WIDE, workers=0)
    bench.send([1], [2], [3])
    bench.puppets.append(bench.hire())
    bench.batcher.apply(BatchPolicy(kept_outputs=frozenset({"z"})))
    return bench, [1, 2, 3]


def test_they_run_in_one_batch_though_what_comes_is_read_otherwise() -> None:
    bench, _ = closed_while_running()
    assert bench.puppet.rows() == [3]
    bench.send([4])
    refuse(bench)

    assert bench.puppet.rows() == [3]


def test_who_comes_does_not_join_those_who_were_read_otherwise() -> None:
    bench, numbers = closed_while_running()
    bench.batcher.workers[0].accepting = False
    refuse(bench)
    bench.send([4])
    bench.batcher.workers[0].accepting = True
    bench.batcher.pump(bench.time.now)
    assert bench.puppet.rows() == [3]
    bench.puppet.echo()

    assert bench.puppet.rows() == [1]
    assert bench.codes() == dict.fromkeys(numbers, OK)


def test_who_waited_too_long_meanwhile_is_told_at_once() -> None:
    bench = Bench()
    bench.send([0], deadline_us=1_000_000)
    (number,) = bench.send([1], queue_timeout_us=10_000)
    bench.puppet.echo()
    bench.time.advance(20 * MS)
    assert bench.puppet.rows() == [1]
    bench.batcher.workers[0].accepting = False
    refuse(bench)
    bench.time.advance(MS)

    assert bench.codes()[number] == UNAVAILABLE
    assert "queue timeout" in bench.replies()[number].message


def test_an_error_is_no_reason_to_think_that_the_worker_is_busy() -> None:
    bench = Bench()
    for _ in range(20):
        bench.send([0])
        bench.time.advance(50 * MS)
        bench.puppet.echo()
    bench.send([1])
    bench.puppet.error(INTERNAL, "no")

    assert bench.puppet.worker.busy_until_ns == bench.time.now
