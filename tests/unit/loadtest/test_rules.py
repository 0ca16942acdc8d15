"""The other servers' rules do what their descriptions say."""

from typing import NamedTuple

import pytest

from loadtest.batching.rules import FixedSize, Leave, OneByOne, TritonsRule, rule_of

MS = 1_000_000


class Request(NamedTuple):
    arrival_ns: int
    rows: int = 1
    shape: str = "a"


def singles(count: int, arrival_ns: int = 0) -> list[Request]:
    return [Request(arrival_ns) for _ in range(count)]


def test_without_batching_one_request_leaves_at_a_time() -> None:
    assert OneByOne()(singles(9), 0) == Leave(1)


@pytest.mark.parametrize("rule", [FixedSize(64, 5 * MS), TritonsRule(64, delay_ns=5 * MS)])
class TestARuleWithADelay:
    def test_sends_a_full_batch_at_once(self, rule: FixedSize) -> None:
        assert rule(singles(65), 0) == Leave(64)

    def test_waits_for_the_delay_of_the_oldest(self, rule: FixedSize) -> None:
        waiting = [Request(2 * MS), Request(MS), Request(3 * MS)]

        assert rule(waiting, 3 * MS) == Leave(0, 6 * MS)
        assert rule(waiting, 6 * MS) == Leave(3)

    def test_is_full_when_the_next_one_does_not_fit(self, rule: FixedSize) -> None:
        assert rule([Request(0, 40), Request(0, 40)], 0) == Leave(1)

    def test_lets_one_that_is_too_large_go_alone(self, rule: FixedSize) -> None:
        assert rule([Request(0, 100), Request(0, 1)], 0) == Leave(1)


def test_fixed_batches_wait_even_when_the_next_request_has_another_shape() -> None:
    waiting = [Request(0), Request(0, shape="b"), Request(0)]

    assert FixedSize()(waiting, 0) == Leave(0, 5 * MS)
    assert FixedSize()(waiting, 5 * MS) == Leave(1)


def test_tritons_rule_sends_at_once_what_another_shape_blocks() -> None:
    waiting = [Request(0), Request(0), Request(0, shape="b"), Request(0)]

    assert TritonsRule(delay_ns=5 * MS)(waiting, 0) == Leave(2)


def test_tritons_rule_without_a_delay_sends_whatever_there_is() -> None:
    assert TritonsRule()(singles(3), 0) == Leave(3)


def test_tritons_rule_sends_the_largest_preferred_size_that_there_is() -> None:
    rule = TritonsRule(64, (4, 8), 5 * MS)

    assert rule(singles(3), 0) == Leave(0, 5 * MS)
    assert rule(singles(5), 0) == Leave(4)
    assert rule(singles(11), 0) == Leave(8)
    assert rule(singles(11), 5 * MS) == Leave(11)


def test_no_rule_goes_over_the_model_s_limit() -> None:
    for name in ("fixed", "triton", "triton-5ms"):
        assert rule_of(name, 16)(singles(100), 0) == Leave(16), name
    assert rule_of("fixed", 1024)(singles(100), 0) == Leave(64)
