import pytest

from services.batcher import sequences as module
from services.batcher.sequences import CANCELLED, FOREVER_NS, IDLE, LINK, REASONS, WORKER, Host, Sequence, Sequences

IDLE_NS = 100


class Worker:
    accepting = True

    def __init__(self) -> None:
        self.over: list[int] = []


class Table:
    """Sequences of requests that are plain texts; time moves by hand."""

    def __init__(self, *capacities: int) -> None:
        self.now = 0
        self.all: Sequences[str] = Sequences(IDLE_NS)
        self.workers = [Worker() for _ in capacities]
        for worker, capacity in zip(self.workers, capacities, strict=True):
            self.all.open(worker, capacity, 0)

    def add(self, name: int | str, request: str = "r", *, start: bool = False, end: bool = False) -> Sequence[str]:
        return self.all.add(name, request, "router", self.now, start=start, end=end)

    def start(self, name: int | str, request: str = "r", *, end: bool = False) -> Sequence[str]:
        return self.add(name, request, start=True, end=end)

    def host(self, number: int = 0) -> Host[str]:
        return self.all.hosts[self.workers[number]]

    def ready(self, number: int = 0) -> list[int | str]:
        return [sequence.id for sequence in self.host(number).ready]

    def run(self, sequence: Sequence[str]) -> tuple[str, bool, bool]:
        """Run its next request."""
        taken = self.all.take(sequence)
        self.all.landed(sequence, self.now)
        return taken

    def ended(self) -> dict[str, int]:
        return {reason: count for reason, count in zip(REASONS, self.all.ended, strict=True) if count}


def test_requests_of_a_sequence_run_in_order_one_at_a_time() -> None:
    table = Table(4)
    sequence = table.start(1, "a")
    table.add(1, "b")
    table.add(1, "c", end=True)

    assert table.all.take(sequence) == ("a", True, False)
    assert table.ready() == []
    table.all.landed(sequence, 0)
    assert table.ready() == [1]
    assert table.run(sequence) == ("b", False, False)
    assert table.run(sequence) == ("c", False, True)
    assert (len(table.all), table.ended()) == (0, {"end": 1})


def test_a_sequence_of_one_request_starts_and_ends_with_it() -> None:
    table = Table(1)

    assert table.run(table.start(1, end=True)) == ("r", True, True)
    assert table.host().over == []
    assert table.all.find(1) is None


def test_sequences_without_a_place_wait_in_order() -> None:
    table = Table(1)
    first, second, _ = table.start(1, end=True), table.start(2, end=True), table.start(3)
    table.add(3, "more")

    assert table.ready() == [1]
    table.run(first)
    assert table.ready() == [2]
    table.run(second)
    assert table.ready() == [3]
    assert not table.all.backlog


def test_a_newcomer_goes_where_most_places_are_free_and_takes_the_lowest_row() -> None:
    table = Table(2, 4)

    hosts = [table.start(n).host for n in range(6)]

    assert [host is table.host(1) for host in hosts] == [False, True, True, False, True, True]
    assert sorted(table.host(1).seated) == [0, 1, 2, 3]


def test_a_place_that_is_free_again_is_taken_before_those_above_it() -> None:
    table = Table(3)
    first = table.start(1, end=True)
    table.start(2)
    table.run(first)

    assert table.start(3).row == 0


def test_a_start_of_an_active_sequence_lets_what_waits_run_and_begins_anew() -> None:
    table = Table(1)
    old = table.start(1, "old")
    new = table.start(1, "new")

    assert table.all.find(1) is new
    assert table.run(old) == ("old", True, False)
    assert table.host().over == [old.number]
    assert table.run(new) == ("new", True, False)
    assert table.ended() == {"restarted": 1}
    assert old.number != new.number


def test_a_start_of_a_silent_sequence_ends_it_at_once_and_does_not_pass_those_who_wait() -> None:
    table = Table(1)
    table.run(table.start(1))
    table.start(2)
    table.start(1)

    assert table.ready() == [2]
    assert [sequence.id for sequence in table.all.backlog] == [1]


def test_silence_ends_a_sequence_and_frees_its_place() -> None:
    table = Table(1)
    table.run(table.start(1))
    table.start(2)

    assert (table.all.expiry_ns, table.all.expire(IDLE_NS - 1)) == (IDLE_NS, 0)
    assert table.all.expire(IDLE_NS) == 1
    assert table.ready() == [2]
    assert table.all.find(1) is None
    assert table.all.why_over(1) == "it sent nothing for too long"
    assert table.all.expiry_ns == FOREVER_NS


def test_a_request_ends_the_silence() -> None:
    table = Table(2)
    sequence = table.start(1)
    table.run(sequence)
    table.now = IDLE_NS - 1
    table.add(1)

    assert table.all.expire(IDLE_NS) == 0
    table.run(sequence)
    assert table.all.expiry_ns == 2 * IDLE_NS - 1


def test_one_look_ends_all_that_were_silent() -> None:
    table = Table(1000)
    for number in range(1, 1001):
        table.run(table.start(number))

    assert table.all.expire(IDLE_NS) == 1000
    assert (len(table.all), table.all.expiry_ns) == (0, FOREVER_NS)
    assert len(table.host().over) == 1000


@pytest.mark.parametrize("where", ["queue", "worker"])
def test_a_cancelled_request_ends_its_sequence_and_those_behind_it_are_told(where: str) -> None:
    running = where == "worker"
    table = Table(1)
    sequence = table.start(1, "a")
    table.add(1, "b")
    table.start(2)
    if running:
        table.all.take(sequence)

    assert table.all.end(sequence, CANCELLED, 0) == (["b"] if running else ["a", "b"])
    assert table.ready() == [2]
    assert table.host().over == ([sequence.number] if running else [])
    table.all.landed(sequence, 0)
    assert table.ready() == [2]
    assert table.ended() == {"cancelled": 1}


def test_a_sequence_is_over_only_once() -> None:
    table = Table(1)
    sequence = table.start(1)
    table.all.end(sequence, CANCELLED, 0)

    assert table.all.end(sequence, IDLE, 0) == []
    assert table.ended() == {"cancelled": 1}


def test_the_sequences_of_a_lost_link_are_over() -> None:
    table = Table(2)
    table.run(table.start(1))
    table.start(2, "waits")
    other = table.all.add(3, "kept", "other router", 0, start=True, end=False)

    assert table.all.end_of("router", 0) == ["waits"]
    assert list(table.all) == [other]
    assert table.ready() == [3]
    assert table.ended() == {REASONS[LINK]: 2}


def test_a_sequence_belongs_to_who_sent_its_latest_request() -> None:
    table = Table(1)
    table.start(1)
    table.all.add(1, "b", "other router", 0, start=False, end=False)

    assert table.all.end_of("router", 0) == []
    assert table.all.end_of("other router", 0) == ["r", "b"]


def test_the_sequences_of_a_lost_worker_are_over_and_those_who_wait_go_elsewhere() -> None:
    table = Table(1, 1)
    sequences = [table.start(n, f"r{n}") for n in range(1, 4)]
    table.all.take(sequences[0])
    table.add(1, "behind")

    assert table.all.close(table.workers[0], 0) == ["behind"]
    assert table.all.close(table.workers[0], 0) == []
    assert table.ready(1) == [2]
    assert [sequence.id for sequence in table.all.backlog] == [3]
    assert table.ended() == {REASONS[WORKER]: 1}
    assert table.all.why_over(1) == "the process that held its state is gone"
    newcomer = table.all.open(Worker(), 1, 0)
    assert [sequence.id for sequence in newcomer.ready] == [3]


def test_a_worker_that_closes_keeps_its_sequences_and_takes_no_new_ones() -> None:
    table = Table(2)
    sequence = table.start(1)
    table.workers[0].accepting = False
    table.start(2)

    assert table.run(sequence) == ("r", True, False)
    assert [waiting.id for waiting in table.all.backlog] == [2]


def test_what_is_remembered_of_past_sequences_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REMEMBERED", 2)
    table = Table(9)
    for number in (1, 2, 3):
        table.run(table.start(number, end=True))

    assert table.all.why_over(1) == "it did not start here"
    assert table.all.why_over(2) == table.all.why_over(3) == "its last request said sequence_end"
