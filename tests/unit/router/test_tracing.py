from typing import Any

import pytest

from services.chassis.telemetry import Trace, parse_traceparent
from services.core.settings_spec import TraceSetting, TraceSettings
from services.core.stages import STAGES
from services.router.flight import Flight
from services.router.inference import Inference
from services.router.tracing import TraceKeeper

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SAMPLE = tuple(range(len(STAGES) + 1))


class Kept:
    def __init__(self) -> None:
        self.traces: list[Trace] = []

    def keep(self, trace: Trace) -> None:
        self.traces.append(trace)


def keeper(kept: Kept, **settings: float) -> TraceKeeper:
    return TraceKeeper(kept, **{"slow_ms": 1e9, "ratio": 0, **settings})  # type: ignore[arg-type]


def flight(**headers: str) -> Flight:
    return Flight(None, None, 0, headers, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("headers", "ratio", "sent_on"),
    [
        ({"traceparent": PARENT}, 0, 1),
        ({"traceparent": PARENT[:-1] + "0"}, 0, 0),
        ({"traceparent": "\udcff"}, 0, 0),
        ({}, 0, 0),
        ({}, 1, 1),
    ],
)
def test_a_trace_that_is_surely_kept_is_told_to_the_next_hop(
    headers: dict[str, str], ratio: float, sent_on: int
) -> None:
    sent = keeper(Kept(), ratio=ratio).begin(flight(**headers))

    assert bool(sent) == sent_on
    parsed = parse_traceparent(sent)
    if parsed is not None and headers:
        assert (parsed.trace_id, parsed.sampled) == (PARENT[3:35], True)
        assert parsed.span_id != PARENT[36:52]


@pytest.mark.parametrize(
    ("settings", "code", "traceparent", "kept_count"),
    [
        ({}, 0, "", 0),
        ({}, 0, PARENT, 1),
        ({}, 5, "", 1),
        ({"slow_ms": 0}, 0, "", 1),
    ],
)
def test_what_was_sampled_slow_or_failed_is_kept(settings: Any, code: int, traceparent: str, kept_count: int) -> None:
    kept, one = Kept(), flight()
    one.traceparent = traceparent

    keeper(kept, **settings).finished(one, code, "what was wrong" if code else "", SAMPLE if not code else ())

    assert len(kept.traces) == kept_count
    for trace in kept.traces:
        assert (trace.code, trace.message) == (code, "what was wrong" if code else "")
        assert [name for name, _ in trace.stages] == (list(STAGES) if not code else list(STAGES[:4]))


def test_what_operators_say_holds_at_once_for_all_or_one_model() -> None:
    kept = Kept()
    keeps = keeper(kept, slow_ms=0)
    asked, other = flight(), flight()
    asked.inference = Inference("m", "", "", {}, (), (), 0)
    other.inference = Inference("n", "", "", {}, (), (), 0)
    keeps.follow(TraceSettings(ratio=1, models={"m": TraceSetting(enabled=False)}))
    silent, sent = keeps.begin(asked), keeps.begin(other)
    keeps.finished(asked, 5, "failed", ())
    keeps.finished(other, 0, "", SAMPLE)
    keeps.follow(TraceSettings())

    assert (silent, bool(sent), len(kept.traces)) == ("", True, 1)
    assert keeps.begin(other) == ""  # as it was started
