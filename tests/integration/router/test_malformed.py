"""Faulty requests at both doors: each has its code, says what would be right, and harms nobody after it."""

import gzip
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import grpc
import pytest

from inference import grpc_service_pb2 as pb
from tests.support.puppets import floats
from tests.support.router_mesh import Answer, Model, RestAnswer, RouterMesh, infer_request, rest_request

pytestmark = pytest.mark.asyncio(loop_scope="module")

INVALID, NOT_FOUND = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
Input = tuple[str, str, Sequence[int], Sequence[float]]
GOOD: Input = ("x", "FP32", [1, 2], [1.0, 1.0])


class Fault(NamedTuple):
    """A request with one fault, for both protocols."""

    name: str
    says: str
    inputs: Sequence[Input] = (GOOD,)
    outputs: Sequence[str] = ()
    model: str = ""
    version: str = ""
    code: grpc.StatusCode = INVALID
    status: int = 400
    parameters: dict[str, Any] | None = None


FAULTS = (
    Fault("dtype", "'x' of model {} is FP32, not FP64", [("x", "FP64", [1, 2], [1.0, 1.0])]),
    Fault("rank", "has shape [-1, 2] (-1 = any), not [2]", [("x", "FP32", [2], [1.0, 1.0])]),
    Fault("dimension", "has shape [-1, 2] (-1 = any), not [1, 3]", [("x", "FP32", [1, 3], [1.0, 1.0, 1.0])]),
    Fault("negative dimension", "negative", [("x", "FP32", [-1, 2], [1.0, 1.0])]),
    Fault("overflowing shape", "over the limit of", [("x", "FP32", [1 << 40, 2], [1.0])]),
    Fault("name", "has no input 'z'; its inputs are x FP32[-1, 2]", [("z", "FP32", [1, 2], [1.0, 1.0])]),
    Fault("duplicate", "'x' is given twice", [GOOD, GOOD]),
    Fault("missing", "needs input 'x' too; its inputs are x FP32[-1, 2]", []),
    Fault("too many rows", "65 rows in one request; model {} takes at most 64", [("x", "FP32", [65, 2], [1.0] * 130)]),
    Fault("output", "has no output 'z'; its outputs are y", outputs=["z"]),
    Fault("model", "model 'nobody' is unknown; known are ", model="nobody", code=NOT_FOUND, status=404),
    Fault("version", "has no version 7; its versions are 1", version="7", code=NOT_FOUND, status=404),
    Fault("label", "has no version or label 'best'; its labels are none", version="best", code=NOT_FOUND, status=404),
    Fault("priority", "parameter 'priority' is -1; it takes a whole number", parameters={"priority": -1}),
    Fault("timeout", "parameter 'timeout' is True; it takes a whole number", parameters={"timeout": True}),
)


@pytest.fixture(scope="module")
def ids() -> dict[str, Model]:
    return {}


async def model_of(mesh: RouterMesh, known: dict[str, Model]) -> Model:
    """One model for all faults of one router."""
    if mesh.grpc_address not in known:
        known[mesh.grpc_address] = await mesh.model()
    return known[mesh.grpc_address]


def as_message(fault: Fault, model: str) -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(model_name=fault.model or model, model_version=fault.version)
    for name, datatype, shape, values in fault.inputs:
        request.inputs.add(name=name, datatype=datatype, shape=shape)
        request.raw_input_contents.append(floats(*values))
    for name in fault.outputs:
        request.outputs.add(name=name)
    for name, value in (fault.parameters or {}).items():
        field = "bool_param" if isinstance(value, bool) else "int64_param"
        setattr(request.parameters[name], field, value)
    return request


def as_json(fault: Fault) -> dict[str, Any]:
    inputs = [{"name": n, "datatype": d, "shape": s, "data": v} for n, d, s, v in fault.inputs]
    outputs = [{"name": name} for name in fault.outputs]
    return {"inputs": inputs, "outputs": outputs, "parameters": fault.parameters}


async def check_next(model: Model) -> None:
    assert (await model.call(3.0)).code == grpc.StatusCode.OK
    assert (await model.rest(rest_request(3.0))).status == 200


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_a_fault_is_named_with_what_would_be_right(mesh: RouterMesh, ids: dict[str, Model], fault: Fault) -> None:
    model = await model_of(mesh, ids)
    asked = len(model.batcher.requests)

    answer = await mesh.call(as_message(fault, model.name))
    version = f"/versions/{fault.version}" if fault.version else ""
    rest = await mesh.rest(f"/v2/models/{fault.model or model.name}{version}/infer", as_json(fault))

    says = fault.says.format(model.name)
    assert (answer.code, says in answer.message) == (fault.code, True), answer.message
    if fault.name not in {"negative dimension", "overflowing shape"}:  # where JSON's element count speaks first
        assert says in rest.body["error"]
    assert rest.status == fault.status, rest.body
    assert len(model.batcher.requests) == asked
    await check_next(model)


def bytes_short(model: str) -> bytes:
    request = infer_request(model, 1.0)
    request.raw_input_contents[0] = request.raw_input_contents[0][:-1]
    return request.SerializeToString()


def raw_missing(model: str) -> bytes:
    request = infer_request(model, 1.0)
    request.inputs.append(request.inputs[0])
    return request.SerializeToString()


def raw_and_typed(model: str) -> bytes:
    request = infer_request(model, 1.0)
    request.inputs[0].contents.fp32_contents.extend([1.0, 1.0])
    return request.SerializeToString()


def truncated(model: str) -> bytes:
    return infer_request(model, 1.0).SerializeToString()[:-3]


def no_utf8(model: str) -> bytes:
    return b"\x0a\x02\xff\xfe" + infer_request(model, 1.0).SerializeToString()


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (bytes_short, "'x': has 7 bytes, but FP32 of shape [1, 2] takes 8 (2 x 4)"),
        (raw_missing, "1 raw_input_contents for 2 inputs: give one entry an input"),
        (raw_and_typed, "both contents and raw_input_contents"),
        (truncated, "was the message cut off?"),
        (no_utf8, "not an inference.ModelInferRequest"),
    ],
)
async def test_bytes_that_are_no_request_are_refused(
    mesh: RouterMesh, ids: dict[str, Model], payload: Any, says: str
) -> None:
    model = await model_of(mesh, ids)

    for _ in range(2):  # the second time its header is known
        answer = await mesh.call(payload(model.name))

        assert (answer.code, says in answer.message) == (INVALID, True), answer.message
    await check_next(model)


JSON_FAULTS = [
    (b"{", "the body is not JSON"),
    (b"[1]", 'the body is not an object; send {"inputs": [...]}'),
    (b"[" * 100_000, "the body is not JSON"),
    (b'{"inputs": [], "imputs": []}', "unknown field 'imputs'; a request has id, inputs, outputs, parameters"),
    (b'{"inputs": {}}', "inputs is not a list"),
    (b'{"id": 7}', "id is not text"),
    (b'{"id": "\\ud800"}', "the body is not JSON"),
    (b'{"inputs": [{"name": "\\ud800"}]}', "the body is not JSON"),
    (b'{"parameters": {"a": null}}', "parameter 'a' is neither text, number nor boolean"),
    (b'{"outputs": [{}]}', "outputs[0] has no name"),
    (b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1]}]}', "1 elements, but shape [1, 2]"),
    (b'{"inputs": [{"name": "x", "datatype": "F32", "shape": [1, 2], "data": [1]}]}', "datatype is 'F32'; known are"),
    (b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1.0], "data": [1]}]}', "a list of whole numbers"),
    (b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2]}]}', "input 'x' has no data"),
    (b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [[1], 2]}]}', "different depths"),
    (b"\xff\xfe", "the body is not JSON"),
    (b"", "the body is not JSON"),
    (b"9" * 5000, "the body is not JSON"),
]


@pytest.mark.parametrize(("body", "says"), JSON_FAULTS)
async def test_json_that_is_no_request_is_refused(
    mesh: RouterMesh, ids: dict[str, Model], body: bytes, says: str
) -> None:
    model = await model_of(mesh, ids)

    answer = await model.rest(body)

    assert (answer.status, says in answer.body["error"]) == (400, True), answer.body
    await check_next(model)


async def test_a_message_over_the_limit_is_refused_by_its_size(mesh: RouterMesh, ids: dict[str, Model]) -> None:
    model = await model_of(mesh, ids)
    request = infer_request(model.name, 1.0)
    request.raw_input_contents[0] = bytes(70 << 20)

    answer = await mesh.call(request)
    rest = await model.rest(b" " * (70 << 20))

    assert answer.code == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "bytes; this router takes 67108864" in answer.message
    assert (rest.status, "larger than 67108864 bytes" in rest.body["error"]) == (413, True), rest.body
    await check_next(model)


async def test_a_compressed_body_is_bounded_by_what_it_inflates_to(mesh: RouterMesh, ids: dict[str, Model]) -> None:
    model = await model_of(mesh, ids)
    headers = {"Content-Encoding": "gzip"}
    before = resident_bytes(mesh)

    good = await model.rest(gzip.compress(json.dumps(rest_request(1.0)).encode()), headers=headers)
    bomb = await model.rest(gzip.compress(bytes(256 << 20), 1), headers=headers)
    lie = await model.rest(b"{}", headers=headers)

    assert (good.status, bomb.status, lie.status) == (200, 413, 400), (good.body, bomb.body, lie.body)
    assert resident_bytes(mesh) - before < 160 << 20
    await check_next(model)


def resident_bytes(mesh: RouterMesh) -> int:
    with open(f"/proc/{mesh.router.pid}/status") as status:  # noqa: PTH123
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/models/{}/infer", 405),
        ("GET", "/nowhere", 404),
        ("GET", "/v2/models/%ff%fe", 404),
        ("GET", "/v2/models/..%2f..%2fetc", 404),
        ("GET", "/v2/models/{}/versions/9", 404),
        ("POST", "/v2/models/%F0%9F%98%80/infer", 400),
    ],
)
async def test_every_refusal_over_http_is_json_that_says_why(
    mesh: RouterMesh, ids: dict[str, Model], method: str, path: str, status: int
) -> None:
    model = await model_of(mesh, ids)

    answer = await mesh.rest(path.format(model.name), method=method)

    assert (answer.status, list(answer.body)) == (status, ["error"]), answer


async def test_odd_text_from_callers_comes_back_as_a_message_that_fits(mesh: RouterMesh, ids: dict[str, Model]) -> None:
    model = await model_of(mesh, ids)
    odd = ["\n\r\0\t%41", "模" * 2000, "é" * 200, "😀" * 500]

    answers: list[Answer] = [await mesh.call(infer_request(text, 1.0)) for text in odd]
    answers += [await model.call(version=text) for text in odd]
    rest: list[RestAnswer] = [await model.rest(rest_request(1.0, id=text)) for text in odd]

    assert {answer.code for answer in answers} == {NOT_FOUND}
    assert all(answer.message for answer in answers)
    assert [answer.body["id"] for answer in rest] == odd


async def test_headers_with_any_bytes_harm_nobody(mesh: RouterMesh, ids: dict[str, Model]) -> None:
    model = await model_of(mesh, ids)
    headers = dict.fromkeys(("x-request-id", "x-routing-key", "traceparent", "turnout-timing"), "��")

    answer = await model.rest(rest_request(1.0), headers=headers)
    timeout = await model.rest(rest_request(1.0), headers={"X-Request-Timeout-Ms": "soon"})

    assert answer.status == 200, answer.body
    assert (timeout.status, "takes milliseconds" in timeout.body["error"]) == (400, True)
    await check_next(model)
