"""Requests of a mesh are recorded and warm the next version up; outputs on request, through all hops."""

import asyncio
import json
import shutil
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc.aio
import numpy as np
import pytest
import pytest_asyncio
import xgboost
from sklearn.datasets import load_iris

from inference import grpc_service_pb2 as pb
from inference import grpc_service_pb2_grpc
from services.chassis.recordings import RecordingReader
from services.core.registry import InventoryVersion
from tests.support import numbered
from tests.support.channels import own_channel
from tests.support.mesh import Mesh, until
from tests.support.mesh_probes import QUICK, introduce, model_ready, put_model, serve

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]
FEATURES, CLASSES = load_iris(return_X_y=True)
ROWS = FEATURES[::30].astype(np.float32)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mesh]:
    only = ("runtime-0", "batcher-0", "router")
    async with Mesh(tmp_path_factory.mktemp("recording"), only=only, settings=QUICK) as mesh:
        yield mesh


@pytest_asyncio.fixture(loop_scope="module")
async def infer(mesh: Mesh) -> AsyncIterator[grpc.aio.UnaryUnaryMultiCallable]:
    async with own_channel(await mesh.listening("router", "grpc")) as channel:
        yield grpc_service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer


def publish(mesh: Mesh, model: str, version: int, warm_up: bytes) -> None:
    """A version, whole at once, with this beside its artifact."""
    numbered.write(mesh.folder / "incoming", model, version)
    (mesh.folder / "incoming" / model / str(version) / "warmup.recorded").write_bytes(warm_up)
    shutil.move(mesh.folder / "incoming" / model / str(version), mesh.repository / model / str(version))


async def noted(mesh: Mesh, model: str, version: str) -> str:
    """What a version that is ready has to note."""

    async def is_ready() -> InventoryVersion | None:
        (found,) = (await mesh.inventory()).values()
        each = found.models[model][version]
        return each if each.state == "READY" else None

    return (await until(f"{model}/{version} is ready", is_ready)).reason


def warmed_up(mesh: Mesh, model: str, version: str) -> list[dict[str, Any]]:
    """What workers said of their warm-up."""
    lines = [line["line"] for line in mesh.log_lines("runtime-0") if line.get("event") == "worker_output"]
    said = [json.loads(line) for line in lines if line.startswith("{")]
    return [each for each in said if (each["event"], each["model"], each["version"]) == ("warmed_up", model, version)]


async def recorded(mesh: Mesh, path: Path, calls: Sequence[asyncio.Task[object]]) -> bytes:
    """What `turnout record` makes of as many requests as there are `calls`, which go on all the time."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.cli", "record", "numbers", "--count", "50", "-o", str(path),
        "--etcd", mesh.etcd.endpoint, stdout=PIPE, stderr=PIPE,
    )  # fmt: skip
    out, errors = await process.communicate()
    assert (process.returncode, errors) == (0, b""), errors
    assert not any(call.done() for call in calls)
    return out


async def test_recorded_requests_warm_the_next_version_up(
    mesh: Mesh, infer: grpc.aio.UnaryUnaryMultiCallable, tmp_path: Path
) -> None:
    await serve(mesh, "numbers", 1)
    path = tmp_path / "some.recorded"
    sent: set[float] = set()

    async def ask(start: int) -> None:
        for value in numbered.numbers(start, 1 << 20):
            sent.add(value)
            response = await infer(numbered.request("numbers", [value, value + 0.5]), timeout=30)
            assert numbered.fault(response, [value, value + 0.5], {"1"}) == ""

    callers = [asyncio.create_task(ask(caller << 20)) for caller in range(4)]
    out = await recorded(mesh, path, callers)
    for caller in callers:
        caller.cancel()
    await asyncio.gather(*callers, return_exceptions=True)
    with RecordingReader(path) as reader:
        records = list(reader)
    inputs = [np.frombuffer(record.inputs[0].data, np.float32).reshape(2, numbered.WIDTH)[:, 0] for record in records]
    answers = [np.frombuffer(record.outputs[0].data, np.float32).reshape(2, 2)[:, 0] for record in records]
    publish(mesh, "numbers", 2, path.read_bytes())
    publish(mesh, "numbers", 3, b"no record\n" * 20)
    await put_model(mesh, "numbers", 1, 2, 3)
    await mesh.serving("numbers", "2", "3")

    assert out.startswith(b"recorded 50 requests of numbers from 1 router(s)")
    assert len({float(each[0]) for each in inputs} & sent) == 50
    assert np.array_equal(inputs, answers)
    assert [(each["requests"], each["left_out"]) for each in warmed_up(mesh, "numbers", "2")] == [(50, 0)]
    assert await noted(mesh, "numbers", "2") == ""
    assert "warm-up ran 0 requests and left 1 out: BadRecordingError" in await noted(mesh, "numbers", "3")


async def test_neighbours_in_a_batch_each_get_the_outputs_that_they_ask_for(
    mesh: Mesh, infer: grpc.aio.UnaryUnaryMultiCallable
) -> None:
    trained = xgboost.XGBClassifier(n_estimators=3, n_jobs=1).fit(FEATURES.astype(np.float32), CLASSES)
    (mesh.repository / "iris" / "1").mkdir(parents=True)
    trained.save_model(mesh.repository / "iris" / "1" / "model.ubj")
    await introduce(mesh, "iris", 1, spec={"outputs": ["leaf", "margin"]})
    await model_ready(mesh, "iris")
    wanted = [["leaf"], [], ["margin", "label"], ["label"], ["leaf", "probabilities"]] * 8
    own = {
        "label": trained.predict(ROWS),
        "probabilities": trained.predict_proba(ROWS),
        "leaf": trained.apply(ROWS),
        "margin": trained.predict(ROWS, output_margin=True),
    }

    async def ask(names: list[str]) -> dict[str, bytes]:
        tensor = pb.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=ROWS.shape)
        outputs = [pb.ModelInferRequest.InferRequestedOutputTensor(name=name) for name in names]
        request = pb.ModelInferRequest(
            model_name="iris", inputs=[tensor], outputs=outputs, raw_input_contents=[ROWS.tobytes()]
        )
        response = await infer(request, timeout=30)
        return dict(zip((each.name for each in response.outputs), response.raw_output_contents, strict=True))

    answers = await asyncio.gather(*map(ask, wanted))

    assert [list(answer) for answer in answers] == [names or ["label", "probabilities"] for names in wanted]
    for answer in answers:
        for name, data in answer.items():
            dtype = np.int64 if name in {"label", "leaf"} else np.float32
            assert np.array_equal(np.frombuffer(data, dtype).reshape(own[name].shape), own[name].astype(dtype))
