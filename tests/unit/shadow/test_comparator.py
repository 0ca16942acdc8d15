import struct

import pytest

from services.shadow.comparator import compare_answer, pair_of
from services.shadow.tally import OUTPUTS_PER_PAIR, Pair
from turnout.v1 import link_pb2, shadow_pb2
from turnout.v1.tensor_pb2 import Tensor


def tensor(name: str, *values: float) -> Tensor:
    return Tensor(name=name, datatype="FP32", shape=[len(values), 1], data=struct.pack(f"<{len(values)}f", *values))


def mirror(**changed: object) -> shadow_pb2.Mirror:
    fields = {
        "model": "digits",
        "served_version": "1",
        "candidate_version": "2",
        "rows": 2,
        "request_id": "r-1",
        "outputs": [tensor("score", 1.0, 2.0)],
        "served_compute_ns": 2_000_000,
    }
    return shadow_pb2.Mirror(**fields | changed)


def test_a_mirror_names_its_pair() -> None:
    assert pair_of(mirror()) == Pair("digits", "1", "2")


@pytest.mark.parametrize(
    "changed",
    [
        {"model": ""},
        {"model": "../etc"},
        {"served_version": "v1"},
        {"candidate_version": ""},
        {"rows": 0},
        {"outputs": []},
        {"outputs": [tensor("x" * 1000, 1.0)]},
        {"outputs": [tensor(f"o{number}", 1.0) for number in range(OUTPUTS_PER_PAIR + 1)]},
    ],
)
def test_what_compares_nothing_has_no_pair(changed: dict[str, object]) -> None:
    assert pair_of(mirror(**changed)) is None


def test_outputs_are_matched_by_name_and_times_are_the_models_own() -> None:
    reply = link_pb2.Reply(
        outputs=[tensor("extra", 7.0), tensor("score", 1.0, 3.0)], stages_ns=[1, 2, 3, 4, 5_000_000, 6, 7]
    )

    answer = compare_answer(mirror(outputs=[tensor("score", 1.0, 2.0), tensor("absent", 1.0, 2.0)]), reply)

    assert (answer.request_id, answer.rows, answer.served_s, answer.candidate_s) == ("r-1", 2, 0.002, 0.005)
    found = [
        (difference.name, difference.agreeing_rows, difference.incomparable_rows) for difference in answer.differences
    ]
    assert found == [("score", 1, 0), ("absent", 0, 2)]


def test_a_reply_without_stages_has_no_time() -> None:
    assert compare_answer(mirror(), link_pb2.Reply()).candidate_s == 0.0


def test_a_long_request_id_is_cut() -> None:
    assert len(compare_answer(mirror(request_id="x" * 9999), link_pb2.Reply()).request_id) == 128
