"""How large a request may be, to the byte and over every protocol, and how many dimensions it may have."""

import gzip
import json
import math
import time
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest
import pytest_asyncio

from inference import grpc_service_pb2 as pb
from tests.support.channels import own_channel
from tests.support.puppets import floats, signature
from tests.support.router_mesh import TIMEOUT_S, Model, RouterMesh, infer_request, rest_request
from tests.support.serving_goldens import PREDICT
from turnout.tfserving.prediction_service_pb2 import PredictRequest
from turnout.tfserving.tensor_pb2 import TensorProto

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMIT = 1 << 20
SETTINGS = {"max_message_bytes": LIMIT, "tfs_grpc_address": "127.0.0.1:0"}
GROWTH_BYTES = 24 << 20  # a few messages of the largest size
PROMPT_S = 20.0  # on a busy machine; alone it takes milliseconds
BOMB_BYTES = 96 << 20


def filled(request: pb.ModelInferRequest, size: int) -> bytes:
    """A message of exactly that many bytes, by a longer id."""
    request.id = "i" * (size - request.ByteSize() - 4)
    request.id += "i" * (size - request.ByteSize())
    return request.SerializeToString()


def spaced(model: str, size: int) -> tuple[bytes, dict[str, str]]:
    return json.dumps(rest_request(1.0)).encode().ljust(size), {}


def deflated(model: str, size: int) -> tuple[bytes, dict[str, str]]:
    return gzip.compress(spaced(model, size)[0]), {"Content-Encoding": "gzip"}


def behind(model: str, size: int) -> tuple[bytes, dict[str, str]]:
    """Binary: the tensor comes behind the JSON, and spaces fill that up."""
    asked = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}]}
    head = json.dumps(asked).encode().ljust(size - 8)
    return head + floats(1.0, 1.0), {"Inference-Header-Content-Length": str(len(head))}


@pytest_asyncio.fixture(loop_scope="module")
async def model(mesh: RouterMesh) -> Model:
    return await mesh.model()


async def test_a_message_has_exactly_as_many_bytes_as_it_may(mesh: RouterMesh, model: Model) -> None:
    whole = await mesh.call(filled(infer_request(model.name, 1.0), LIMIT))
    over = await mesh.call(filled(infer_request(model.name, 1.0), LIMIT + 1))

    assert whole.code == grpc.StatusCode.OK, whole.message
    assert (over.code, f"{LIMIT + 1} bytes; this router takes {LIMIT}" in over.message) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        True,
    )


@pytest.mark.parametrize("body", [spaced, deflated, behind])
async def test_a_body_has_exactly_as_many_bytes_as_it_may(
    mesh: RouterMesh, model: Model, body: Callable[[str, int], tuple[bytes, dict[str, str]]]
) -> None:
    answers = []
    for size in (LIMIT, LIMIT + 1):
        data, headers = body(model.name, size)
        answers.append(await model.rest(data, headers=headers))
    whole, over = answers

    assert whole.status == 200, whole.body
    assert (over.status, f"larger than {LIMIT} bytes" in over.body["error"]) == (413, True), over.body


async def test_tensorflow_serving_s_protocols_have_the_same_limit(mesh: RouterMesh, model: Model) -> None:
    request = PredictRequest(model_spec={"name": model.name})
    request.inputs["x"].CopyFrom(TensorProto(dtype=1, float_val=[1.0, 1.0]))
    for size in (1, 2):
        request.inputs["x"].tensor_shape.dim.add(size=size)
    answers, bodies = [], []
    async with own_channel(await mesh.router.address("tfs-grpc")) as channel:
        for size in (LIMIT, LIMIT + 1):
            payload = _padded(request.SerializeToString(), size)
            answers.append(await _code(channel.unary_unary(PREDICT)(payload, timeout=TIMEOUT_S)))
            body = json.dumps({"instances": [[1, 1]]}).encode().ljust(size)
            bodies.append((await mesh.rest(f"/v1/models/{model.name}:predict", body)).status)

    assert answers == [grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED]
    assert bodies == [200, 413]


def _padded(message: bytes, size: int) -> bytes:
    """A message of exactly that many bytes, by a field that nobody knows: 100, whose key and length take 5 bytes."""
    filling = size - len(message) - 5
    return (
        message
        + b"\xa2\x06"
        + (b"%c%c%c" % (filling & 127 | 128, filling >> 7 & 127 | 128, filling >> 14))
        + bytes(filling)
    )


async def _code(call: Any) -> grpc.StatusCode:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def test_what_would_grow_beyond_measure_is_refused_before_it_grows(mesh: RouterMesh, model: Model) -> None:
    bomb = gzip.compress(bytes(BOMB_BYTES), 1)
    huge = {"name": "x", "datatype": "FP32", "shape": [1 << 40, 1 << 40], "data": [1.0]}
    wide = pb.ModelInferRequest(model_name=model.name, inputs=[{k: v for k, v in huge.items() if k != "data"}])
    wide.raw_input_contents.append(bytes(8))
    before = resident_bytes(mesh)
    attempts: list[tuple[str, Callable[[], Any]]] = [
        ("a gzip bomb", lambda: model.rest(bomb, headers={"Content-Encoding": "gzip"})),
        ("a product that overflows", lambda: model.rest({"inputs": [huge]})),
        ("brackets", lambda: model.rest(b"[" * 100_000)),
        ("brackets in data", lambda: model.rest(b'{"inputs": [{"data": ' + b"[" * 100_000)),
        ("a product that overflows, over gRPC", lambda: mesh.call(wide)),
    ]
    for name, attempt in attempts:
        began = time.perf_counter()
        answer = await attempt()
        took_s = time.perf_counter() - began

        refused = {getattr(answer, "status", 0), getattr(answer, "code", None)}
        assert refused & {400, 413, grpc.StatusCode.INVALID_ARGUMENT}, (name, answer)
        assert took_s < PROMPT_S, (name, took_s)
    assert resident_bytes(mesh) - before < GROWTH_BYTES


@pytest.mark.parametrize("rank", [0, 1, 8])
async def test_any_number_of_dimensions_goes_there_and_back(mesh: RouterMesh, rank: int) -> None:
    spec = ("x", "FP32", (-1,) * rank)
    model = await mesh.model(spec={}, signature=signature([spec], [("y", *spec[1:])], batches=rank > 0))
    shape = [2, *[1] * (rank - 2), 3][:rank]
    values = [float(number) for number in range(math.prod(shape))]
    tensor: dict[str, Any] = {"name": "x", "datatype": "FP32", "shape": shape}

    request = pb.ModelInferRequest(model_name=model.name, inputs=[tensor], raw_input_contents=[floats(*values)])
    answer = await mesh.call(request)
    rest = await model.rest({"inputs": [{**tensor, "data": values}]})

    assert answer.response is not None, answer.message
    assert (list(answer.response.outputs[0].shape), answer.response.raw_output_contents[0]) == (shape, floats(*values))
    assert (rest.body["outputs"][0]["shape"], rest.body["outputs"][0]["data"]) == (shape, values)


def resident_bytes(mesh: RouterMesh) -> int:
    with open(f"/proc/{mesh.router.pid}/statm") as pages:  # noqa: PTH123
        return int(pages.read().split()[1]) * 4096
