"""One run in numbers: what was answered, how fast, what was refused, and whether the generator kept its schedule."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

import numpy as np
from numpy.typing import NDArray

from loadtest.batching.calls import NOTHING, Ledger
from loadtest.batching.job import Job
from services.core.errors import DEADLINE_EXCEEDED, OK, UNAVAILABLE

PROMPT_MS = 5.0  # a refusal that takes longer is no help to who must go elsewhere
_NAMES = {OK: "ok", DEADLINE_EXCEEDED: "late", UNAVAILABLE: "refused", NOTHING: "unanswered"}
_AFTER_WAITING = (b"ms that are left", b"timeout")  # in the words of those who were let in first
_AT_THE_DOOR = (b"to wait", b"rows ahead")


def summary(
    job: Job, due_s: Sequence[float] | NDArray[np.float64], started_ns: int, ledger: Ledger, wrong: int
) -> dict[str, Any]:
    """Of the requests that were due in the window. Latencies in ms, from when a request was due; of refusals from
    when it was sent, as no server can answer earlier."""
    due = np.asarray(due_s)
    count = len(due)
    chosen = due >= job.warm_s
    due_ms = due[chosen] * 1e3
    sent_ms = (np.frombuffer(ledger.sent_ns, np.int64)[:count][chosen] - started_ns) / 1e6
    done_ms = (np.frombuffer(ledger.done_ns, np.int64)[:count][chosen] - started_ns) / 1e6
    codes = np.frombuffer(bytes(ledger.codes), np.uint8)[:count][chosen]
    is_ok, is_refused = codes == OK, codes == UNAVAILABLE
    latency = done_ms - due_ms
    counts = Counter(_NAMES.get(int(code), f"code {code}") for code in codes)
    good = int((is_ok & (latency <= job.deadline_ms)).sum())
    words = {number: unquote_to_bytes(ledger.words.get(number, b"")) for number in np.flatnonzero(chosen)[is_refused]}
    return {
        "offered_s": int(chosen.sum()) / job.window_s,
        "ok_s": counts["ok"] / job.window_s,
        "good_s": good / job.window_s,
        "good_share": good / max(1, len(codes)),
        "counts": dict(counts),
        "wrong": wrong,
        "failed": sum(number for name, number in counts.items() if name not in _NAMES.values()),
        "ms": spread(latency[is_ok]),
        "refused_ms": spread((done_ms - sent_ms)[is_refused]),
        **_refusals((done_ms - sent_ms)[is_refused], words),
        "lag_ms": spread(sent_ms[sent_ms > 0] - due_ms[sent_ms > 0]),
        "queue_ms": spread(np.array([queue_ms(text) for number, text in ledger.timings.items() if chosen[number]])),
    }


def spread(values: NDArray[np.float64]) -> dict[str, float]:
    """Percentiles; empty for no values."""
    if not len(values):
        return {}
    p50, p95, p99 = np.percentile(values, [50, 95, 99])
    figures = {"mean": values.mean(), "p50": p50, "p95": p95, "p99": p99, "max": values.max()}
    return {name: round(float(value), 3) for name, value in figures.items()}


def _refusals(latency_ms: NDArray[np.float64], words: Mapping[int, bytes]) -> dict[str, Any]:
    """Refusals apart: at the door, and of those who were let in and then given up because they could not be in time."""
    if not len(latency_ms):
        return {}
    at_door = np.array([is_at_door(text) for text in words.values()])
    return {
        "door_ms": spread(latency_ms[at_door]),
        "given_up_ms": spread(latency_ms[~at_door]),
        "prompt_share": float((latency_ms <= PROMPT_MS).mean()),
        "door_share": float(at_door.mean()),
        "said": next((text.decode(errors="replace") for text in words.values()), ""),
    }


def is_at_door(text: bytes) -> bool:
    """Whether a refusal's words are those of one that never waited."""
    return any(part in text for part in _AT_THE_DOOR) or not any(part in text for part in _AFTER_WAITING)


def queue_ms(timing: bytes) -> float:
    """The stage `queue` in a turnout-timing value, ms."""
    for part in timing.split(b","):
        name, _, duration = part.strip().partition(b";dur=")
        if name == b"queue":
            return float(duration)
    return float("nan")
