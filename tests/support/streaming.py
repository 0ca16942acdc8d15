"""A mesh with models that stream, behind both front doors, and what a caller of ModelStreamInfer sees."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import grpc.aio
import numpy as np

from inference import grpc_service_pb2 as pb
from inference import grpc_service_pb2_grpc
from tests.support.channels import own_channel
from tests.support.mesh import Mesh, until
from tests.support.mesh_probes import metric, model_ready

TIMEOUT_S = 90.0
FRONTS = {"native": "router", "aio": "router-aio"}
_COUNT = '''
import os, pathlib
import numpy as np

class Model:
    """Counts to n. A negative n raises after three, `size` bytes come with each number; notes how it ended."""

    inputs = {"n": ("INT32", [1]), "size": ("INT32", [1])}
    outputs = {"i": ("INT32", [1]), "pad": ("BYTES", [1]), "pid": ("INT64", [1])}

    def load(self, folder):
        self.notes = pathlib.Path(os.environ["NOTES"])

    def predict(self, inputs):
        n, size = int(inputs["n"][0]), int(inputs["size"][0])
        given = 0
        try:
            for i in range(abs(n)):
                given += 1
                yield {"i": [np.int32(i)], "pad": [b"x" * size], "pid": [os.getpid()]}
                if n < 0 and i == 2:
                    raise ValueError("unlucky")
        finally:
            (self.notes / str(n)).write_text(str(given))
'''
_TICK = '''
import asyncio, os, pathlib
import numpy as np

class Model:
    """Tells the time for ever, without computing anything."""

    inputs = {"n": ("INT32", [1])}
    outputs = {"i": ("INT32", [1])}

    def load(self, folder):
        self.notes = pathlib.Path(os.environ["NOTES"])

    async def predict(self, inputs):
        i = 0
        try:
            while True:
                yield {"i": [np.int32(i)]}
                i += 1
                await asyncio.sleep(0.001)
        finally:
            (self.notes / f"tick-{inputs['n'][0]}").write_text(str(i))
'''
_LISTED = '''
class Model:
    """Words of a text, all at once: decoupled because its config.pbtxt says so."""

    inputs = {"text_input": ("BYTES", [1])}
    outputs = {"text_output": ("BYTES", [1])}

    def predict(self, inputs):
        return [{"text_output": [word]} for word in inputs["text_input"][0].split()]
'''
_TWICE = '''
import time

class Model:
    """One answer to a request; the larger the number, the sooner."""

    inputs = {"n": ("INT32", [-1])}
    outputs = {"y": ("INT32", [-1])}

    def predict(self, inputs):
        return {"y": inputs["n"] * 2}
'''
MODELS = {"count": _COUNT, "tick": _TICK, "listed": _LISTED, "twice": _TWICE}


class Answer(NamedTuple):
    """One message of the stream."""

    id: str
    error: str
    values: dict[str, Any]  # of its outputs
    is_final: bool


class StreamMesh:
    """One pod and two routers; `notes` is where models say how they ended."""

    def __init__(self, mesh: Mesh, notes: Path) -> None:
        self.mesh = mesh
        self.notes = notes

    async def noted(self, name: str) -> int:
        """What a model noted under that name, once it has; it is not there any more then."""
        path = self.notes / name

        async def is_there() -> str | None:
            return (await asyncio.to_thread(path.read_text)) if path.exists() else None

        text = await until(f"note {name}", is_there, TIMEOUT_S)
        path.unlink()
        return int(text)

    async def counted(self, name: str, model: str) -> float:
        """A metric of the batcher."""
        return await metric(self.mesh, "batcher-0", f"turnout_batcher_{name}", model=model)

    async def rest(self, model: str, before: float) -> float:
        """Answers that it has given since there were `before`, once there are no more of them."""
        seen: list[float] = []

        async def rests() -> bool:
            seen.append(await self.counted("streamed_answers_total", model) - before)
            await asyncio.sleep(0.1)
            return len(seen) > 5 and seen[-1] > 0 and len(set(seen[-5:])) == 1

        await until(f"{model} rests", rests, TIMEOUT_S)
        return seen[-1]

    async def quiet(self, model: str) -> None:
        """Return once nothing of the model is under way."""

        async def is_quiet() -> bool:
            return await self.counted("in_flight_batches", model) == 0

        await until(f"{model} is quiet", is_quiet, TIMEOUT_S)

    @asynccontextmanager
    async def post(self, path: str, body: Any, **headers: str) -> AsyncIterator[aiohttp.ClientResponse]:
        """A request of REST below /v2/models, its answer unread."""
        url = f"http://{await self.mesh.listening('router', 'rest')}/v2/models/{path}"
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(url, data=body if isinstance(body, bytes) else json.dumps(body), headers=headers) as answer,
        ):
            yield answer

    @asynccontextmanager
    async def caller(self, front: str) -> AsyncIterator["Caller"]:
        address = await self.mesh.listening(FRONTS[front], "grpc")
        async with own_channel(address, max_receive_message_length=-1) as channel:
            yield Caller(channel)


class Caller:
    """One channel."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.stub: Any = grpc_service_pb2_grpc.GRPCInferenceServiceStub(channel)

    async def ask(self, *requests: pb.ModelInferRequest, **options: Any) -> list[Answer]:
        """All answers to these requests on one stream."""
        return [read(each) async for each in self.stub.ModelStreamInfer(iter(requests), timeout=TIMEOUT_S, **options)]

    def open(self, timeout_s: float = TIMEOUT_S) -> "Conversation":
        return Conversation(self.stub.ModelStreamInfer(timeout=timeout_s))


class Conversation:
    """One stream that is written and read step by step."""

    def __init__(self, call: Any) -> None:
        self.call = call

    async def say(self, request: pb.ModelInferRequest) -> None:
        await self.call.write(request)

    async def hear(self) -> Answer:
        message = await self.call.read()
        assert message is not grpc.aio.EOF, "the stream ended"
        return read(message)


def read(message: pb.ModelStreamInferResponse) -> Answer:
    response = message.infer_response
    values = {}
    for output, raw in zip(response.outputs, response.raw_output_contents, strict=True):
        kind = {"INT32": np.int32, "INT64": np.int64}.get(output.datatype)
        values[output.name] = np.frombuffer(raw, kind).tolist() if kind else raw[4:]
    return Answer(response.id, message.error_message, values, response.parameters["triton_final_response"].bool_param)


def request(model: str, name: str = "", *, tell_end: bool = False, **inputs: int | bytes) -> pb.ModelInferRequest:
    """A request whose id is `name`."""
    asked = pb.ModelInferRequest(model_name=model, id=name)
    if tell_end:
        asked.parameters["triton_enable_empty_final_response"].bool_param = True
    for given, value in inputs.items():
        is_text = isinstance(value, bytes)
        asked.inputs.add(name=given, datatype="BYTES" if is_text else "INT32", shape=[1])
        data = len(value).to_bytes(4, "little") + value if isinstance(value, bytes) else np.int32(value).tobytes()
        asked.raw_input_contents.append(data)
    return asked


def count(n: int, name: str = "", *, size: int = 0, tell_end: bool = False) -> pb.ModelInferRequest:
    return request("count", name, tell_end=tell_end, n=n, size=size)


@asynccontextmanager
async def stream_mesh(folder: Path) -> AsyncIterator[StreamMesh]:
    notes = folder / "notes"
    notes.mkdir()
    for name, code in MODELS.items():
        version = folder / "models" / name / "1"
        version.mkdir(parents=True)
        (version / "model.py").write_text(code)
    (folder / "models" / "listed" / "config.pbtxt").write_text("model_transaction_policy { decoupled: true }\n")
    processes = ("runtime-0", "batcher-0", "router")
    async with Mesh(folder, only=processes) as mesh:
        mesh.add("router-aio", "router", NATIVE_FRONT="false")
        await mesh.start("router-aio")
        environment = {"NOTES": os.fspath(notes)}
        for name in MODELS:
            spec = {"trusted": True, "environment": environment, "default_deadline_ms": 120_000}
            await mesh.put(f"models/{name}", spec)
        for name in MODELS:
            await mesh.serving(name, "1")
        for router in FRONTS.values():
            for name in MODELS:
                await model_ready(mesh, name, router=router)
        for note in notes.iterdir():  # of warm-ups
            note.unlink()
        yield StreamMesh(mesh, notes)
