"""Counts of replicas add up, whatever becomes of the replicas."""

from services.router.ledger import Ledger, executions
from turnout.v1 import link_pb2 as pb


def counted(success: int, *sizes: tuple[int, int], model: str = "m", **fields: int) -> pb.VersionStats:
    return pb.VersionStats(
        model=model,
        version="1",
        success=success,
        sizes=[pb.SizeStats(rows=rows, count=count, compute_ns=10 * count) for rows, count in sizes],
        **fields,
    )


def test_replicas_are_summed_and_sizes_with_them() -> None:
    ledger = Ledger(lambda: {"a", "b"})
    ledger.take("a", [counted(3, (1, 1), (2, 1), last_ms=5, queue_ns=7)])
    ledger.take("b", [counted(4, (2, 2), last_ms=9, queue_ns=1)])
    total = ledger.total("m", "1")

    assert (total.success, total.queue_ns, total.last_ms) == (7, 8, 9)
    assert [(size.rows, size.count, size.compute_ns) for size in total.sizes] == [(1, 1, 10), (2, 3, 30)]
    assert ledger.total("m", "2") == pb.VersionStats(model="m", version="2")
    assert ledger.versions("m") == {"1"}


def test_the_last_word_replaces_the_one_before() -> None:
    ledger = Ledger(lambda: {"a"})
    for success in (1, 2, 2, 5):
        ledger.take("a", [counted(success, (1, success))])

    assert ledger.total("m", "1").success == 5
    assert executions(ledger.total("m", "1")) == 5


def test_counts_that_went_down_began_anew() -> None:
    ledger = Ledger(lambda: {"a"})
    for success in (4, 1, 2, 0, 3):  # a process of the same name was started twice
        ledger.take("a", [counted(success, (1, success))])

    assert ledger.total("m", "1").success == 4 + 2 + 3


def test_of_many_that_are_gone_the_sum_is_kept() -> None:
    live: set[str] = set()
    ledger = Ledger(lambda: live)
    for number in range(200):
        ledger.take(f"r{number}", [counted(1, (2, 1))])

    assert ledger.total("m", "1").success == 200
    assert len(ledger._said) < 70


def test_models_that_nobody_knows_any_more_are_forgotten() -> None:
    ledger = Ledger(lambda: {"a"})
    ledger.take("a", [counted(1), counted(1, model="n")])
    ledger.forget_models({"n"})

    assert (ledger.versions("m"), ledger.versions("n")) == (set(), {"1"})
