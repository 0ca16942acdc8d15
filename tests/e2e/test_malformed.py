"""Malformed requests to a whole mesh, by gRPC and REST, among good ones: each hears its fault, nobody else does."""

from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import aiohttp
import grpc.aio
import pytest
import pytest_asyncio

from inference import grpc_service_pb2 as pb
from tests.support import numbered
from tests.support.channels import own_channel
from tests.support.mesh import Mesh
from tests.support.mesh_probes import QUICK, errors, serve, workers
from tests.support.traffic import MODEL_INFER, Traffic, mixed

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

INVALID, NOT_FOUND = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
TOO_LARGE = grpc.StatusCode.RESOURCE_EXHAUSTED
SPEC = {"limits": {"max_request_rows": 512, "max_request_bytes": 4096}}  # 256 rows have as many bytes
ROUNDS = 3


class Fault(NamedTuple):
    """What is wrong with a message, its status, and a word of what the caller is told."""

    spoil: Callable[[pb.ModelInferRequest], object]
    code: grpc.StatusCode
    says: str


def _rows(request: pb.ModelInferRequest, rows: int) -> None:
    request.CopyFrom(numbered.request(request.model_name, numbered.numbers(0, rows)))


FAULTS = {
    "datatype": Fault(lambda m: setattr(m.inputs[0], "datatype", "FP64"), INVALID, "FP32"),
    "no datatype": Fault(lambda m: setattr(m.inputs[0], "datatype", "FP31"), INVALID, "FP31"),
    "shape": Fault(lambda m: m.inputs[0].shape.append(1), INVALID, "shape"),
    "width": Fault(lambda m: m.inputs[0].shape.__setitem__(1, 2), INVALID, "shape"),
    "negative rows": Fault(lambda m: m.inputs[0].shape.__setitem__(0, -1), INVALID, "negative"),
    "overflow": Fault(lambda m: m.inputs[0].shape.__setitem__(0, 1 << 60), INVALID, "limit"),
    "name": Fault(lambda m: setattr(m.inputs[0], "name", "z"), INVALID, "z"),
    "nothing": Fault(lambda m: m.ClearField("inputs"), INVALID, "inputs"),
    "twice": Fault(lambda m: m.inputs.append(m.inputs[0]), INVALID, "2 inputs"),
    "bytes": Fault(lambda m: m.raw_input_contents.__setitem__(0, b"123"), INVALID, "bytes"),
    "model": Fault(lambda m: setattr(m, "model_name", "nobody"), NOT_FOUND, "nobody"),
    "version": Fault(lambda m: setattr(m, "model_version", "7"), NOT_FOUND, "7"),
    "label": Fault(lambda m: setattr(m, "model_version", "best"), NOT_FOUND, "best"),
    "output": Fault(lambda m: m.outputs.add(name="z"), INVALID, "z"),
    "too many rows": Fault(lambda m: _rows(m, 513), INVALID, "512"),
    "too many bytes": Fault(lambda m: _rows(m, 257), TOO_LARGE, "4096"),
}

BODIES = {
    b"": (400, "JSON"),
    b"{": (400, "JSON"),
    b"[" * 100_000: (400, "JSON"),
    b"\xff\xfe": (400, "JSON"),
    b'{"inputs": {}}': (400, "inputs"),
    b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1]}]}': (400, "shape"),
    b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}': (400, "shape"),
    b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, "a"]}]}': (400, "x"),
    b'{"inputs": [{"name": "x", "datatype": "INT8", "shape": [1, 4], "data": [1, 2, 3, 4]}]}': (400, "FP32"),
    b'{"inputs": []}': (400, "x"),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mesh]:
    only = ("runtime-0", "batcher-0", "router")
    async with Mesh(tmp_path_factory.mktemp("malformed"), only=only, settings=QUICK) as mesh:
        await serve(mesh, "numbers", 1, spec=SPEC)
        yield mesh


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def nobody_notices(mesh: Mesh) -> AsyncIterator[None]:
    """Good requests beside the bad ones are all answered, by the same processes, which log no error of their own."""
    before = workers(mesh, "runtime-0", "numbers")
    async with Traffic(await mesh.listening("router", "grpc"), mixed("numbers")) as traffic:
        await traffic.flowing(20)
        yield
        await traffic.clean(50)

    traffic.check()
    assert workers(mesh, "runtime-0", "numbers") == before
    assert errors(mesh, "runtime-0", "batcher-0", "router") == []


async def test_every_malformed_message_is_told_its_fault(mesh: Mesh) -> None:
    told = {}
    async with own_channel(await mesh.listening("router", "grpc")) as channel:
        for name in [*FAULTS] * ROUNDS:
            request = numbered.request("numbers", [3.0])
            FAULTS[name].spoil(request)
            told[name] = await _refusal(channel, request.SerializeToString())

    untold = {
        name: (code, message)
        for name, (code, message) in told.items()
        if code != FAULTS[name].code or FAULTS[name].says not in message
    }
    assert untold == {}


async def test_a_request_without_rows_gets_an_answer_without_rows(mesh: Mesh) -> None:
    async with own_channel(await mesh.listening("router", "grpc")) as channel:
        infer = channel.unary_unary(MODEL_INFER, None, None)
        answer = await infer(numbered.request("numbers", []).SerializeToString(), timeout=10)

    response = pb.ModelInferResponse.FromString(answer)
    assert list(response.outputs[0].shape) == [0, 2]
    assert list(response.raw_output_contents) == [b""]


@pytest.mark.parametrize("payload", [b"\xff" * 64, b"\x0a\x05abc", b"", b"\x00"], ids=lambda payload: payload[:4].hex())
async def test_bytes_that_are_no_message_are_refused(mesh: Mesh, payload: bytes) -> None:
    async with own_channel(await mesh.listening("router", "grpc")) as channel:
        code, message = await _refusal(channel, payload)

    assert code in {INVALID, NOT_FOUND}
    assert message


async def test_every_malformed_body_is_told_its_fault(mesh: Mesh) -> None:
    url = f"http://{await mesh.listening('router', 'rest')}/v2/models/numbers/infer"
    told = {}
    async with aiohttp.ClientSession() as session:
        for body in BODIES:
            async with session.post(url, data=body) as answer:
                told[body] = (answer.status, (await answer.json())["error"])

    for body, (status, message) in told.items():
        assert (status, BODIES[body][1] in message) == (BODIES[body][0], True), f"{body[:90]!r}: {status} {message}"


async def _refusal(channel: grpc.aio.Channel, payload: bytes) -> tuple[grpc.StatusCode, str]:
    try:
        await channel.unary_unary(MODEL_INFER, None, None)(payload, timeout=10)
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    return grpc.StatusCode.OK, ""
