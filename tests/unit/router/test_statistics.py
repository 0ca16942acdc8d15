"""Who asks for counts gets those of after the question; one question to the replicas is under way at a time."""

import asyncio
from collections.abc import Callable
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
        self.asked: list[int] = []

    def ask(self, number: int) -> None:
        self.asked.append(number)


def desk(*replicas: FakeReplica) -> Statistics:
    return Statistics(lambda: cast("list[Replica]", replicas))


def answer(statistics: Statistics, replica: FakeReplica, success: int = 1) -> None:
    counts = pb.Stats(versions=[pb.VersionStats(model="m", version="1", success=success)])
    said: list[Any] = [counts, pb.Stats(answers=replica.asked[-1])]
    statistics.received(cast("Replica", replica), said)


async def asked(statistics: Statistics, callers: int = 1) -> list["asyncio.Task[None]"]:
    tasks = [asyncio.create_task(statistics.ask()) for _ in range(callers)]
    await asyncio.sleep(0)
    return tasks


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


async def test_every_replica_is_heard_before_the_caller() -> None:
    one, two = FakeReplica("one"), FakeReplica("two")
    statistics = desk(one, two)
    (waits,) = await asked(statistics)
    answer(statistics, one)
    await asyncio.sleep(0)
    assert not waits.done()

    answer(statistics, two)
    await waits
    assert statistics.ledger.total("m", "1").success == 2


async def test_who_asks_while_a_question_is_under_way_gets_the_next() -> None:
    replica = FakeReplica("one")
    statistics = desk(replica)
    first, second, third = await asked(statistics, 3)
    assert replica.asked == [1]

    answer(statistics, replica)
    await first
    assert not second.done()
    await until(lambda: replica.asked == [1, 2])
    answer(statistics, replica)
    await asyncio.gather(second, third)
    assert replica.asked == [1, 2]


async def test_nobody_waits_for_who_is_gone_or_never_counted() -> None:
    old, one = FakeReplica("old", tells_counts=False), FakeReplica("one")
    statistics = desk(old, one)
    (waits,) = await asked(statistics)
    one.is_connected = False
    statistics.changed()
    await waits

    assert old.asked == []
    await statistics.ask()  # there is nobody to ask


async def test_one_that_hangs_is_waited_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested, "_PATIENCE_S", 0.01)
    replica = FakeReplica("one")
    statistics = desk(replica)

    await asyncio.gather(statistics.ask(), statistics.ask())

    assert replica.asked == [1, 2]


async def test_a_caller_who_leaves_takes_nobody_along() -> None:
    replica = FakeReplica("one")
    statistics = desk(replica)
    first, second = await asked(statistics, 2)
    first.cancel()
    answer(statistics, replica)
    await until(lambda: replica.asked == [1, 2])
    answer(statistics, replica)

    await second


async def test_questions_are_apart_however_many_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested, "_GAP_S", 0.2)
    replica = FakeReplica("one")
    statistics = desk(replica)
    began_s = asyncio.get_running_loop().time()
    for number in (1, 2, 3):
        (waits,) = await asked(statistics)
        await until(lambda number=number: len(replica.asked) == number)  # type: ignore[misc]
        answer(statistics, replica)
        await waits

    assert asyncio.get_running_loop().time() - began_s >= 0.4
