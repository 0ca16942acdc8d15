"""An ordinary network with a state input and output, served as a stateful model by a whole mesh of two pods."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from itertools import accumulate
from typing import Any

import grpc.aio
import numpy as np
import pytest
import pytest_asyncio

from inference import grpc_service_pb2 as pb
from services.core.tensor import decode_bytes
from tests.support import accumulators
from tests.support.channels import own_channel
from tests.support.client_process import said_by
from tests.support.mesh import Mesh, until
from tests.support.mesh_probes import QUICK, introduce, metric, put_model, worker
from tests.support.traffic import MODEL_INFER

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

INVALID = grpc.StatusCode.INVALID_ARGUMENT
PODS = ("batcher-0", "batcher-1")
OLDEST = {"max_candidate_sequences": 64}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mesh]:
    only = ("runtime-0", "batcher-0", "runtime-1", "batcher-1", "router")
    async with Mesh(tmp_path_factory.mktemp("sequences"), only=only, replicas=2, settings=QUICK) as mesh:
        for name, text_ids in (("direct", False), ("oldest", True), ("narrow", False)):
            accumulators.write(mesh.repository, name, text_ids=text_ids)
        await introduce(mesh, "direct", 1, spec=accumulators.spec(), replicas=2)
        await introduce(mesh, "oldest", 1, spec=accumulators.spec(oldest=OLDEST), replicas=2)
        await introduce(mesh, "narrow", 1, spec=accumulators.spec(rows=1, idle_us=300_000), replicas=2)
        yield mesh


class Caller:
    """A gRPC client that sends steps of sequences."""

    def __init__(self, channel: Any, model: str) -> None:
        self._infer = channel.unary_unary(MODEL_INFER)
        self._model = model

    async def step(self, name: int | str, value: float, *, start: bool = False, end: bool = False) -> dict[str, Any]:
        request = pb.ModelInferRequest(model_name=self._model, raw_input_contents=[np.float32(value).tobytes()])
        request.inputs.add(name="x", datatype="FP32", shape=[1, 1])
        parameters = request.parameters
        if isinstance(name, int):
            parameters["sequence_id"].int64_param = name
        else:
            parameters["sequence_id"].string_param = name
        parameters["sequence_start"].bool_param = start
        parameters["sequence_end"].bool_param = end
        answer = pb.ModelInferResponse.FromString(await self._infer(request.SerializeToString(), timeout=20))
        kinds = {"FP32": np.float32, "INT32": np.int32, "INT64": np.int64}
        return {
            output.name: np.frombuffer(data, kinds[output.datatype]) if output.datatype in kinds else decode_bytes(data)
            for output, data in zip(answer.outputs, answer.raw_output_contents, strict=True)
        }

    async def whole(self, name: int | str, values: list[float]) -> list[dict[str, Any]]:
        """A sequence from start to end, as fast as it goes."""
        last = len(values) - 1
        return [await self.step(name, value, start=place == 0, end=place == last) for place, value in enumerate(values)]


@pytest_asyncio.fixture(loop_scope="module")
async def channel(mesh: Mesh) -> AsyncIterator[Any]:
    async with own_channel(await mesh.listening("router", "grpc")) as channel:
        yield channel


@pytest.mark.parametrize("model", ["direct", "oldest"])
async def test_each_of_many_interleaved_sequences_gets_its_own_sums(channel: Any, model: str) -> None:
    caller = Caller(channel, model)
    rng = np.random.default_rng(7)
    sent = {name: rng.integers(0, 1000, 20).tolist() for name in range(1, 101)}

    answers = dict(
        zip(sent, await asyncio.gather(*(caller.whole(name, values) for name, values in sent.items())), strict=True)
    )

    for name, values in sent.items():
        assert [float(answer["y"][0]) for answer in answers[name]] == list(accumulate(values))
        who = name if model == "direct" else str(name).encode()
        assert [answer["who"][0] for answer in answers[name]] == [who] * 20
        assert [answer["told"].tolist() for answer in answers[name]] == [[1, 1, 0], *[[0, 1, 0]] * 18, [0, 1, 1]]
        assert "sum_next" not in answers[name][0]


async def test_requests_of_one_sequence_that_are_sent_at_once_run_one_after_the_other(channel: Any) -> None:
    caller = Caller(channel, "oldest")
    await caller.step(500, 0, start=True)
    answers = await asyncio.gather(*(caller.step(500, value) for value in range(1, 30)))
    sums = sorted(float(answer["y"][0]) for answer in answers)

    assert sorted(np.diff([0, *sums])) == list(range(1, 30))


@pytest.mark.parametrize(("protocol", "what"), [("grpc", "grpc"), ("http", "rest")])
async def test_tritonclient_sends_interleaved_sequences(mesh: Mesh, protocol: str, what: str) -> None:
    said = await said_by("tests.support.accumulators", protocol, await mesh.listening("router", what), "oldest")
    expected = [list(accumulate(10 * place + step for step in range(accumulators.STEPS))) for place in range(10)]
    assert said == expected


async def test_a_sequence_stays_on_one_pod(mesh: Mesh, channel: Any) -> None:
    caller = Caller(channel, "direct")

    async def seen() -> list[float]:
        return [await metric(mesh, pod, "turnout_batcher_requests_total", model="direct", code="0") for pod in PODS]

    before = await seen()
    await caller.whole(1234, [1.0] * 10)
    grown = sorted(after - first for first, after in zip(before, await seen(), strict=True))

    assert grown == [0, 10]


async def test_an_unknown_sequence_is_refused_saying_what_to_do(channel: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await Caller(channel, "direct").step(4711, 1)

    assert refused.value.code() is INVALID
    assert "begin it anew with sequence_start" in str(refused.value.details())


async def test_the_mesh_fills_states_and_controls_in_and_says_nothing_of_them(channel: Any) -> None:
    ask = channel.unary_unary("/inference.GRPCInferenceService/ModelMetadata")
    told = pb.ModelMetadataResponse.FromString(await ask(pb.ModelMetadataRequest(name="direct").SerializeToString()))

    assert [tensor.name for tensor in told.inputs] == ["x"]
    assert [tensor.name for tensor in told.outputs] == ["y", "who", "told"]


async def test_silence_frees_places_and_those_who_wait_are_promoted(mesh: Mesh, channel: Any) -> None:
    caller = Caller(channel, "narrow")
    answers = await asyncio.gather(*(caller.step(name, name, start=True) for name in range(1, 9)))

    async def all_over() -> bool:
        seated = sum([await metric(mesh, pod, "turnout_batcher_sequences", model="narrow") for pod in PODS])
        return seated == 0

    assert [answer["y"][0] for answer in answers] == list(range(1, 9))
    await until("all sequences are over", all_over)
    idle = [
        await metric(mesh, pod, "turnout_batcher_sequences_over_total", model="narrow", reason="idle") for pod in PODS
    ]
    assert sum(idle) == 8


async def test_a_killed_worker_ends_its_sequences_clearly_and_a_new_start_works(mesh: Mesh, channel: Any) -> None:
    caller = Caller(channel, "direct")
    for name in range(1, 9):
        await caller.step(name, name, start=True)
    killed = await worker(mesh, "runtime-0", "direct")
    os.kill(killed, signal.SIGKILL)
    await worker(mesh, "runtime-0", "direct", besides=[killed])
    await mesh.serving("direct", "1", replicas=2)

    async def outcome(name: int) -> tuple[grpc.StatusCode, str]:
        try:
            answer = await caller.step(name, 10)
        except grpc.aio.AioRpcError as error:
            return error.code(), str(error.details())
        assert answer["y"][0] == name + 10
        return grpc.StatusCode.OK, ""

    outcomes = [await outcome(name) for name in range(1, 9)]
    again = [(await caller.step(name, 5, start=True))["y"][0] for name in range(1, 9)]

    assert {code for code, _ in outcomes} == {grpc.StatusCode.OK, INVALID}
    assert all("begin it anew with sequence_start" in text for code, text in outcomes if code is INVALID)
    assert again == [5] * 8


async def test_a_wrong_state_never_takes_effect_and_a_right_change_does_with_its_workers(mesh: Mesh) -> None:
    accumulators.write(mesh.repository, "changed")
    await introduce(mesh, "changed", 1, spec=accumulators.spec(), replicas=2)

    async def refused() -> bool:
        return all("nowhere" in pod.models["changed"]["1"].reason for pod in (await mesh.inventory()).values())

    async with own_channel(await mesh.listening("router", "grpc")) as channel:
        caller = Caller(channel, "changed")
        await caller.step(1, 1, start=True)
        wrong = accumulators.spec(state=[{"input_name": "nowhere", "output_name": "sum_next"}])
        await put_model(mesh, "changed", 1, spec=wrong)
        await until("the wrong state is refused", refused)
        assert (await caller.step(1, 2))["y"].tolist() == [3]
        assert (await caller.whole(2, [4, 5]))[-1]["y"].tolist() == [9]

        controls = [control for control in accumulators.CONTROLS if control["kind"] != "END"]
        await put_model(mesh, "changed", 1, spec=accumulators.spec(control_input=controls))

        async def inputs() -> bool:
            ask = channel.unary_unary("/inference.GRPCInferenceService/ModelMetadata")
            request = pb.ModelMetadataRequest(name="changed").SerializeToString()
            told = pb.ModelMetadataResponse.FromString(await ask(request))
            return [tensor.name for tensor in told.inputs] == ["x", "end"]

        await until("callers send `end` themselves", inputs)
