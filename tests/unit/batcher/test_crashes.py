"""An error of the batcher's own while a batch is dealt with is the end of that batch only."""

import pytest
import structlog

from services.batcher.answers import Answers
from services.batcher.recovery import Recovery
from services.batcher.replies import Scatter
from services.batcher.worker import Worker
from services.core.errors import INTERNAL, OK
from tests.support.batching import Bench


def breaks(*_: object, **__: object) -> None:
    raise RuntimeError("a bug")


@pytest.mark.parametrize(("owner", "name"), [(Answers, "learn"), (Answers, "read"), (Scatter, "split")])
def test_members_are_told_and_the_next_batch_runs(owner: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.send([0])
    numbers = bench.send([1], [2])
    bench.puppet.echo()
    with monkeypatch.context() as patch, structlog.testing.capture_logs() as logs:
        patch.setattr(owner, name, breaks)
        bench.send([3])
        bench.puppet.echo()

    assert [(bench.codes()[number], bench.replies()[number].message) for number in numbers] == [
        (INTERNAL, "internal error")
    ] * 2
    assert [(line["event"], str(line["exc_info"])) for line in logs] == [("batch_crashed", "a bug")]
    bench.puppet.echo()
    assert bench.codes()[4] == OK
    assert bench.batcher.is_idle
    assert bench.device.in_flight == 0
    assert not bench.caller.pending


def test_who_is_answered_already_is_answered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.send([0])
    first, second = bench.send([1], [2, 3])
    bench.puppet.echo()
    head = Scatter._head

    def breaks_at_second(scatter: Scatter, *args: object) -> bytes:
        if scatter.count:
            raise RuntimeError("a bug")
        return head(scatter, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Scatter, "_head", breaks_at_second)
    bench.puppet.echo()

    assert (bench.codes()[first], bench.codes()[second]) == (OK, INTERNAL)


def test_members_of_a_batch_whose_error_is_not_dealt_with_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.send([0])
    numbers = bench.send([1], [2], [3], [4])
    bench.puppet.echo()
    bench.puppet.error(INTERNAL, "one of them")
    monkeypatch.setattr(Recovery, "raised", breaks)
    bench.puppet.error(INTERNAL, "one of them")

    assert [bench.codes()[number] for number in numbers] == [INTERNAL] * 4
    assert bench.batcher.is_idle


def test_a_search_goes_on_when_an_answer_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.send([0])
    numbers = bench.send([1], [2], [3], [4])
    bench.puppet.echo()
    bench.puppet.error(INTERNAL, "one of them")
    with monkeypatch.context() as patch:
        patch.setattr(Scatter, "split", breaks)
        bench.puppet.echo()
    while bench.puppet.batches():
        bench.puppet.echo()

    assert [bench.codes()[number] for number in numbers] == [INTERNAL, INTERNAL, OK, OK]
    assert bench.batcher.is_idle


def test_a_batch_that_cannot_be_sent_is_told_and_holds_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    with monkeypatch.context() as patch:
        patch.setattr(Worker, "launch", breaks)
        (lost,) = bench.send([1])

    assert (bench.codes()[lost], bench.device.in_flight) == (INTERNAL, 0)

    (good,) = bench.send([2])
    bench.puppet.echo()

    assert bench.codes()[good] == OK
    assert bench.batcher.is_idle
