"""Generators of decoupled models, as a worker runs them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from services.core.errors import CANCELLED, INTERNAL, INVALID_ARGUMENT, OK, RESOURCE_EXHAUSTED, UNAVAILABLE
from services.core.signature import Signature, TensorSpec
from services.runtime.backends import Arrays, BadArtifactError, ModelError, Options
from services.runtime.backends.python import Model
from services.runtime.executor import Executor
from services.runtime.job import Job
from services.runtime.stamp import Stamp
from services.runtime.worker import options_of
from tests.unit.runtime.test_executor import JOB, FakeLink
from turnout.v1 import link_pb2 as pb
from turnout.v1.tensor_pb2 import Tensor

N = TensorSpec("n", "INT32", (1,))
SIGNATURE = Signature((N,), (TensorSpec("i", "INT32", (1,)), TensorSpec("word", "BYTES", (1,))), False, decoupled=True)
PLENTY = 1 << 40
Answers = Iterator[Any] | AsyncIterator[Any]


class Bench:
    """An executor of a model that streams, with one link."""

    def __init__(self, predict: Callable[[int], Answers], **job: object) -> None:
        self.predict = predict
        self.stamp = Stamp(Stamp.create())
        self.executor = Executor(Job.model_validate(JOB | job), self, SIGNATURE, self.stamp)  # type: ignore[arg-type]
        self.link = FakeLink()
        self.executor.opened(self.link)  # type: ignore[arg-type]

    def run(self, inputs: Arrays) -> dict[str, Any]:
        raise AssertionError("a decoupled model is streamed")

    def stream(self, inputs: Arrays) -> Answers:
        return self.predict(int(inputs["n"][0]))

    def ask(self, identity: int, n: int, credit: int = PLENTY, **fields: Any) -> None:
        tensor = Tensor(name="n", datatype="INT32", shape=[1], data=np.int32(n).tobytes())
        request = pb.Request(id=identity, model="m", version="1", rows=1, inputs=[tensor], credit=credit, **fields)
        self.receive(requests=[request])

    def receive(self, **fields: Any) -> None:
        self.executor.received(self.link, pb.Frame(**fields))  # type: ignore[arg-type]

    async def turns(self, count: int = 400) -> list[pb.Reply]:
        for _ in range(count):
            await asyncio.sleep(0)
        return self.link.replies

    async def end(self, identity: int) -> pb.Reply:
        """The final reply to a request."""
        async with asyncio.timeout(20):
            while True:
                for reply in self.link.replies:
                    if reply.final and reply.id == identity:
                        return reply
                await asyncio.sleep(0.001)

    def numbers(self, identity: int) -> list[int]:
        replies = [reply for reply in self.link.replies if reply.id == identity and not reply.final]
        assert [reply.seq for reply in replies] == list(range(len(replies)))
        return [int(np.frombuffer(reply.outputs[0].data, np.int32)[0]) for reply in replies]


class Counter:
    """Counts up; keeps in mind how far it came and whether it was closed."""

    def __init__(self, kind: str = "def") -> None:
        self.later = kind == "async def"
        self.all_closed = 11 if self.later else 1
        self.given = 0
        self.closed = 0

    def __call__(self, count: int) -> Answers:
        return self._later(count) if self.later else self._now(count)

    def _now(self, count: int) -> Iterator[Mapping[str, Any]]:
        try:
            for number in range(count):
                self.given += 1
                yield {"i": np.array([number], np.int32)}
                if number == 13:
                    raise ArithmeticError("unlucky, see /var/lib/models/m.bin")
        finally:
            self.closed += 1

    async def _later(self, count: int) -> AsyncIterator[Mapping[str, Any]]:
        try:
            for answer in self._now(count):
                await asyncio.sleep(0)
                yield answer
        finally:
            self.closed += 10


KINDS = pytest.mark.parametrize("kind", ["def", "async def"])


@KINDS
async def test_each_answer_is_a_reply_and_the_end_is_one_more(kind: str) -> None:
    bench = Bench(Counter(kind))
    bench.ask(7, 3)
    end = await bench.end(7)

    assert bench.numbers(7) == [0, 1, 2]
    assert (end.code, end.seq, end.digest, list(end.outputs)) == (OK, 3, "d1", [])
    assert all(reply.executed == pb.EXECUTED_YES and reply.digest == "d1" for reply in bench.link.replies)


@KINDS
async def test_no_answers_are_an_end_only(kind: str) -> None:
    bench = Bench(Counter(kind))
    bench.ask(7, 0)

    assert ((await bench.end(7)).code, bench.link.replies[0].seq, len(bench.link.replies)) == (OK, 0, 1)


@KINDS
async def test_what_is_raised_after_answers_comes_after_them(kind: str) -> None:
    bench = Bench(Counter(kind))
    bench.ask(7, 100)
    end = await bench.end(7)

    assert bench.numbers(7) == list(range(14))
    assert (end.code, end.seq, end.message) == (INTERNAL, 14, "ArithmeticError: unlucky, see (path)")


@KINDS
async def test_a_generator_rests_while_nobody_has_room_for_its_answers(kind: str) -> None:
    counter = Counter(kind)
    bench = Bench(counter)
    bench.ask(7, 10, credit=2 * 4096)
    await bench.turns()
    assert bench.numbers(7) == [0, 1]

    bench.ask(8, 2)
    await bench.end(8)  # others go on
    bench.receive(credits=[pb.Credit(id=7, bytes=1), pb.Credit(id=99, bytes=1)])  # one more may overdraw it
    await bench.turns()
    assert bench.numbers(7) == [0, 1, 2]

    bench.receive(credits=[pb.Credit(id=7, bytes=4095)])
    await bench.turns()
    assert bench.numbers(7) == [0, 1, 2], "what was overdrawn is to be paid first"
    bench.receive(credits=[pb.Credit(id=7, bytes=PLENTY)])
    assert (await bench.end(7)).code == OK
    assert counter.given == 12


@KINDS
async def test_a_cancelled_generator_is_closed_where_it_stands_and_says_so(kind: str) -> None:
    counter = Counter(kind)
    bench = Bench(counter)
    bench.ask(7, 10, credit=4096)
    await bench.turns()
    bench.receive(cancels=[7, 99])
    end = await bench.end(7)
    bench.receive(cancels=[7], credits=[pb.Credit(id=7, bytes=PLENTY)])
    await bench.turns()

    assert (end.code, end.seq) == (CANCELLED, 1)
    assert (counter.given, counter.closed) == (1, counter.all_closed)
    assert [reply.final for reply in bench.link.replies] == [False, True]


async def test_an_async_generator_is_cancelled_where_it_waits() -> None:
    ended = asyncio.Event()

    async def predict(_n: int) -> AsyncIterator[Any]:
        try:
            yield {"word": np.array([b"first"], object)}
            await asyncio.Event().wait()
        finally:
            ended.set()

    bench = Bench(predict)
    bench.ask(7, 1)
    await bench.turns()
    bench.receive(cancels=[7])

    assert ((await bench.end(7)).code, ended.is_set()) == (CANCELLED, True)


async def test_an_async_generator_that_gives_nothing_for_too_long_is_ended() -> None:
    async def predict(_n: int) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield {}

    bench = Bench(predict, max_execution_ms=30)
    bench.ask(7, 1)

    assert (await bench.end(7)).message == "no answer within limits.max_execution_ms 30"


@KINDS
async def test_a_link_that_is_lost_closes_its_generators(kind: str) -> None:
    counter = Counter(kind)
    bench = Bench(counter)
    bench.ask(7, 10, credit=4096)
    await bench.turns()
    assert bench.executor.is_streaming
    bench.executor.closed(bench.link, "lost")  # type: ignore[arg-type]
    await bench.turns()

    assert (counter.closed, bench.executor.is_streaming) == (counter.all_closed, False)
    assert not any(reply.final for reply in bench.link.replies)


async def test_two_that_compute_take_turns() -> None:
    bench = Bench(Counter())
    bench.ask(1, 10)
    bench.ask(2, 10)
    await bench.end(1)

    assert [reply.id for reply in bench.link.replies[:10]] == [1, 2] * 5


async def test_only_what_is_wanted_is_sent_and_an_answer_need_not_have_all() -> None:
    def predict(_n: int) -> Iterator[Any]:
        yield {"i": np.array([1], np.int32), "word": np.array([b"a"], object)}
        yield {"i": np.array([2], np.int32)}

    bench = Bench(predict)
    bench.ask(7, 1, outputs=["word"])
    await bench.end(7)

    assert [[output.name for output in reply.outputs] for reply in bench.link.replies] == [["word"], [], []]


async def test_an_answer_that_is_too_large_ends_it_with_a_word() -> None:
    def predict(_n: int) -> Iterator[Any]:
        yield {"i": np.zeros(100, np.int32)}

    bench = Bench(predict, max_tensor_bytes=64)
    bench.ask(7, 1)
    end = await bench.end(7)

    assert end.code == RESOURCE_EXHAUSTED
    assert end.message == "output 'i' of an answer takes 400 bytes, over limits.max_tensor_bytes 64"


async def test_a_model_may_say_its_own_status_and_a_request_needs_credit() -> None:
    def predict(_n: int) -> Iterator[Any]:
        raise ModelError(UNAVAILABLE, "later", executed=False)
        yield

    bench = Bench(predict)
    bench.ask(7, 1)
    bench.ask(8, 1, credit=0)

    assert (await bench.end(7)).code == UNAVAILABLE
    assert (await bench.end(8)).code == INVALID_ARGUMENT


HEAD = 'class Model:\n    inputs = {"n": ("INT32", [-1])}\n    outputs = {"y": ("INT32", [-1])}\n    def predict'


def loaded(folder: Path, code: str, **options: Any) -> tuple[Model, Signature]:
    (folder / "model.py").write_text(HEAD + code)
    model = Model()
    return model, model.load(folder / "model.py", Options(trusted=True, **options))


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("(self, inputs):\n        yield {'y': inputs['n']}", ""),
        ("(self, inputs):\n        return {'y': inputs['n']}", "decoupled"),
        ("(self, inputs):\n        return [{'y': inputs['n']}]", "decoupled"),
        ("(self, inputs):\n        return iter([{'y': inputs['n']}])", "decoupled"),
    ],
)
def test_a_python_model_streams_if_it_is_a_generator_or_is_said_to(tmp_path: Path, code: str, says: str) -> None:
    model, signature = loaded(tmp_path, code, decoupled=bool(says))
    answers = model.stream({"n": np.array([4], np.int32)})

    assert (signature.decoupled, signature.batches) == (True, False)
    assert isinstance(answers, Iterator)
    assert [answer["y"].tolist() for answer in answers] == [[4]]
    assert model.run({"n": np.array([4], np.int32)})["y"].tolist() == [4]


async def test_an_async_python_model_is_not_run_outside_the_loop_that_serves(tmp_path: Path) -> None:
    code = "(self, inputs):\n        for n in inputs['n']:\n            yield {'y': [n]}"
    model, signature = loaded(tmp_path, code.replace("def", "async def"))
    (tmp_path / "model.py").write_text(HEAD.replace("def predict", "async def predict") + code)
    signature = model.load(tmp_path / "model.py", Options(trusted=True))
    answers = model.stream({"n": np.array([4, 5], np.int32)})

    assert signature.decoupled
    assert model.run({"n": np.array([4], np.int32)}) == {}
    assert isinstance(answers, AsyncIterator)
    assert [answer["y"].tolist() async for answer in answers] == [[4], [5]]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("(self, inputs):\n        yield 5", "predict gave a int; expected dicts with y"),
        ("(self, inputs):\n        yield {'z': 5}", "predict gave output 'z'; declared are y"),
    ],
)
def test_what_is_no_answer_is_said(tmp_path: Path, code: str, message: str) -> None:
    model, _ = loaded(tmp_path, code)

    with pytest.raises((TypeError, ValueError), match=message):
        model.run({"n": np.array([4], np.int32)})


def test_a_framework_that_gives_one_answer_is_not_said_to_give_many() -> None:
    with pytest.raises(BadArtifactError, match="says decoupled, which Python models can be; this is onnx"):
        options_of(Job.model_validate(JOB | {"decoupled": True}))
