from services.chassis.backoff import Backoff


def test_waits_double_up_to_the_longest_with_jitter() -> None:
    backoff = Backoff()
    waits = [backoff.next_s() for _ in range(8)]

    for wait_s, longest_s in zip(waits, [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0], strict=True):
        assert 0.5 * longest_s <= wait_s <= longest_s


def test_a_success_starts_over() -> None:
    backoff = Backoff()
    for _ in range(6):
        backoff.next_s()
    backoff.reset()

    assert backoff.next_s() <= 0.1


def test_a_try_that_lasted_counts_as_a_success() -> None:
    backoff = Backoff(first_s=0.001, longest_s=0.0)
    backoff.begin()

    assert backoff.next_s() <= 0.001
    assert backoff.next_s() <= 0.001
