"""Who asks for counts gets those of after the question; one question to the replicas is under way at a time."""

import asyncio
from typing import Any, cast

import pytest

from services.chassis.replicas import Replica
from services.router import statistics as tested
from services.router.statistics import Statistics
from turnout.v1 import link_pb2 as pb

pytestmark = pytest.mark.asyncio


class FakeReplica:
    """Keeps what it is asked."""

    def __init__(self, name: str, *, tells_counts: bool = True) -> None:
        self.name = name
        self.is_connected = True
        self.tells_counts = tells_counts
        self.asked: list[tuple[int, str]] = []

    def ask(self, number: int, model: str) -> None:
        self.asked.append((number, model))


def desk(*replicas: FakeReplica) -> Statistics:
    return Statistics(lambda: cast("list[Replica]", replicas))


def answer(statistics: Statistics, replica: FakeReplica, success: int = 1) -> None:
    counts = pb.Stats(versions=[pb.VersionStats(model="m", version="1", success=success)])
    said: list[Any] = [counts, pb.Stats(answers=replica.asked[-1][0])]
    statistics.received(cast("Replica", replica), said)


async def asked(statistics: Statistics, *models: str) -> list["asyncio.Task[None]"]:
    tasks = [asyncio.create_task(statistics.ask(model)) for model in models]
    await asyncio.sleep(0)
    return tasks


async def test_every_replica_is_heard_before_the_caller() -> None:
    one, two = FakeReplica("one"), FakeReplica("two")
    statistics = desk(one, two)
    (waits,) = await asked(statistics, "m")
    answer(statistics, one)
    await asyncio.sleep(0)
    assert not waits.done()

    answer(statistics, two)
    await waits
    assert statistics.ledger.total("m", "1").success == 2


async def test_who_asks_while_a_question_is_under_way_gets_the_next() -> None:
    replica = FakeReplica("one")
    statistics = desk(replica)
    first, second, third = await asked(statistics, "m", "m", "n")
    assert replica.asked == [(1, "m")]

    answer(statistics, replica)
    await first
    assert replica.asked == [(1, "m"), (2, "")]
    assert not second.done()

    answer(statistics, replica)
    await asyncio.gather(second, third)
    assert replica.asked == [(1, "m"), (2, "")]


async def test_nobody_waits_for_who_is_gone_or_never_counted() -> None:
    old, one = FakeReplica("old", tells_counts=False), FakeReplica("one")
    statistics = desk(old, one)
    (waits,) = await asked(statistics, "m")
    one.is_connected = False
    statistics.changed()
    await waits

    assert old.asked == []
    await statistics.ask("m")  # there is nobody to ask


async def test_one_that_hangs_is_waited_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested, "_PATIENCE_S", 0.01)
    replica = FakeReplica("one")
    statistics = desk(replica)

    await asyncio.gather(statistics.ask("m"), statistics.ask("m"))

    assert [number for number, _ in replica.asked] == [1, 2]


async def test_a_caller_who_leaves_takes_nobody_along() -> None:
    replica = FakeReplica("one")
    statistics = desk(replica)
    first, second = await asked(statistics, "m", "m")
    first.cancel()
    answer(statistics, replica)
    await asyncio.sleep(0)
    answer(statistics, replica)

    await second
