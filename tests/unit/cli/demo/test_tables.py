import numpy as np
import pytest

from services.cli.client import Answer, Ask
from services.cli.demo.held_out import HeldOut
from services.cli.demo.rounds import Played, Turn, turns
from services.cli.demo.tables import as_json, by_version, failures, quantile, samples, stages


def played(
    number: int, *, version: str = "1", label: int = 3, truth: int = 3, stages_ms: dict[str, float] | None = None
) -> Played:
    arm = "stable" if version == "1" else "canary"
    answer = Answer(version, arm, {"label": np.array([label])}, stages_ms or {}, 1.0)
    return Played(Turn(f"image {number}", Ask("digits", {}, {}), truth), answer)


def failed() -> Played:
    return Played(Turn("image 9", Ask("digits", {}, {}), 1), None, "UNAVAILABLE: no replica")


def test_versions_tell_requests_share_and_accuracy() -> None:
    rows = by_version([played(0), played(1, label=4), played(2), played(3, version="2"), failed()])

    assert [(row.version, row.arm, row.requests, row.share, row.accuracy) for row in rows] == [
        ("1", "stable", 3, 0.75, pytest.approx(2 / 3)),
        ("2", "canary", 1, 0.25, 1.0),
    ]


def test_failures_are_counted_by_what_was_answered() -> None:
    assert failures([played(0), failed(), failed()]) == {"digits: UNAVAILABLE: no replica": 2}


def test_stages_come_in_order_with_the_part_that_they_explain() -> None:
    rows = stages([played(0, stages_ms={"link": 1.0, "compute": 2.0, "parse": 1.0, "total": 5.0})], "digits")

    assert [(row.stage, row.p50_ms, row.share) for row in rows] == [
        ("parse", 1.0, 0.2),
        ("link", 1.0, 0.2),
        ("compute", 2.0, 0.4),
        ("explained", 4.0, 0.8),
        ("total", 5.0, 1.0),
    ]


def test_no_timings_give_no_stages() -> None:
    assert stages([played(0), failed()], "digits") == []


def test_samples_show_each_version_and_the_wrong_ones() -> None:
    some = [played(number) for number in range(50)] + [played(50, version="2"), played(51, label=4)]

    rows = samples(some, "digits")

    assert {row[1] for row in rows} == {"1", "2"}
    assert [row[0] for row in rows if row[4] == "WRONG"] == ["image 51"]


def test_a_quantile_is_one_of_the_values() -> None:
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([1.0], 0.99) == 1.0


def test_scripts_get_the_same() -> None:
    report = as_json([played(0, stages_ms={"parse": 1.0, "total": 2.0}), failed()])

    assert report["requests"] == 2
    assert report["versions"][0]["accuracy"] == 1.0
    assert report["stages"]["digits"][0]["stage"] == "parse"


def test_every_held_out_row_is_played_once() -> None:
    rows = HeldOut(
        np.zeros((3, 64), np.float32),
        np.zeros(3, np.int64),
        np.array([1000, 1001]),
        np.zeros(2, np.int64),
        np.zeros((8, 32), np.float32),
        np.zeros(8, np.float32),
    )

    todo = turns(rows)

    assert [turn.ask.model for turn in todo] == ["digits"] * 3 + ["tumor"] * 2 + ["ranker"] * 2
    assert [turn.ask.parameters for turn in todo[2:4]] == [{"user_id": "user-2"}, {"patient_id": 1000}]
