"""Batches over links, as a worker runs them."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pytest

from services.core.errors import INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNAVAILABLE
from services.core.signature import Signature, TensorSpec
from services.runtime.backends import ModelError
from services.runtime.executor import Executor
from services.runtime.job import Job
from services.runtime.stamp import Stamp
from turnout.v1 import link_pb2 as pb
from turnout.v1.tensor_pb2 import Tensor

SIGNATURE = Signature(
    (TensorSpec("x", "FP32", (-1, 2)), TensorSpec("name", "BYTES", (-1,))),
    (TensorSpec("sum", "FP32", (-1,)), TensorSpec("greeting", "BYTES", (-1,))),
    batches=True,
)
JOB = {"id": "w-1", "model": "m", "version": "1", "digest": "d1", "framework": "onnx", "file": "/f", "socket": "/s"}


class FakeLink:
    """Keeps what it is given; each turn of the loop ends a frame, as a real link's flush does."""

    def __init__(self) -> None:
        self.peer = pb.Hello(instance="b")
        self.frames: list[pb.Frame] = []
        self.released: list[int] = []
        self._open = False

    def frame_for(self, _size_bytes: int) -> pb.Frame:
        if not self._open:
            self._open = True
            self.frames.append(pb.Frame())
            asyncio.get_running_loop().call_soon(self._flush)
        return self.frames[-1]

    def release(self, generations: Iterable[int]) -> None:
        self.released += generations

    def _flush(self) -> None:
        self._open = False

    @property
    def replies(self) -> list[pb.Reply]:
        return [reply for frame in self.frames for reply in frame.replies]


class Greeter:
    """A backend: sums and greets."""

    def __init__(self) -> None:
        self.ran: list[int] = []
        self.error: Exception | None = None

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.ran.append(len(inputs["x"]))
        if self.error is not None:
            raise self.error
        if inputs["x"][0, 0] == 13:
            raise ArithmeticError("unlucky, see /var/lib/models/m.bin")
        greetings = [b"hi " + name for name in inputs["name"]]
        return {"sum": inputs["x"].sum(axis=1), "greeting": np.array(greetings, dtype=object)}


def request(identity: int, *rows: tuple[float, float], **fields: object) -> pb.Request:
    data = np.array(rows, np.float32)
    names = b"".join(b"\3\0\0\0bo\0" for _ in rows)
    inputs = [
        Tensor(name="x", datatype="FP32", shape=data.shape, data=data.tobytes()),
        Tensor(name="name", datatype="BYTES", shape=[len(rows)], data=names),
    ]
    values = {"id": identity, "model": "m", "version": "1", "rows": len(rows), "inputs": inputs} | fields
    return pb.Request(**values)


class Bench:
    """An executor with one link."""

    def __init__(self) -> None:
        self.backend = Greeter()
        self.stamp = Stamp(Stamp.create())
        self.executor = Executor(Job.model_validate(JOB), self.backend, SIGNATURE, self.stamp)  # type: ignore[arg-type]
        self.link = FakeLink()
        self.executor.opened(self.link)  # type: ignore[arg-type]

    def receive(self, *requests: pb.Request, cancels: tuple[int, ...] = ()) -> None:
        self.executor.received(self.link, pb.Frame(requests=requests, cancels=cancels))  # type: ignore[arg-type]

    async def turns(self) -> list[pb.Reply]:
        for _ in range(50):
            await asyncio.sleep(0)
        return self.link.replies


async def test_a_batch_is_answered_in_the_turn_it_comes() -> None:
    bench = Bench()
    bench.receive(request(7, (1, 2), (3, 4)))
    (reply,) = bench.link.replies
    total, greeting = reply.outputs

    assert (reply.id, reply.code, reply.executed, reply.digest, reply.final) == (7, 0, pb.EXECUTED_YES, "d1", True)
    assert (total.name, total.datatype, list(total.shape)) == ("sum", "FP32", [2])
    assert np.frombuffer(total.data, np.float32).tolist() == [3, 7]
    assert greeting.data == b"\6\0\0\0hi bo\0" * 2
    assert len(reply.stages_ns) == 3
    assert bench.stamp.batches == 1
    assert bench.stamp.busy_ns(1 << 62) == 0


async def test_outputs_that_no_link_takes_are_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.runtime.executor.MAX_OUTPUT_BYTES", 400)
    bench = Bench()
    bench.receive(request(1, *[(1, 2)] * 4), request(2, (1, 2)))
    large, small = await bench.turns()

    assert (large.id, large.code, large.executed) == (1, RESOURCE_EXHAUSTED, pb.EXECUTED_YES)
    assert "outputs of 4 rows" in large.message
    assert not large.outputs
    assert (small.id, small.code) == (2, 0)


async def test_only_wanted_outputs_travel() -> None:
    bench = Bench()
    bench.receive(request(1, (1, 2), outputs=["greeting"]))

    assert [output.name for output in bench.link.replies[0].outputs] == ["greeting"]


async def test_the_first_reply_leaves_before_the_next_batch_runs() -> None:
    bench = Bench()
    bench.receive(request(1, (1, 1)), request(2, (2, 2)), request(3, (3, 3)))
    at_once = list(bench.backend.ran)
    replies = await bench.turns()

    assert at_once == [1]
    assert [reply.id for reply in replies] == [1, 2, 3]
    assert len(bench.link.frames) == 3


async def test_a_cancelled_batch_that_still_waits_is_not_run() -> None:
    bench = Bench()
    bench.receive(request(1, (1, 1)), request(2, (2, 2)), request(3, (3, 3)))
    bench.receive(cancels=(2, 99))
    replies = await bench.turns()

    assert [reply.id for reply in replies] == [1, 3]
    assert len(bench.backend.ran) == 2


async def test_batches_of_a_lost_link_are_not_run() -> None:
    bench = Bench()
    bench.receive(request(1, (1, 1)), request(2, (2, 2)))
    bench.executor.closed(bench.link, "gone")  # type: ignore[arg-type]
    await bench.turns()

    assert len(bench.backend.ran) == 1
    assert bench.executor.all_closed.is_set()


async def test_waiting_batches_are_bounded() -> None:
    bench = Bench()
    bench.receive(*[request(number, (1, 1)) for number in range(300)])
    for _ in range(700):
        await asyncio.sleep(0)
    refused = [reply for reply in bench.link.replies if reply.code]

    assert len(bench.backend.ran) == 256
    assert {(reply.code, reply.executed) for reply in refused} == {(14, pb.EXECUTED_NO)}
    assert len(bench.link.replies) == 300


async def test_a_raise_is_that_batchs_answer() -> None:
    bench = Bench()
    bench.receive(request(1, (13, 0)), request(2, (1, 1)))
    raised, fine = await bench.turns()

    assert (raised.code, raised.executed) == (13, pb.EXECUTED_YES)
    assert raised.message == "ArithmeticError: unlucky, see (path)"
    assert fine.code == 0


@pytest.mark.parametrize(
    ("error", "executed"),
    [
        (ModelError(INVALID_ARGUMENT, "row 0 is no text"), pb.EXECUTED_YES),
        (ModelError(UNAVAILABLE, "nobody is there", executed=False), pb.EXECUTED_NO),
        (ModelError(UNAVAILABLE, "it went away", executed=None), pb.EXECUTED_MAYBE),
    ],
)
async def test_a_backend_may_raise_a_status_of_its_own(error: ModelError, executed: pb.Executed) -> None:
    bench = Bench()
    bench.backend.error = error
    bench.receive(request(1, (1, 1)))
    (reply,) = bench.link.replies

    assert (reply.code, reply.message, reply.executed) == (error.code, str(error), executed)


async def test_a_backend_that_waits_is_told_how_long_its_answer_is_waited_for() -> None:
    told: list[float | None] = []

    class Patient(Greeter):
        def run_within(
            self, inputs: Mapping[str, np.ndarray], _outputs: list[str], left_s: float | None
        ) -> dict[str, np.ndarray]:
            told.append(left_s)
            return self.run(inputs)

    executor = Executor(Job.model_validate(JOB), Patient(), SIGNATURE, Stamp(Stamp.create()))  # type: ignore[arg-type]
    link = FakeLink()
    executor.opened(link)  # type: ignore[arg-type]
    executor.received(link, pb.Frame(requests=[request(1, (1, 1)), request(2, (1, 1), deadline_us=60_000_000)]))  # type: ignore[arg-type]
    for _ in range(5):
        await asyncio.sleep(0)
    first, second = told

    assert [reply.code for reply in link.replies] == [0, 0]
    assert first is None
    assert second is not None
    assert 0 < second < 60  # what it waited for the batch before is over


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"digest": "d2"}, 9, "digest d2 was asked for, this is d1"),
        ({"version": "2"}, 5, "m/2 was asked for, this worker serves m/1"),
        ({"inputs": [Tensor(name="z")]}, 3, "no input 'z'; inputs are x, name"),
        ({"inputs": [Tensor(name="x", datatype="FP64")]}, 3, "input 'x' is FP32, not FP64"),
        ({"inputs": [Tensor(name="x", datatype="FP32", shape=[1, 2], data=b"1234")]}, 3, "input 'x': cannot reshape"),
        ({"inputs": []}, 3, "input x, name is missing"),
    ],
)
async def test_a_batch_that_does_not_fit_is_not_run(fields: dict, code: int, message: str) -> None:
    bench = Bench()
    bench.receive(request(1, (1, 1), **fields))
    (reply,) = bench.link.replies

    assert (reply.code, reply.executed) == (code, pb.EXECUTED_NO)
    assert reply.message.startswith(message)
    assert bench.backend.ran == []


class Accumulator:
    """A backend with state: sums what a sequence sent."""

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        total = inputs["before"] + inputs["x"]
        if total.max() >= 100:
            raise OverflowError("too much")
        return {"sum": total, "after": total}


SUMS = Signature(
    (TensorSpec("x", "FP32", (-1, 1)), TensorSpec("before", "FP32", (-1, 1))),
    (TensorSpec("sum", "FP32", (-1, 1)), TensorSpec("after", "FP32", (-1, 1))),
    batches=True,
)


async def test_state_stays_with_the_worker_until_its_sequence_its_peer_or_its_batch_is_over() -> None:
    stateful = JOB | {"states": ({"input_name": "before", "output_name": "after"},)}
    executor = Executor(
        Job.model_validate(stateful),
        Accumulator(),  # type: ignore[arg-type]
        SUMS,
        Stamp(Stamp.create()),
    )
    link = FakeLink()
    executor.opened(link)  # type: ignore[arg-type]

    def run(
        identity: int, *rows: tuple[int, float], over: tuple[int, ...] = (), digest: str = "d1"
    ) -> tuple[int, object]:
        data = np.array([[value] for _, value in rows], np.float32)
        batch = pb.Request(
            id=identity, model="m", version="1", rows=len(rows), sequences_over=over, digest=digest,
            sequence_rows=[entry for entry, _ in rows],
            inputs=[Tensor(name="x", datatype="FP32", shape=data.shape, data=data.tobytes())],
        )  # fmt: skip
        executor.received(link, pb.Frame(requests=[batch]))  # type: ignore[arg-type]
        reply = link.replies[-1]
        names = [output.name for output in reply.outputs]
        assert names == ([] if reply.code else ["sum"])
        return reply.code, np.frombuffer(reply.outputs[0].data, np.float32).tolist() if names else reply.message

    assert run(1, (1 << 2 | 2, 5), (0, 0), (2 << 2 | 2, 7)) == (0, [5, 0, 7])
    assert run(2, (2 << 2, 1), (1 << 2, 1)) == (0, [8, 6])
    assert run(9, (9 << 2 | 2, 5)) == (0, [5])
    assert run(10, (9 << 2 | 1, 100))[0] == 13
    assert run(11, (9 << 2, 1))[0] == 3
    assert run(3, (1 << 2, 100)) == (13, "OverflowError: too much")
    assert run(4, (1 << 2 | 1, 1), (2 << 2, 1)) == (0, [7, 9])
    assert run(5, (1 << 2, 1)) == (3, "sequence 1 has no state here: it did not start here, or is over")
    assert run(6, (2 << 2, 1), over=(2,)) == (3, "sequence 2 has no state here: it did not start here, or is over")
    assert run(7, (3 << 2 | 2, 1)) == (0, [1])
    assert run(12, (4 << 2 | 2, 1)) == (0, [1])
    assert run(13, (3 << 2, 1), over=(4,), digest="d2")[0] == 9
    assert run(14, (4 << 2, 1))[0] == 3

    executor.closed(link, "gone")  # type: ignore[arg-type]
    executor.opened(link)  # type: ignore[arg-type]
    assert run(8, (3 << 2, 1))[0] == 3


class Chooser:
    """A backend that can save work: keeps what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def run_only(self, inputs: Mapping[str, np.ndarray], outputs: Sequence[str]) -> dict[str, np.ndarray]:
        self.asked.append(list(outputs))
        return dict.fromkeys(outputs, inputs["x"])

    run = None


@pytest.mark.parametrize(
    ("states", "wanted", "asked"),
    [
        ((), [], ["sum"]),
        ((), ["leaf"], ["leaf"]),
        ((), ["leaf", "sum"], ["leaf", "sum"]),
        (({"input_name": "before", "output_name": "after"},), ["leaf"], ["leaf", "after"]),
    ],
)
async def test_a_backend_that_can_save_work_is_told_what_is_wanted(
    states: tuple[object, ...], wanted: list[str], asked: list[str]
) -> None:
    outputs = (*SUMS.outputs, TensorSpec("leaf", "FP32", (-1, 1)))
    if not states:
        outputs = tuple(spec for spec in outputs if spec.name != "after")
    inputs = SUMS.inputs if states else SUMS.inputs[:1]
    signature = Signature(inputs, outputs, batches=True, on_request=("leaf",))
    chooser = Chooser()
    job = Job.model_validate(JOB | {"states": states})
    executor = Executor(job, chooser, signature, Stamp(Stamp.create()))  # type: ignore[arg-type]
    link = FakeLink()
    executor.opened(link)  # type: ignore[arg-type]
    one = Tensor(name="x", datatype="FP32", shape=[1, 1], data=bytes(4))
    rows = [1 << 2 | 2] if states else []
    batch = pb.Request(id=1, model="m", version="1", rows=1, inputs=[one], outputs=wanted, sequence_rows=rows)
    executor.received(link, pb.Frame(requests=[batch]))  # type: ignore[arg-type]

    assert chooser.asked == [asked]
    assert [output.name for output in link.replies[0].outputs] == [name for name in asked if name != "after"]
