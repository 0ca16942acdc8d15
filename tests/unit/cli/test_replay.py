"""What is sent again, when, and what is said of what came back."""

from typing import Any

import numpy as np
import pytest

from services.cli.player import Pace, sequence_of, to_request
from services.cli.replayed import OK, Outcome, Tally, given_of
from turnout.v1.recorded_pb2 import Recorded
from turnout.v1.tensor_pb2 import Tensor


def tensor(name: str, *values: float) -> Tensor:
    data = np.array(values, np.float32)
    return Tensor(name=name, datatype="FP32", shape=[len(values)], data=data.tobytes())


def record(**fields: Any) -> Recorded:
    return Recorded(**{"model": "m", "version": "3", "rows": 2, "inputs": [tensor("x", 1, 2)], **fields})


def test_a_request_is_sent_as_it_came() -> None:
    given = record(asked_version="champion", request_id="a", wanted=["y"], filled=[tensor("f", 1)])
    given.parameters["user_id"].int_value = 7
    given.parameters["big"].uint_value = 1 << 63
    request = to_request(given)

    assert (request.model_name, request.model_version, request.id) == ("m", "champion", "a")
    assert [(each.name, list(each.shape)) for each in request.inputs] == [("x", [2])]
    assert list(request.raw_input_contents) == [given.inputs[0].data]
    assert [each.name for each in request.outputs] == ["y"]
    assert request.parameters["user_id"].int64_param == 7
    assert request.parameters["big"].uint64_param == 1 << 63


def test_another_model_or_version_may_be_asked() -> None:
    request = to_request(record(asked_version="1"), "other", "2")

    assert (request.model_name, request.model_version) == ("other", "2")


@pytest.mark.parametrize(
    ("pace", "due_s"), [(Pace(), 0), (Pace(rate=50), 0.2), (Pace(speed=1), 3), (Pace(speed=2), 1.5)]
)
def test_requests_leave_at_a_rate_or_at_their_own_pace(pace: Pace, due_s: float) -> None:
    assert pace.due_s(10, record(at_ns=5_000_000_000), 2_000_000_000) == due_s


def test_requests_of_one_sequence_are_known() -> None:
    one, other, text, alone = record(), record(), record(), record()
    one.parameters["sequence_id"].int_value = other.parameters["sequence_id"].int_value = 5
    text.parameters["sequence_id"].string_value = "5"

    assert sequence_of(one) == sequence_of(other) != sequence_of(text)
    assert sequence_of(alone) == ""
    assert not alone.parameters


def test_statuses_and_times_are_told_beside_those_of_before() -> None:
    tally = Tally(is_comparing=False)
    tally.add(record(total_ns=2_000_000), Outcome(OK, 3.0))
    tally.add(record(code=14), Outcome("UNAVAILABLE", 1.0))
    tally.add(record(code=99), Outcome(OK, 3.0))
    tally.add(record(), Outcome("INTERNAL", 1.0))
    told = tally.as_json()

    assert told["statuses"] == {OK: 2, "UNAVAILABLE": 1, "INTERNAL": 1}
    assert told["recorded_statuses"] == {OK: 2, "UNAVAILABLE": 1, "UNKNOWN": 1}
    assert (tally.newly_failed, told["outputs"]) == (1, {})
    assert (told["latency_ms"]["replayed"]["p50"], told["latency_ms"]["recorded"]["p99"]) == (3.0, 2.0)


@pytest.mark.parametrize(
    ("answered", "agreeing", "incomparable"),
    [([1, 2], 2, 0), ([1, 2.00001], 2, 0), ([1, 3], 1, 0), ([1, float("nan")], 1, 1), ([1, 2, 3], 0, 2), (None, 0, 2)],
)
def test_answers_are_compared_row_by_row(answered: list[float] | None, agreeing: int, incomparable: int) -> None:
    tally = Tally(is_comparing=True)
    outputs = [] if answered is None else [given_of(tensor("y", *answered))]
    tally.add(record(outputs=[tensor("y", 1, 2)]), Outcome(OK, 1.0, outputs))

    assert (tally.outputs["y"].agreeing, tally.outputs["y"].incomparable) == (agreeing, incomparable)
    assert tally.differing_rows == 2 - agreeing
