"""Requests in here while the artifact, or the batcher itself, is replaced: each is told, and none runs as it cannot."""

from dataclasses import replace

import pytest

from services.batcher.policy import BatchPolicy
from services.core.errors import INTERNAL, OK, UNAVAILABLE
from services.core.model_spec import ModelSpec
from services.core.signature import TensorSpec
from tests.support.batching import ECHO, Bench, Puppet, ints
from tests.support.sequencing import SIGNATURE, SequenceBench
from tests.support.serving import served_by
from turnout.v1 import link_pb2 as pb

OTHER = replace(ECHO, inputs=(*ECHO.inputs, TensorSpec("more", "FP32", (-1, 2))))


def searching() -> tuple[Bench, list[int]]:
    """Four requests of which two run once more, and two are held back."""
    bench = Bench(slots=2)
    bench.send([0])
    numbers = bench.send([1], [2], [3], [4])
    bench.puppet.echo()
    bench.puppet.error(INTERNAL, "one of them")
    assert bench.puppet.rows() == [2]
    bench.replies()
    return bench, numbers


def replaced(bench: Bench) -> Puppet:
    """A worker with another artifact, whose signature differs, has come."""
    bench.facts = replace(bench.facts, digest="sha256:2", signature=OTHER)
    return bench.hire()


def test_who_is_held_back_by_a_search_is_told_on_time() -> None:
    bench = Bench()
    bench.send([0])
    numbers = bench.send([1], [2], [3], [4], deadline_us=50_000)
    bench.puppet.echo()
    bench.puppet.error(INTERNAL, "one of them")
    assert bench.puppet.rows() == [2]
    bench.time.advance(60_000_000)

    assert set(bench.codes()) >= set(numbers)


def test_giving_up_answers_who_is_held_back_too() -> None:
    bench, numbers = searching()
    bench.batcher.give_up("this replica stops")

    assert [bench.codes()[number] for number in numbers] == [INTERNAL] * 4


def test_a_search_ends_when_another_signature_comes() -> None:
    bench, numbers = searching()
    new = replaced(bench)

    assert [bench.codes().get(number) for number in numbers] == [None, None, INTERNAL, INTERNAL]
    bench.puppet.error(INTERNAL, "one of them")
    assert [bench.codes()[number] for number in numbers] == [INTERNAL] * 4
    assert (new.rows(), bench.device.in_flight, bench.batcher.is_idle) == ([], 0, True)


def test_suspects_do_not_run_on_another_signature() -> None:
    bench = Bench(workers=2)
    bench.puppets[1].worker.accepting = False
    bench.send([1], [2])
    bench.puppet.die()
    new = replaced(bench)

    assert bench.codes() == {1: INTERNAL, 2: INTERNAL}
    assert (new.rows(), bench.device.in_flight) == ([], 0)


@pytest.mark.parametrize("how", ["dies", "refuses", "answers"])
def test_what_runs_when_another_signature_comes_ends_there(how: str) -> None:
    bench = Bench()
    bench.send([1])
    new = replaced(bench)
    if how == "dies":
        bench.puppet.die()
    elif how == "refuses":
        bench.puppet.error(UNAVAILABLE, "stops", pb.EXECUTED_NO)
    else:
        bench.puppet.echo()

    assert bench.codes() == {1: {"dies": INTERNAL, "refuses": UNAVAILABLE, "answers": OK}[how]}
    assert (new.rows(), bench.device.in_flight, bench.batcher.is_idle) == ([], 0, True)


def test_who_waits_to_run_again_is_told_when_the_batcher_is_replaced() -> None:
    bench, numbers = searching()
    old, sequential = bench.batcher, SequenceBench(workers=0)
    bench.batcher = sequential.batcher
    for worker in old.retire("batched otherwise"):
        bench.batcher.attach(worker)

    assert [bench.codes().get(number) for number in numbers] == [None, None, INTERNAL, INTERNAL]
    bench.puppet.echo()
    assert [bench.codes()[number] for number in numbers] == [OK, OK, INTERNAL, INTERNAL]
    assert bench.batcher.is_idle


def test_a_step_of_a_sequence_does_not_run_again_as_an_ordinary_request() -> None:
    sequential = SequenceBench(workers=1)
    sequential.step(1, 1, start=True)
    sequential.step(2, 2, start=True)
    sequential.run()
    old, bench = sequential.batcher, Bench(BatchPolicy(), signature=SIGNATURE, workers=0, beside=sequential)
    sequential.batcher = bench.batcher  # type: ignore[assignment]
    for worker in old.retire("batched otherwise"):
        bench.batcher.attach(worker)
    sequential.puppet.die()

    assert sequential.codes() == {1: OK, 2: INTERNAL}
    assert (bench.batcher.is_idle, bench.device.in_flight) == (True, 0)


@pytest.mark.parametrize("end", ["evicted", "given up"])
def test_a_cut_request_of_which_a_part_ran_is_not_said_to_be_untouched(end: str) -> None:
    levels = (BatchPolicy().wait,) * 2
    bench = Bench(BatchPolicy(max_batch_rows=2, max_queue_rows=6, levels=levels, default_level=2))
    (cut,) = bench.send([1, 2, 3, 4, 5, 6])
    if end == "evicted":
        bench.send([7], [8], [9], priority=1)
    else:
        bench.batcher.give_up("this replica stops")

    assert (bench.codes()[cut], bench.replies()[cut].executed) == (UNAVAILABLE, pb.EXECUTED_MAYBE)


def test_a_cut_request_that_waits_too_long_is_counted_once() -> None:
    bench = Bench(BatchPolicy(max_batch_rows=2))
    bench.send([0])
    bench.send([1, 2, 3, 4, 5, 6], queue_timeout_us=10_000)
    bench.time.advance(20_000_000)

    assert bench.batcher.lobby.tally.shed == [0, 0, 1]
    assert bench.batcher.lobby.tally.expired == [1, 0]


def test_when_an_artifact_that_does_not_batch_takes_over_requests_run_one_by_one() -> None:
    bench = Bench(workers=0)
    serving = served_by(lambda _model, _version: ModelSpec(), bench)
    bench.hire()
    bench.facts = replace(bench.facts, digest="sha256:2", signature=replace(ECHO, batches=False))
    new = bench.hire()
    serving.changed()
    for number in range(1, 4):
        bench.offer(ints(number, [number]))
    bench.batcher.pump(bench.time.now)

    assert bench.codes() == {}
    assert [list(batch.inputs[0].shape) for batch in new.batches()] == [[1]]
    new.echo()
    assert [list(batch.inputs[0].shape) for batch in new.batches()] == [[1]]
