import pytest

from services.shadow.lanes import Job, Lanes, Room
from services.shadow.tally import Pair, Tally
from turnout.v1 import shadow_pb2 as pb
from turnout.v1.tensor_pb2 import Tensor

TALLY = Tally(Pair("digits", "1", "2"), 0.0, 1)


def mirror(candidate: str = "2", size_bytes: int = 0, request_id: str = "") -> pb.Mirror:
    inputs = [Tensor(name="x", data=bytes(size_bytes))]
    return pb.Mirror(
        model="digits", served_version="1", candidate_version=candidate, request_id=request_id, inputs=inputs
    )


@pytest.fixture
def evicted() -> list[Job]:
    return []


def lanes_of(evicted: list[Job], jobs: int = 100, size_bytes: int = 1 << 20) -> Lanes:
    return Lanes(Room(jobs, size_bytes), evicted.append)


def test_a_held_mirror_is_a_copy_that_outlives_its_frame(evicted: list[Job]) -> None:
    lanes = lanes_of(evicted)
    given = mirror(request_id="a")

    lane = lanes.add(given, TALLY, 1.0)
    given.request_id = "changed"

    assert [job.mirror.request_id for job in lane.waiting] == ["a"]
    assert lanes.jobs == 1


def test_jobs_and_bytes_are_bounded(evicted: list[Job]) -> None:
    few = lanes_of(evicted, jobs=2)
    small = lanes_of(evicted, size_bytes=100_000)

    assert [few.add(mirror(), TALLY, 0.0) is not None for _ in range(4)] == [True, True, False, False]
    assert [small.add(mirror(size_bytes=20_000), TALLY, 0.0) is not None for _ in range(4)] == [
        True,
        True,
        False,
        False,
    ]
    assert small.size_bytes <= 100_000
    assert evicted == []


def test_a_mirror_larger_than_all_room_is_refused_and_evicts_nothing(evicted: list[Job]) -> None:
    lanes = lanes_of(evicted, size_bytes=100_000)
    lanes.add(mirror("2"), TALLY, 0.0)

    assert lanes.add(mirror("3", size_bytes=200_000), TALLY, 0.0) is None
    assert evicted == []


def test_the_candidate_that_holds_the_most_gives_way(evicted: list[Job]) -> None:
    lanes = lanes_of(evicted, jobs=3)
    for request_id in ("a", "b", "c"):
        lanes.add(mirror("2", request_id=request_id), TALLY, 0.0)

    assert lanes.add(mirror("3", request_id="d"), TALLY, 0.0) is not None
    assert [job.mirror.request_id for job in evicted] == ["c"]
    assert lanes.jobs == 3


def test_running_jobs_are_never_evicted(evicted: list[Job]) -> None:
    lanes = lanes_of(evicted, jobs=2)
    for _ in range(2):
        lanes.add(mirror("2"), TALLY, 0.0).waiting.popleft()

    assert lanes.add(mirror("3"), TALLY, 0.0) is None
    assert evicted == []


def test_nothing_is_left_when_every_job_was_removed(evicted: list[Job]) -> None:
    lanes = lanes_of(evicted)
    for candidate in ("2", "3", "2"):
        lane = lanes.add(mirror(candidate, size_bytes=50), TALLY, 0.0)
        lanes.remove(lane.waiting.pop())

    assert (lanes.jobs, lanes.size_bytes, list(lanes)) == (0, 0, [])
