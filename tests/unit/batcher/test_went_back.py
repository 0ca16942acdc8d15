"""The only worker of the newest artifact dies while one of the artifact before is there still."""

from dataclasses import replace

import pytest

from services.core.errors import INTERNAL, OK, UNAVAILABLE
from services.core.signature import TensorSpec
from tests.support.batching import ECHO, MS, Bench, Puppet

OTHER = replace(ECHO, inputs=(TensorSpec("x", "INT32", (-1,)),), outputs=(TensorSpec("z", "INT32", (-1,)),))


def replaced(bench: Bench, *, alike: bool = True) -> Puppet:
    """A worker with another artifact has come."""
    bench.facts = replace(bench.facts, digest="sha256:2", signature=ECHO if alike else OTHER)
    return bench.hire()


def test_it_takes_batches_again_and_is_what_is_said_to_be_served() -> None:
    bench = Bench()
    new = replaced(bench)
    numbers = bench.send([1]) + bench.send([2])
    assert (bench.puppet.rows(), new.rows()) == ([], [1])
    new.die()

    assert bench.batcher.lobby.digest == "sha256:1"
    while bench.puppet.batches():
        bench.puppet.echo()
    assert bench.codes() == dict.fromkeys(numbers, OK)
    bench.time.advance(3_000 * MS)
    assert bench.batcher.lobby.door.closed == ""


def test_it_stands_back_again_when_the_newest_returns() -> None:
    bench = Bench()
    replaced(bench).die()
    assert bench.puppet.worker.accepting
    new = bench.hire()
    bench.send([1])

    assert (bench.puppet.rows(), new.rows()) == ([], [1])
    assert bench.batcher.lobby.digest == "sha256:2"


def test_one_that_was_let_go_takes_none() -> None:
    bench = Bench()
    new = replaced(bench)
    bench.puppet.worker.accepting = bench.puppet.worker.is_replaced = False
    new.die()

    assert not bench.puppet.worker.accepting


@pytest.mark.parametrize("returns", [True, False])
def test_with_another_signature_those_who_wait_are_told_unless_the_newest_returns(returns: bool) -> None:  # noqa: FBT001
    bench = Bench(slots=2)
    (running,) = bench.send([0])
    new = replaced(bench, alike=False)
    numbers = bench.send([11]) + bench.send([12])
    new.die()
    bench.time.advance(500 * MS)
    assert (bench.codes(), bench.puppet.worker.accepting) == ({}, False)
    if returns:
        bench.hire()
    bench.time.advance(1_000 * MS)
    bench.puppet.echo()

    assert bench.codes() == {running: OK} | (
        {} if returns else dict(zip(numbers, (INTERNAL, UNAVAILABLE), strict=True))
    )
    assert bool(bench.batcher.lobby.door.closed) != returns
