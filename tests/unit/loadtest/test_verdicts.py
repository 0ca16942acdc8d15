"""A claim holds only when the points say so, and is never judged by points that do not count."""

from typing import Any

from loadtest.batching import verdicts


def point(rule: str, rate: float, good_s: float, ms: float = 10, **fields: Any) -> dict[str, Any]:
    latency = {"p50": ms, "p95": ms, "p99": ms}
    return {
        "curve": "slow",
        "kind": "poisson",
        "rule": rule,
        "rate": rate,
        "good_s": good_s,
        "good_share": good_s / rate,
        "ms": latency,
        "refused_ms": {},
        "wrong": 0,
        "failed": 0,
        "lag_ms": {"p99": 0.1},
        "deadline_ms": 50,
    } | fields


def test_three_times_the_throughput_counts_only_at_no_worse_p95() -> None:
    single = point("single", 200, 190, ms=40)

    fast = verdicts.times_single([single, point("ours", 1000, 1000, ms=30)], "slow", "poisson")
    slow = verdicts.times_single([single, point("ours", 1000, 1000, ms=41)], "slow", "poisson")
    assert (fast.holds, slow.holds) == (True, False)


def test_a_point_whose_generator_was_late_or_whose_answer_was_wrong_is_not_judged() -> None:
    single = point("single", 200, 190, ms=40)

    for fault in ({"lag_ms": {"p99": 9}}, {"wrong": 1}, {"failed": 1}):
        bad = point("ours", 1000, 1000, ms=30, **fault)
        assert verdicts.times_single([single, bad], "slow", "poisson").holds is None


def test_the_best_of_the_others_is_the_measure_at_every_rate() -> None:
    points = [
        *(point("fixed", 100, 100, ms=15), point("triton", 100, 100, ms=12), point("ours", 100, 100, ms=12.5)),
        *(point("fixed", 900, 900, ms=15), point("triton", 900, 500, ms=50), point("ours", 900, 800, ms=15)),
    ]

    goodput, p50, _ = verdicts.within_best(points, "slow", "poisson")
    assert (goodput.holds, p50.holds) == (False, True)
    assert "900/s" in goodput.found


def test_latency_is_not_compared_with_a_rule_that_leaves_callers_without_an_answer() -> None:
    points = [point("triton", 900, 500, ms=5), point("fixed", 900, 895, ms=20), point("ours", 900, 900, ms=20)]

    _, p50, _ = verdicts.within_best(points, "slow", "poisson")
    assert p50.holds is True


def test_goodput_must_last_under_overload() -> None:
    points = [point("ours", 1000, 800), point("ours", 10_000, 700, refused_ms={"p99": 3}, door_ms={"p99": 2})]

    kept, in_time, prompt = verdicts.overload(points, "slow")
    assert (kept.holds, in_time.holds, prompt.holds) == (False, True, True)
