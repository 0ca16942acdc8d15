import asyncio
import struct
from collections.abc import AsyncIterator, Callable

import pytest

from services.shadow.lanes import Room
from services.shadow.runner import Limits, Runner
from services.shadow.tally import Counts, Pair, Tallies
from turnout.v1 import link_pb2, shadow_pb2
from turnout.v1.tensor_pb2 import Tensor, TensorSpec

OK, INTERNAL, UNAVAILABLE, DEADLINE_EXCEEDED = 0, 13, 14, 4


def tensor(*values: float, name: str = "score") -> Tensor:
    return Tensor(name=name, datatype="FP32", shape=[len(values), 1], data=struct.pack(f"<{len(values)}f", *values))


def mirror(candidate: str = "2", value: float = 1.0, **changed: object) -> shadow_pb2.Mirror:
    fields = {
        "model": "digits",
        "served_version": "1",
        "served_digest": "sha-1",
        "candidate_version": candidate,
        "rows": 1,
        "request_id": "r-1",
        "inputs": [tensor(5.0, name="x")],
        "outputs": [tensor(value)],
    }
    return shadow_pb2.Mirror(**fields | changed)


class FakeReplica:
    """A candidate's batcher: keeps what it was sent until told to answer."""

    def __init__(self) -> None:
        self.requests: list[link_pb2.Request] = []
        self.announced: list[tuple[int, int]] = []  # rows and bytes, as said before each request was filled
        self.cancelled: list[int] = []
        self._on_reply: dict[int, Callable[[link_pb2.Reply], None]] = {}

    def request(self, rows: int, size_bytes: int, on_reply: Callable[[link_pb2.Reply], None]) -> link_pb2.Request:
        request = link_pb2.Request(id=len(self.requests) + 1)
        self.requests.append(request)
        self.announced.append((rows, size_bytes))
        self._on_reply[request.id] = on_reply
        return request

    def cancel(self, request_id: int) -> None:
        self.cancelled.append(request_id)
        self._on_reply.pop(request_id)

    def answer(self, number: int, **reply: object) -> None:
        self._on_reply.pop(number)(link_pb2.Reply(id=number, final=True, **reply))


class FakeReplicas:
    def __init__(self) -> None:
        self.replicas = {("digits", "2"): FakeReplica(), ("digits", "3"): FakeReplica()}

    def pick(self, model: str, version: str) -> FakeReplica | None:
        return self.replicas.get((model, version))

    def served(self, model: str, version: str) -> link_pb2.Served | None:
        signature = {"outputs": [TensorSpec(name="score"), TensorSpec(name="unasked")]}
        return link_pb2.Served(model=model, version=version, signature=signature)


class Mesh:
    """A runner and what it runs on."""

    def __init__(self, room: Room, running: int, deadline_s: float) -> None:
        self.replicas = FakeReplicas()
        self.candidate = self.replicas.replicas["digits", "2"]
        self.tallies = Tallies(10, 10)
        self.runner = Runner(self.replicas, self.tallies, Limits(room, running, deadline_s), now_s=lambda: 7.0)

    def counts(self, candidate: str = "2") -> Counts:
        return self.tallies.of(Pair("digits", "1", candidate), 7.0).counts


Make = Callable[..., Mesh]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    made: list[Mesh] = []

    def make(jobs: int = 100, size_bytes: int = 1 << 24, running: int = 4, deadline_s: float = 60.0) -> Mesh:
        made.append(Mesh(Room(jobs, size_bytes), running, deadline_s))
        return made[-1]

    yield make
    for mesh in made:
        await mesh.runner.close()


async def test_a_candidate_is_asked_the_same_at_the_lowest_priority(make: Make) -> None:
    mesh = make()

    mesh.runner.offer(mirror(outputs=[tensor(1.0), tensor(1.0, name="not-given-by-the-candidate")]))

    request = mesh.candidate.requests[0]
    rows, size_bytes = mesh.candidate.announced[0]
    assert rows == 1
    assert size_bytes >= request.ByteSize()
    assert (request.model, request.version, request.rows, request.shadow) == ("digits", "2", 1, True)
    assert (request.deadline_us, request.request_id, request.tries) == (60_000_000, "r-1", 0)
    assert list(request.inputs) == [tensor(5.0, name="x")]
    assert list(request.outputs) == ["score"]


async def test_an_answer_is_compared_and_counted(make: Make) -> None:
    mesh = make()
    mesh.runner.offer(mirror(value=1.0))

    mesh.candidate.answer(1, outputs=[tensor(1.5)], digest="sha-2")

    counts = mesh.counts()
    assert (counts.mirrored, counts.compared, counts.outputs["score"].max_abs) == (1, 1, 0.5)
    assert mesh.tallies.of(Pair("digits", "1", "2"), 7.0).digests == ("sha-1", "sha-2")
    assert mesh.runner.lanes.jobs == 0


async def test_a_large_answer_is_compared_in_a_thread(make: Make) -> None:
    mesh = make()
    large = tensor(*[1.0] * 100_000)
    mesh.runner.offer(mirror(rows=100_000, outputs=[large]))

    mesh.candidate.answer(1, outputs=[large])
    in_thread = mesh.counts().compared
    await asyncio.wait_for(mesh.runner.drain(), 10)

    assert (in_thread, mesh.counts().compared, mesh.counts().outputs["score"].agreeing_rows) == (0, 1, 100_000)


@pytest.mark.parametrize(
    ("reply", "errors", "dropped"),
    [
        ({"code": INTERNAL, "executed": link_pb2.EXECUTED_YES}, {"INTERNAL": 1}, {}),
        ({"code": UNAVAILABLE, "executed": link_pb2.EXECUTED_NO}, {}, {"shed": 1}),
        ({"code": UNAVAILABLE, "executed": link_pb2.EXECUTED_MAYBE}, {"UNAVAILABLE": 1}, {}),
        ({"code": DEADLINE_EXCEEDED, "executed": link_pb2.EXECUTED_NO}, {}, {"expired": 1}),
        ({"code": DEADLINE_EXCEEDED, "executed": link_pb2.EXECUTED_YES}, {"DEADLINE_EXCEEDED": 1}, {}),
        ({"code": 3}, {"INVALID_ARGUMENT": 1}, {}),
        ({"code": 999}, {"UNKNOWN": 1}, {}),
    ],
)
async def test_a_failure_is_counted_by_its_status_and_never_tried_again(
    make: Make, reply: dict[str, int], errors: dict[str, int], dropped: dict[str, int]
) -> None:
    mesh = make()
    mesh.runner.offer(mirror())

    mesh.candidate.answer(1, **reply)

    assert (dict(mesh.counts().errors), dict(mesh.counts().dropped)) == (errors, dropped)
    assert len(mesh.candidate.requests) == 1
    assert mesh.runner.lanes.jobs == 0


async def test_a_candidate_without_a_replica_is_a_drop(make: Make) -> None:
    mesh = make()

    mesh.runner.offer(mirror("9"))

    assert dict(mesh.counts("9").dropped) == {"no_replica": 1}
    assert mesh.runner.lanes.jobs == 0


async def test_no_more_run_at_once_than_allowed_and_the_rest_follow(make: Make) -> None:
    mesh = make(running=2)
    for _ in range(5):
        mesh.runner.offer(mirror())

    sent = [len(mesh.candidate.requests)]
    for number in range(1, 6):
        mesh.candidate.answer(number, outputs=[tensor(1.0)])
        sent.append(len(mesh.candidate.requests))

    assert sent == [2, 3, 4, 5, 5, 5]
    assert mesh.counts().compared == 5


async def test_a_full_queue_drops_what_comes(make: Make) -> None:
    mesh = make(jobs=3, running=1)
    for _ in range(10):
        mesh.runner.offer(mirror())

    assert (mesh.counts().mirrored, dict(mesh.counts().dropped), mesh.counts().pending()) == (10, {"queue_full": 7}, 3)


async def test_a_hung_candidate_gives_way_to_another(make: Make) -> None:
    mesh = make(jobs=5, running=2)
    for _ in range(5):
        mesh.runner.offer(mirror("2"))

    mesh.runner.offer(mirror("3"))

    assert len(mesh.replicas.replicas["digits", "3"].requests) == 1
    assert dict(mesh.counts("2").dropped) == {"queue_full": 1}


async def test_a_candidate_that_does_not_answer_is_cancelled_at_its_deadline(make: Make) -> None:
    mesh = make(deadline_s=0.02, running=1)
    mesh.runner.offer(mirror())
    mesh.runner.offer(mirror())

    await asyncio.wait_for(mesh.runner._idle.wait(), 10)

    counts = mesh.counts()
    assert counts.errors["DEADLINE_EXCEEDED"] >= 1
    assert mesh.candidate.cancelled[0] == 1
    assert counts.pending() == 0


async def test_what_waited_past_the_deadline_is_not_sent(make: Make) -> None:
    mesh = make(deadline_s=0.02, running=1)
    mesh.runner.offer(mirror())
    mesh.runner.offer(mirror())
    loop = asyncio.get_running_loop()
    while loop.time() < next(iter(mesh.runner.lanes)).waiting[0].arrived_at + 0.02:
        pass

    mesh.candidate.answer(1, outputs=[tensor(1.0)])

    assert (mesh.counts().compared, dict(mesh.counts().dropped)) == (1, {"expired": 1})


async def test_mirrors_that_compare_nothing_are_counted_apart(make: Make) -> None:
    mesh = make()

    mesh.runner.offer(shadow_pb2.Mirror())
    for version in range(2, 15):
        mesh.runner.offer(mirror(str(version)))

    assert dict(mesh.runner.uncounted) == {"bad_mirror": 1, "too_many_pairs": 3}


async def test_a_drain_drops_what_waits_and_waits_for_what_runs(make: Make) -> None:
    mesh = make(running=1)
    mesh.runner.offer(mirror())
    mesh.runner.offer(mirror())

    draining = asyncio.ensure_future(mesh.runner.drain())
    await asyncio.sleep(0)
    mesh.runner.offer(mirror())
    was_done = draining.done()
    mesh.candidate.answer(1, outputs=[tensor(1.0)])
    await asyncio.wait_for(draining, 10)

    assert not was_done
    assert (mesh.counts().compared, dict(mesh.counts().dropped)) == (1, {"draining": 2})


async def test_outputs_that_are_no_tensors_are_incomparable(make: Make) -> None:
    mesh = make()
    mesh.runner.offer(mirror())

    mesh.candidate.answer(1, outputs=[Tensor(name="score", datatype="FP32", shape=[-1, 1 << 60], data=b"x")])

    assert mesh.counts().outputs["score"].incomparable_rows == 1
