"""A run's figures: who counts, from when, and what does not count at all."""

from typing import Any

import numpy as np
import pytest

from loadtest.batching.calls import Ledger
from loadtest.batching.job import Job
from loadtest.batching.outcome import is_at_door, queue_ms, summary
from loadtest.batching.payloads import Numbered
from loadtest.batching.verdicts import kept
from services.core.errors import OK, UNAVAILABLE

MS = 1_000_000
JOB = Job(address="", model="m", rate=10, warm_s=0.1, window_s=1.0, deadline_ms=50)


def outcome(*calls: tuple[float, float, float, int], words: bytes = b"") -> dict[str, Any]:
    """Of calls that were (due, sent, done) at these ms and ended with this code."""
    ledger = Ledger(len(calls), keeps_words=True)
    for number, (_, sent_ms, done_ms, code) in enumerate(calls):
        ledger.sent_ns[number] = round(sent_ms * MS)
        ledger.ended(number, [(b"grpc-status", b"%d" % code), (b"grpc-message", words)], round(done_ms * MS))
    return summary(JOB, [due_ms / 1e3 for due_ms, *_ in calls], 0, ledger, 0)


def test_only_requests_that_were_due_in_the_window_count() -> None:
    found = outcome((50, 50, 60, OK), (100, 100, 110, OK), (200, 200, 210, OK))

    assert found["counts"] == {"ok": 2}
    assert found["ok_s"] == 2


def test_latency_counts_from_when_a_request_was_due_and_the_generators_lag_is_told() -> None:
    found = outcome((200, 230, 240, OK))

    assert found["ms"]["p50"] == pytest.approx(40)
    assert found["lag_ms"]["p99"] == pytest.approx(30)
    assert not kept(found)


def test_an_answer_after_the_deadline_is_no_good_one() -> None:
    found = outcome((200, 200, 249, OK), (300, 300, 351, OK))

    assert (found["ok_s"], found["good_s"], found["good_share"]) == (2, 1, 0.5)


def test_refusals_count_from_when_they_were_sent_and_are_told_apart() -> None:
    door = outcome((200, 210, 212, UNAVAILABLE), words=b"m%20has%2050%20ms%20to%20wait")
    given_up = outcome((200, 210, 240, UNAVAILABLE), words=b"cannot answer in the 3 ms that are left")

    assert door["refused_ms"]["max"] == pytest.approx(2)
    assert (door["door_share"], door["prompt_share"]) == (1, 1)
    assert (given_up["door_share"], given_up["prompt_share"]) == (0, 0)


def test_a_full_queue_refuses_at_the_door() -> None:
    assert is_at_door(b"queue of m/1 is full: 9 of 9 rows wait")


def test_the_queue_stage_is_read_from_the_timings() -> None:
    assert queue_ms(b"parse;dur=0.012, queue;dur=1.250, total;dur=8") == 1.25


def test_an_answer_that_is_not_its_own_requests_is_found() -> None:
    payloads = Numbered("m", 1, (4, 8))
    right = [payloads.message(number)[-8:] for number in range(4)]

    assert payloads.wrong([*right[:3], b""]) == 0
    assert payloads.wrong([right[1], right[0], *right[2:]]) == 2


def test_requests_take_the_widths_in_turn() -> None:
    payloads = Numbered("m", 2, (4, 8))

    sizes = [len(payloads.message(number)) for number in range(4)]
    assert sizes[0] == sizes[2] < sizes[1] == sizes[3]
    assert sizes[1] - sizes[0] == np.dtype(np.float32).itemsize * 2 * 4
