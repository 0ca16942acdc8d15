import pytest

from services.batcher.sequence_policy import SequencePolicy, departure
from services.core.batching_spec import Batching

MS = 1_000_000


def policy(*, batches: bool = True, size: int = 8, **sequences: object) -> SequencePolicy:
    spec = Batching.model_validate({"max_batch_size": size, "sequence_batching": sequences})
    found = SequencePolicy.of(spec, batches=batches)
    assert found is not None
    return found


def test_a_model_without_state_has_no_policy() -> None:
    assert SequencePolicy.of(Batching(), batches=True) is None


@pytest.mark.parametrize(
    ("given", "places", "rows"),
    [
        (policy(), 8, 8),
        (policy(batches=False), 3, 1),
        (policy(size=0), 3, 1),
        (policy(oldest={"max_candidate_sequences": 40}), 40, 8),
        (policy(oldest={"max_candidate_sequences": 40}, size=0), 40, 1),
    ],
)
def test_a_worker_holds_a_sequence_a_row_or_slot_or_as_many_as_may_be_candidates(
    given: SequencePolicy, places: int, rows: int
) -> None:
    assert (given.capacity(slots=3), given.most_rows) == (places, rows)


def test_only_times_may_change_while_sequences_keep_their_places() -> None:
    calm = policy(max_sequence_idle_microseconds=5_000_000)

    assert calm.holds_alike(policy())
    assert not calm.holds_alike(policy(size=4))
    assert not calm.holds_alike(policy(oldest={"max_candidate_sequences": 8}))
    assert not calm.holds_alike(policy(control_input=[{"name": "s", "kind": "START"}]))
    assert not calm.holds_alike(None)


DELAY = {"max_queue_delay_microseconds": 5000}
DIRECT = policy(direct={**DELAY, "minimum_slot_utilization": 0.3})
OLDEST = policy(oldest={**DELAY, "max_candidate_sequences": 16, "preferred_batch_size": [2, 4]})


@pytest.mark.parametrize(
    ("given", "ready", "seated", "waited_ms", "expected"),
    [
        (policy(), 1, 8, 0, (8, 0)),
        (policy(direct=DELAY), 1, 8, 0, (8, 0)),
        (DIRECT, 2, 8, 0, (8, 5 * MS)),
        (DIRECT, 2, 8, 4.9, (8, 5 * MS)),
        (DIRECT, 2, 8, 5, (8, 5 * MS)),
        (DIRECT, 3, 8, 0, (8, 0)),
        (DIRECT, 2, 2, 0, (8, 0)),
        (OLDEST, 1, 9, 1, (8, 5 * MS)),
        (OLDEST, 3, 9, 1, (2, 1 * MS)),
        (OLDEST, 5, 9, 1, (4, 1 * MS)),
        (OLDEST, 8, 9, 1, (8, 1 * MS)),
        (OLDEST, 1, 1, 1, (8, 1 * MS)),
        (OLDEST, 3, 9, 6, (8, 6 * MS)),
    ],
)
def test_a_batch_waits_for_sequences_that_have_a_place_and_never_longer_than_the_delay(
    given: SequencePolicy, ready: int, seated: int, waited_ms: float, expected: tuple[int, int]
) -> None:
    assert departure(given, ready, seated, 0, int(waited_ms * MS)) == expected
