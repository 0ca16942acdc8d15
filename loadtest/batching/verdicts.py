"""What the figures are held against. Pure: points in, verdicts out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from loadtest.batching.experiments import LONE_DELAY_MS, OURS, RIVALS, SINGLE, TRITON, TRITON_5MS, TRITON_ONE
from loadtest.batching.outcome import PROMPT_MS

MOST_LAG_MS = 5.0  # of 99 in 100 requests: a generator later than that has measured itself
TIMES_SINGLE = 3.0
TIMES_TRITON = 2.0
WITHIN = 0.05
_FLOOR_MS = 0.3  # differences of latency below are the machine's
_SERVED = 0.99  # of what is offered: a rule that answers less is saturated
_GOODPUT_KEPT = 0.9
_BEYOND = 1.9  # times the peak: as good as twice
_MOSTLY = 0.8
_TIMER_MS = 1.5  # event loops round to milliseconds
_IDLE_CPU_PERCENT = 0.2
_FLAT_BYTES, _FLAT_SHARE = 8 << 20, 0.05

Point = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One claim, what was found, and whether that is enough; None = it could not be measured."""

    claim: str
    found: str
    holds: bool | None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def kept(point: Point) -> bool:
    """Whether the generator kept its schedule, every answer was right, and nothing failed in a way of its own."""
    return not point["wrong"] and not point["failed"] and point["lag_ms"].get("p99", 0.0) <= MOST_LAG_MS


def of(points: Iterable[Point], curve: str, kind: str = "", rule: str = "") -> list[Point]:
    """The points of one curve that count, in order of rate."""
    found = [
        point
        for point in points
        if point["curve"] == curve and kind in ("", point["kind"]) and rule in ("", point["rule"]) and kept(point)
    ]
    return sorted(found, key=lambda point: float(point["rate"]))


def times_single(points: Sequence[Point], curve: str, kind: str) -> Verdict:
    """Ours against one request a launch, where that is saturated."""
    claim = f"{curve}, {kind}: at least {TIMES_SINGLE:g} x no batching's best throughput, at no worse p95"
    single, ours = of(points, curve, kind, SINGLE), of(points, curve, kind, OURS)
    if not single or not ours:
        return Verdict(claim, "not measured", None)
    peak = max(single, key=_good)
    limit_ms = peak["ms"].get("p95", 0.0)
    able = [point for point in ours if point["ms"] and point["ms"]["p95"] <= limit_ms]
    best = max(able, key=_good, default=None)
    if best is None:
        return Verdict(claim, f"p95 is never below {limit_ms:.1f} ms", False)
    ratio = _good(best) / max(1.0, _good(peak))
    found = f"{ratio:.1f} x: {_good(best):,.0f}/s at p95 {best['ms']['p95']:.1f} ms, "
    found += f"{_good(peak):,.0f}/s at {limit_ms:.1f} ms without batching"
    return Verdict(claim, found, ratio >= TIMES_SINGLE)


def within_best(points: Sequence[Point], curve: str, kind: str) -> list[Verdict]:
    """Ours against whichever other rule is best at each rate: answers in time, and the usual latency."""
    pairs = []
    for mine in of(points, curve, kind, OURS):
        others = [
            point for point in of(points, curve, kind) if point["rate"] == mine["rate"] and point["rule"] in RIVALS
        ]
        if others:
            pairs.append((mine, others))
    return [_goodput_within(pairs, curve, kind), *(_latency_within(pairs, curve, kind, of_) for of_ in ("p50", "p95"))]


Pairs = Sequence[tuple[Point, Sequence[Point]]]


def _goodput_within(pairs: Pairs, curve: str, kind: str) -> Verdict:
    claim = f"{curve}, {kind}: goodput within {WITHIN:.0%} of the best other rule's at every rate"
    worst = 10.0
    found = "not measured"
    for mine, others in pairs:
        best = max(others, key=_good)
        ratio = _good(mine) / max(1.0, _good(best))
        if ratio < worst:
            worst, found = ratio, f"worst {ratio:.2f} x at {mine['rate']:,.0f}/s, of {best['rule']}"
    return Verdict(claim, found, worst >= 1 - WITHIN if pairs else None)


def _latency_within(pairs: Pairs, curve: str, kind: str, name: str) -> Verdict:
    claim = f"{curve}, {kind}: {name} within {WITHIN:.0%} of the best other rule's wherever one answers everybody"
    worst, found, holds = 0.0, "not measured", None
    for mine, others in pairs:
        able = [point for point in others if point["good_share"] >= _SERVED]
        if not able or not mine["ms"]:
            continue
        best = min(able, key=lambda point: float(point["ms"][name]))
        own_ms, best_ms = mine["ms"][name], best["ms"][name]
        excess = (own_ms - _FLOOR_MS) / best_ms
        holds = holds is not False and excess <= 1 + WITHIN
        if excess > worst:
            worst = excess
            found = f"worst {own_ms:.2f} ms at {mine['rate']:,.0f}/s, {best['rule']} {best_ms:.2f} ms"
    return Verdict(claim, found, holds)


def times_triton(points: Sequence[Point], curve: str) -> Verdict:
    claim = f"{curve}: at least {TIMES_TRITON:g} x the best throughput of Triton's rule"
    theirs = [point for rule in (TRITON, TRITON_5MS, TRITON_ONE) for point in of(points, curve, rule=rule)]
    ours = of(points, curve, rule=OURS)
    if not theirs or not ours:
        return Verdict(claim, "not measured", None)
    own, other = max(map(_good, ours)), max(map(_good, theirs))
    return Verdict(
        claim, f"{own / max(1.0, other):.1f} x: {own:,.0f}/s and {other:,.0f}/s", own >= TIMES_TRITON * other
    )


def overload(points: Sequence[Point], curve: str) -> list[Verdict]:
    ours = of(points, curve, rule=OURS)
    claim = f"{curve}: goodput at the highest rate at least {_GOODPUT_KEPT:.0%} of the peak"
    if not ours:
        return [Verdict(claim, "not measured", None)]
    last, peak = ours[-1], max(map(_good, ours))
    share = _good(last) / max(1.0, peak)
    verdicts = [Verdict(claim, f"{share:.0%}: {_good(last):,.0f}/s of {peak:,.0f}/s", share >= _GOODPUT_KEPT)]
    deadline_ms = last["deadline_ms"]
    worst_ms = max(point["ms"].get("p99", 0.0) for point in ours)
    claim = f"{curve}: p99 of the answered within the deadline of {deadline_ms:g} ms at every rate"
    verdicts.append(Verdict(claim, f"{worst_ms:.1f} ms at worst", worst_ms <= deadline_ms))
    refused = [point for point in ours if point["refused_ms"]]
    claim = f"{curve}: 99 in 100 refusals within {PROMPT_MS:g} ms, at every rate"
    worst_ms = max((point["refused_ms"]["p99"] for point in refused), default=0.0)
    door_ms = max((point["door_ms"].get("p99", 0.0) for point in refused), default=0.0)
    found = f"{worst_ms:.1f} ms at worst; {door_ms:.1f} ms of those that were never let in"
    verdicts.append(Verdict(claim, found, worst_ms <= PROMPT_MS if refused else None))
    return verdicts


def beyond(points: Sequence[Point], curve: str) -> Verdict:
    """A device that computes on the cores that everybody shares, with more than they can serve."""
    claim = f"{curve}: goodput at twice what it sustains at least {_GOODPUT_KEPT:.0%} of the peak"
    ours = of(points, curve, rule=OURS)
    if not ours:
        return Verdict(claim, "not measured", None)
    last, peak = ours[-1], max(map(_good, ours))
    times = last["offered_s"] / max(1.0, peak)
    found = f"{_good(last) / max(1.0, peak):.0%} of {peak:,.0f}/s, at {times:.1f} x"
    return Verdict(claim, found, _good(last) >= _GOODPUT_KEPT * peak if times >= _BEYOND else None)


def refusing(points: Sequence[Point], curve: str) -> Verdict:
    """What a refusal costs, from the point where nearly everybody is refused. No claim: a figure."""
    ours = of(points, curve, rule=OURS)
    claim = f"{curve}: requests that one core can refuse a second"
    refused_share = ours[-1]["counts"].get("refused", 0) / sum(ours[-1]["counts"].values()) if ours else 0.0
    if refused_share < _MOSTLY:
        return Verdict(claim, "not measured", None)
    each = {part: ours[-1]["cpu_us"][part] for part in ("router", "batcher")}
    parts = ", ".join(f"{part} {us:.0f} µs" for part, us in each.items())
    return Verdict(claim, f"{1e6 / sum(each.values()):,.0f} ({parts}, {refused_share:.0%} refused)", True)


def memory_flat(curve: str, first: Mapping[str, int], second: Mapping[str, int]) -> Verdict:
    """Resident bytes of the services after a run at the highest rate, and after the same run again."""
    claim = f"{curve}: memory flat at the highest rate"
    grown = {part: second[part] - first[part] for part in ("router", "batcher")}
    holds = all(grown[part] <= max(_FLAT_BYTES, _FLAT_SHARE * first[part]) for part in grown)
    found = ", ".join(f"{part} {first[part] / 2**20:.0f} then {second[part] / 2**20:.0f} MiB" for part in grown)
    return Verdict(claim, found, holds)


def lone(point: Point, delayed: Point) -> list[Verdict]:
    """One caller alone: its time in the queue without and with a delay."""
    now_ms, then_ms = point["queue_ms"]["max"], delayed["queue_ms"]["max"]
    return [
        Verdict("one caller alone, no delay: no wait in the queue", f"{now_ms:.3f} ms at most", now_ms <= _FLOOR_MS),
        Verdict(
            f"one caller alone, delay {LONE_DELAY_MS:g} ms: never a longer wait",
            f"{delayed['queue_ms']['p50']:.2f} ms usually, {then_ms:.2f} ms at most",
            then_ms <= LONE_DELAY_MS + _TIMER_MS,
        ),
    ]


def idle(percents: Mapping[str, float]) -> Verdict:
    worst = max(percents, key=lambda name: percents[name])
    claim = f"idle: every service below {_IDLE_CPU_PERCENT:g}% of a core"
    return Verdict(claim, f"at most {percents[worst]:.2f}% ({worst})", percents[worst] < _IDLE_CPU_PERCENT)


def _good(point: Point) -> float:
    return float(point["good_s"])
