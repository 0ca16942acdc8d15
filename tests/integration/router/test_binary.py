"""The binary tensor extension over REST: tensors behind the JSON, bodies that are one tensor, and faults of both."""

import asyncio
import json
import struct
import time
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple

import aiohttp
import pytest
import pytest_asyncio

from services.core.tensor import encode_bytes
from tests.support.puppets import Spec, floats, signature
from tests.support.router_mesh import TIMEOUT_S, Model, RouterMesh, router_mesh

pytestmark = pytest.mark.asyncio(loop_scope="module")

LENGTH = "Inference-Header-Content-Length"
ANY: Sequence[Spec] = (("x", "FP32", (-1, -1)),)
DATA = floats(1.5, -2.0)
ROW = {"name": "x", "datatype": "FP32", "shape": [1, 2]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RouterMesh]:
    async with router_mesh(tmp_path_factory.mktemp("router"), "native") as mesh:
        yield mesh


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def echo(mesh: RouterMesh) -> Model:
    """FP32 [-1, 2] x -> y."""
    return await mesh.model()


class Got(NamedTuple):
    status: int
    said: Any  # the JSON part
    behind: bytes
    headers: Mapping[str, str]


async def post(mesh: RouterMesh, model: str, body: bytes, headers: Mapping[str, str]) -> Got:
    url = f"http://{mesh.rest_address}/v2/models/{model}/infer"
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.post(url, data=body, headers=headers) as answer,
    ):
        got = await answer.read()
        length = int(answer.headers.get(LENGTH, len(got)))
        return Got(answer.status, json.loads(got[:length]), got[length:], answer.headers)


async def ask(model: Model, said: Any, behind: bytes = b"", headers: Mapping[str, str] | None = None) -> Got:
    text = json.dumps(said).encode()
    return await post(model.mesh, model.name, text + behind, {LENGTH: str(len(text)), **(headers or {})})


def binary(size: int, **fields: Any) -> dict[str, Any]:
    return {**ROW, **fields, "parameters": {"binary_data_size": size}}


async def test_tensors_travel_behind_the_json_in_both_directions(echo: Model) -> None:
    for _ in range(3):  # the second time the JSON is known
        got = await ask(echo, {"inputs": [binary(8)], "parameters": {"binary_data_output": True}}, DATA)

        output = {"name": "y", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}
        assert (got.status, got.behind) == (200, DATA)
        assert got.said == {"model_name": echo.name, "model_version": "1", "outputs": [output]}
        assert got.headers["Content-Type"] == "application/octet-stream"
        assert got.headers["turnout-arm"] == "stable"


async def test_outputs_come_as_they_were_asked_for(echo: Model) -> None:
    for parameters, asked, is_binary in (
        ({}, None, False),
        ({}, True, True),
        ({"binary_data_output": True}, False, False),
        ({"binary_data_output": False}, True, True),
    ):
        wanted = {"name": "y", "parameters": {"binary_data": asked}} if asked is not None else {"name": "y"}
        said = {"inputs": [binary(8)], "outputs": [wanted], "parameters": parameters, "id": "i-1"}

        got = await ask(echo, said, DATA, {"x-request-id": "r-1", "turnout-timing": "1"})

        assert (LENGTH in got.headers, got.said["id"]) == (is_binary, "i-1")
        assert (got.headers["x-request-id"], "total;dur=" in got.headers["Server-Timing"]) == ("r-1", True)
        if is_binary:
            assert got.behind == DATA
        else:
            assert got.said["outputs"][0]["data"] == [1.5, -2.0]


async def test_json_and_binary_inputs_may_be_mixed_and_every_datatype_travels(mesh: RouterMesh) -> None:
    inputs: Sequence[Spec] = (("a", "FP16", (-1,)), ("b", "BYTES", (-1,)), ("c", "INT64", (-1,)), ("d", "BF16", (-1,)))
    outputs = [(f"y{number or ''}", datatype, shape) for number, (_, datatype, shape) in enumerate(inputs)]
    model = await mesh.model(signature=signature(inputs, outputs))
    text = encode_bytes([b"a\0", b"\xff"])
    blobs = [b"\0\x3c\0\xc0", text, b"\x80\x3f\0\xc0"]
    said = {
        "inputs": [
            {"name": "a", "datatype": "FP16", "shape": [2], "parameters": {"binary_data_size": 4}},
            {"name": "b", "datatype": "BYTES", "shape": [2], "parameters": {"binary_data_size": len(text)}},
            {"name": "c", "datatype": "INT64", "shape": [2], "data": [(1 << 53) + 1, -1]},
            {"name": "d", "datatype": "BF16", "shape": [2], "parameters": {"binary_data_size": 4}},
        ],
        "parameters": {"binary_data_output": True},
        "outputs": [{"name": f"y{n or ''}", "parameters": {"binary_data": n != 2}} for n in range(4)],
    }

    got = await ask(model, said, b"".join(blobs))

    assert (got.status, got.behind) == (200, b"".join(blobs)), got
    assert got.said["outputs"][2]["data"] == [(1 << 53) + 1, -1]
    refused = await ask(model, {**said, "outputs": []} | {"parameters": {}}, b"".join(blobs))
    assert (refused.status, refused.said["error"]) == (
        400,
        "output 'y' is FP16, which has no JSON form: ask for it as binary data",
    )


FAULTS = [
    ({"inputs": [binary(8)]}, DATA[:-1], None, "binary_data_size is 8, but 7 bytes are left of the body"),
    ({"inputs": [binary(8)]}, DATA + b"x", None, "1 bytes are left behind the last tensor"),
    ({"inputs": [binary(4)]}, DATA[:4], None, "'x': has 4 bytes, but FP32 of shape [1, 2] takes 8 (2 x 4)"),
    ({"inputs": [binary(-1)]}, DATA, None, "binary_data_size is -1; it takes a whole number of bytes"),
    ({"inputs": [binary("8")]}, DATA, None, "binary_data_size is '8'; it takes"),  # type: ignore[arg-type]
    ({"inputs": [binary(8, data=[1, 2])]}, DATA, None, "both data and binary_data_size"),
    ({"inputs": [ROW]}, b"", None, "input 'x' has no data"),
    ({"inputs": [binary(8)]}, DATA, "9999", f"{LENGTH} is 9999, but the body has"),
    ({"inputs": [binary(8)]}, DATA, "-1", f"{LENGTH} is '-1'; it takes the number of bytes of JSON"),
    ({"inputs": [binary(8)]}, DATA, "ten", f"{LENGTH} is 'ten'"),
    ({"inputs": [binary(8)]}, DATA, "", f"{LENGTH} is ''"),
    ({"inputs": [binary(8)]}, DATA, "5", "the body is not JSON"),
    ({"inputs": [binary(8)], "parameters": {"binary_data_output": 1}}, DATA, None, "'binary_data_output' is '1'"),
    (
        {"inputs": [binary(8)], "outputs": [{"name": "y", "parameters": {"binary_data": "yes"}}]},
        DATA,
        None,
        "output 'y'",
    ),
    ({"inputs": [binary(8)], "outputs": [{"name": "z"}]}, DATA, None, "has no output 'z'; its outputs are y"),
]


async def test_what_is_wrong_is_named(echo: Model) -> None:
    for said, behind, length, says in FAULTS:
        for _ in range(2):
            got = await ask(echo, said, behind, {} if length is None else {LENGTH: length})
            assert (got.status, says in str(got.said.get("error"))) == (400, True), (says, got)
    without = await echo.rest({"inputs": [binary(8)]})
    assert (without.status, f"no header field {LENGTH}" in without.body["error"]) == (400, True)


async def test_a_body_may_be_one_tensor(mesh: RouterMesh, echo: Model) -> None:
    for data in (DATA, DATA, floats(7.0, 8.0)):
        got = await post(mesh, echo.name, data, {LENGTH: "0"})
        assert (got.status, got.behind, got.said["outputs"][0]["shape"]) == (200, data, [1, 2])

    wide = await mesh.model(signature=signature(ANY, (("y", "FP32", (-1, -1)),)))
    for count in (1, 5):
        got = await post(mesh, wide.name, floats(*range(count)), {LENGTH: "0"})
        assert (got.status, got.said["outputs"][0]["shape"]) == (200, [1, count])
    texts = await mesh.model(signature=signature((("x", "BYTES", (-1, 1)),), (("y", "BYTES", (-1, 1)),)))
    got = await post(mesh, texts.name, b"a\0b", {LENGTH: "0"})
    assert (got.status, got.behind) == (200, encode_bytes([b"a\0b"]))


async def test_a_body_that_is_no_tensor_of_the_model_is_refused(mesh: RouterMesh, echo: Model) -> None:
    two = await mesh.model(signature=signature((("a", "FP32", (-1, 2)), ("b", "FP32", (-1, 2)))))
    open_ended = await mesh.model(signature=signature((("x", "FP32", (-1, -1, -1)),)))
    wide = await mesh.model(signature=signature(ANY, (("y", "FP32", (-1, -1)),)))

    for model, says in (
        (echo, "'x': has 7 bytes, but FP32 of shape [1, 2] takes 8 (2 x 4)"),
        (two, "needs a model with one input; those of model"),
        (open_ended, "2 dimensions of x FP32[-1, -1, -1] of model"),
        (wide, "7 bytes are no tensor x FP32[-1, -1] of model"),
    ):
        got = await post(mesh, model.name, DATA[:-1], {LENGTH: "0"})
        assert (got.status, says in got.said["error"]) == (400, True), got


async def test_large_tensors_and_compressed_bodies(mesh: RouterMesh) -> None:
    model = await mesh.model(signature=signature(ANY, (("y", "FP32", (-1, -1)),)))
    data = struct.pack("<200000f", *range(200_000))
    said = {
        "inputs": [{**binary(len(data)), "shape": [1, 200_000]}],
        "parameters": {"binary_data_output": True},
    }
    text = json.dumps(said).encode()

    for encoding, body in (("identity", text + data), ("deflate", zlib.compress(text + data, 1))):
        for _ in range(2):
            headers = {LENGTH: str(len(text)), "Content-Encoding": encoding, "Accept-Encoding": encoding}
            got = await post(mesh, model.name, body, headers)
            assert (got.status, got.behind == data) == (200, True)


async def test_known_bodies_are_judged_as_unknown_ones_are(echo: Model) -> None:
    """What is remembered of a body never answers for another one."""
    good = {**ROW, "data": [1, 2]}
    for _ in range(2):
        assert (await echo.rest({"inputs": [good]})).body["outputs"][0]["data"] == [1.0, 2.0]
        assert (await echo.rest({"inputs": [{**good, "data": [[3, 4]]}]})).body["outputs"][0]["data"] == [3.0, 4.0]
    for change, says in (
        ({"data": [1, 2, 3]}, "3 elements, but shape [1, 2] takes 2"),
        ({"data": [1, "a"]}, "must be real number"),
        ({"data": [[1], 2]}, "different depths"),
        ({"shape": [1.0, 2]}, "whole numbers"),
        ({"shape": [True, 2]}, "whole numbers"),
        ({"datatype": "FP64"}, "is FP32, not FP64"),
        ({"name": "z"}, "has no input 'z'"),
    ):
        got = await echo.rest({"inputs": [{**good, **change}]})
        assert (got.status, says in got.body["error"]) == (400, True), got


async def test_requests_at_once_on_many_connections_get_their_own_answers(echo: Model) -> None:
    said = {"inputs": [binary(8)], "parameters": {"binary_data_output": True}}

    answers = await asyncio.gather(*(ask(echo, said, floats(n, -n)) for n in range(150)))

    assert [answer.behind for answer in answers] == [floats(n, -n) for n in range(150)]


def bomb(encoding: str) -> bytes:
    """A megabyte that is a gigabyte; its checksum, behind what anybody inflates, is wrong."""
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = stream.compress(bytes(1 << 24)) + stream.flush(zlib.Z_FULL_FLUSH)
    end = b"\x03\0"
    if encoding == "gzip":
        return b"\x1f\x8b\x08" + bytes(7) + block * 64 + end + struct.pack("<II", 0, 1 << 30)
    return b"\x78\xda" + block * 64 + end + bytes(4)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_bomb_is_refused_at_once(mesh: RouterMesh, echo: Model, encoding: str) -> None:
    body = bomb(encoding)
    assert 1 << 19 < len(body) < 1 << 21
    before = time.perf_counter()

    got = await post(mesh, echo.name, body, {"Content-Encoding": encoding})
    took_s = time.perf_counter() - before

    assert (got.status, "larger than 67108864 bytes" in got.said["error"]) == (413, True)
    assert took_s < 5  # and not the seconds that a gigabyte takes a busy machine
