"""Requests through a real router, and their answers."""

import asyncio

import aiohttp
import grpc
import grpc.aio
import pytest

from inference import grpc_service_pb2 as pb
from tests.support.puppets import X, echo, floats, signature
from tests.support.router_mesh import TIMEOUT_S, RouterMesh, infer_request, rest_request, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

OK, UNAVAILABLE = grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE


async def test_an_answer_has_the_outputs_the_version_and_the_id(mesh: RouterMesh) -> None:
    model = await mesh.model("3")
    request = infer_request(model.name, 1.5, 2.5)
    request.id = "a-1"

    for asked in (request, infer_request(model.name, 1.5, 2.5), infer_request(model.name, 1.5, 2.5)):
        answer = await mesh.call(asked)

        assert answer.code == OK
        response = answer.response
        assert response is not None
        assert (response.model_name, response.model_version, response.id) == (model.name, "3", asked.id)
        assert [(o.name, o.datatype, list(o.shape)) for o in response.outputs] == [("y", "FP32", [2, 2])]
        assert list(response.raw_output_contents) == [floats(1.5, 1.5, 2.5, 2.5)]


async def test_the_same_over_rest(mesh: RouterMesh) -> None:
    model = await mesh.model("3")

    answer = await model.rest(rest_request(1.5, 2.5, id="a-1"))

    output = {"name": "y", "datatype": "FP32", "shape": [2, 2], "data": [1.5, 1.5, 2.5, 2.5]}
    assert answer.body == {"model_name": model.name, "model_version": "3", "id": "a-1", "outputs": [output]}


async def test_typed_contents_reach_the_batcher_as_raw_bytes(mesh: RouterMesh) -> None:
    model = await mesh.model(signature=signature([("x", "INT64", [-1])], [("y", "INT64", [-1])]))
    request = pb.ModelInferRequest(model_name=model.name)
    tensor = request.inputs.add(name="x", datatype="INT64", shape=[2])
    tensor.contents.int64_contents.extend([-1, 1 << 62])

    answer = await mesh.call(request)

    assert answer.response is not None
    assert answer.response.raw_output_contents[0] == (-1).to_bytes(8, "little", signed=True) + (1 << 62).to_bytes(
        8, "little"
    )


async def test_what_the_caller_asked_for_reaches_the_batcher(mesh: RouterMesh) -> None:
    model = await mesh.model(signature=signature([X], [("y", "FP32", (-1, 2)), ("z", "FP32", (-1, 2))]))
    request = infer_request(model.name, 1.0)
    request.outputs.add(name="z")
    request.parameters["priority"].uint64_param = 2
    request.parameters["timeout"].int64_param = 5000
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    await mesh.call(request, timeout_s=5, metadata=[("traceparent", trace)])
    await model.rest(
        rest_request(1.0, outputs=[{"name": "z"}], parameters={"priority": 2, "timeout": 5000}),
        headers={"X-Request-Timeout-Ms": "5000"},
    )

    for sent in model.batcher.requests:
        assert (list(sent.outputs), sent.priority, sent.queue_timeout_us, sent.rows) == (["z"], 2, 5000, 1)
        assert 3_000_000 < sent.deadline_us < 5_100_000  # gRPC rounds up
    assert len(model.batcher.requests) == 2


async def test_a_signature_is_asked_for_by_a_parameter(mesh: RouterMesh) -> None:
    several = signature()
    several.name = "serving_default"
    several.more.add().CopyFrom(signature([("x", "FP32", (-1, 1))], [("y", "FP32", (-1, 1))]))
    several.more[0].name = "halves"
    model = await mesh.model(signature=several)
    request = infer_request(model.name, 1.0)
    asked = request.parameters["signature_name"]
    asked.string_param = "halves"
    faults = [(await mesh.call(request)).message]
    asked.string_param = "quarters"
    faults.append((await mesh.call(request)).message)
    asked.int64_param = 1
    faults.append((await mesh.call(request)).message)
    asked.string_param = "halves"
    request.inputs[0].shape[:] = [2, 1]
    halves = await mesh.call(request)
    usual = rest_request(1.0, parameters={"signature_name": "serving_default"})
    assert (await model.rest(usual)).status == 200

    assert halves.code == OK
    assert faults == [
        f"input 'x' of model {model.name} (halves) has shape [-1, 1] (-1 = any), not [1, 2]",
        "signature 'quarters' is asked for; there is: serving_default, halves",
        "parameter 'signature_name' is 1; it takes the name of a signature",
    ]
    assert [(sent.signature_name, sent.rows) for sent in model.batcher.requests] == [("halves", 2), ("", 1)]


async def test_arm_timing_and_request_id_come_with_the_answer(mesh: RouterMesh) -> None:
    model = await mesh.model()
    asked = [("turnout-timing", "1"), ("x-request-id", "r-7")]

    plain = await model.call()
    timed = await model.call(metadata=asked)
    rest = await model.rest(rest_request(1.0), headers=dict(asked))

    assert {"turnout-arm": "stable"}.items() <= plain.trailing.items()
    assert "turnout-timing" not in plain.trailing
    assert (timed.trailing["x-request-id"], rest.headers["x-request-id"]) == ("r-7", "r-7")
    assert rest.headers["turnout-arm"] == "stable"
    for text in (timed.trailing["turnout-timing"], rest.headers["Server-Timing"]):
        stages = dict(part.split(";dur=") for part in text.split(", "))
        assert list(stages) == (
            [
                "parse",
                "auth",
                "route",
                "features",
                "link",
                "queue",
                "assemble",
                "worker_wait",
                "h2d",
                "compute",
                "d2h",
                "scatter",
                "serialize",
                "total",
            ]
        )
        parts = sum(float(value) for name, value in stages.items() if name != "total")
        assert parts == pytest.approx(float(stages["total"]), abs=0.05 * float(stages["total"]) + 0.05)


async def test_the_callers_own_internal_headers_mean_nothing(mesh: RouterMesh) -> None:
    model = await mesh.model("1", "2", spec={"default_version": "1"})
    forged = [("turnout-arm", "canary"), ("turnout-version", "2"), ("turnout-shadow", "1")]

    answer = await model.call(metadata=forged)

    assert answer.trailing["turnout-arm"] == "stable"
    assert not model.batcher.requests[-1].shadow


async def test_metadata_and_readiness_by_both_protocols(mesh: RouterMesh) -> None:
    model = await mesh.model("1", "10")
    stub = mesh.stub

    live = await stub.ServerLive(pb.ServerLiveRequest(), timeout=TIMEOUT_S)
    ready = await stub.ServerReady(pb.ServerReadyRequest(), timeout=TIMEOUT_S)
    server = await stub.ServerMetadata(pb.ServerMetadataRequest(), timeout=TIMEOUT_S)
    metadata = await stub.ModelMetadata(pb.ModelMetadataRequest(name=model.name), timeout=TIMEOUT_S)
    rest = await mesh.rest(f"/v2/models/{model.name}", method="GET")

    assert (live.live, ready.ready, server.name) == (True, True, "turnout")
    described = [("x", "FP32", [-1, 2])]
    assert [(i.name, i.datatype, list(i.shape)) for i in metadata.inputs] == described
    assert (metadata.name, list(metadata.versions), metadata.platform) == (model.name, ["1", "10"], "puppet")
    assert rest.body == {
        "name": model.name,
        "versions": ["1", "10"],
        "platform": "puppet",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
    }
    for path, status in [
        ("/v2", 200),
        ("/v2/health/live", 200),
        ("/v2/health/ready", 200),
        (f"/v2/models/{model.name}/ready", 200),
        (f"/v2/models/{model.name}/versions/10/ready", 200),
        (f"/v2/models/{model.name}/versions/7/ready", 404),
        ("/v2/models/nobody/ready", 404),
    ]:
        assert ((await mesh.rest(path, method="GET")).status, path) == (status, path)
    assert model.name in (await mesh.rest("/v2/models", method="GET")).body["models"]


async def test_readiness_tells_unknown_from_unready(mesh: RouterMesh) -> None:
    model = await mesh.model("1", "2", spec={"default_version": "1"})
    model.batcher.drop(model.name, "1")
    await mesh.put("status/runtime/r/inventory", {"models": {model.name: {"1": {"state": "LOADING"}}}})
    ask = mesh.stub.ModelReady

    async def is_unready() -> bool:
        return (await model.call(version="1")).code == UNAVAILABLE

    await until("version 1 is unready", is_unready)
    codes = []
    for version in ("", "1", "2", "3"):
        call = ask(pb.ModelReadyRequest(name=model.name, version=version), timeout=TIMEOUT_S)
        codes.append(await call.code())
    await mesh.etcd.delete("status/runtime/r/inventory")

    assert codes == [UNAVAILABLE, UNAVAILABLE, OK, grpc.StatusCode.NOT_FOUND]
    assert (await mesh.rest(f"/v2/models/{model.name}/ready", method="GET")).status == 503


@pytest.mark.parametrize(("megabytes", "times"), [(5, 2), (60, 1)])
async def test_large_tensors_pass(mesh: RouterMesh, megabytes: int, times: int) -> None:
    rows = megabytes << 17
    spec = {"limits": {"max_request_rows": rows}, "default_deadline_ms": 90_000}
    model = await mesh.model(spec=spec, max_request_rows=rows)
    request = infer_request(model.name)
    request.inputs[0].shape[0] = rows
    request.raw_input_contents[0] = bytes(range(256)) * (megabytes << 12)

    answers = [await mesh.call(request, timeout_s=90) for _ in range(times)]

    expected = request.raw_input_contents[0]
    assert [(a.code, a.message) for a in answers] == [(OK, "")] * times
    assert [a.response.raw_output_contents[0] == expected for a in answers if a.response] == [True] * times


async def test_small_requests_do_not_wait_behind_large_ones(mesh: RouterMesh) -> None:
    rows = 20 << 17
    model = await mesh.model(spec={"limits": {"max_request_rows": rows}}, max_request_rows=rows)
    large = infer_request(model.name)
    large.inputs[0].shape[0] = rows
    large.raw_input_contents[0] = bytes(8 * rows)
    model.batcher.answer = lambda request: {**(echo(request) or {}), "outputs": []}
    calls = [asyncio.create_task(mesh.call(large)) for _ in range(3)]
    small = [await model.call() for _ in range(50)]

    assert {answer.code for answer in [*small, *await asyncio.gather(*calls)]} == {OK}


async def test_text_tensors_are_checked_each_time(mesh: RouterMesh) -> None:
    model = await mesh.model(signature=signature([("x", "BYTES", [-1])], [("y", "BYTES", [-1])]))
    request = pb.ModelInferRequest(model_name=model.name, raw_input_contents=[b"\x02\0\0\0ab"])
    request.inputs.add(name="x", datatype="BYTES", shape=[1])
    assert [(await mesh.call(request)).code for _ in range(2)] == [OK, OK]

    request.raw_input_contents[0] = b"\x03\0\0\0ab"
    answer = await mesh.call(request)

    assert answer.code == grpc.StatusCode.INVALID_ARGUMENT
    assert "BYTES element 0 at offset 0: its length 3 reaches 1 bytes past the end" in answer.message


async def test_a_thousand_connections_of_garbage_leave_the_rest_door_open(mesh: RouterMesh) -> None:
    model = await mesh.model()
    host, port = mesh.rest_address.split(":")
    junk = [
        b"\x16\x03\x01" + bytes(range(256)),
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v2 HTTP/1.1\r\nContent-Length: 99\r\n\r\n{",
    ]
    junk += [b"A" * 20_000, b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nX: \x00\xff\r\n\r\n"]

    async def bother(number: int) -> None:
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(junk[number % len(junk)])
        await writer.drain()
        writers.append(writer)

    writers: list[asyncio.StreamWriter] = []
    for start in range(0, 1000, 100):
        await asyncio.gather(*(bother(number) for number in range(start, start + 100)))
    answer = await model.rest(rest_request(1.0))
    for writer in writers:
        writer.close()

    assert (answer.status, answer.took_s < 2) == (200, True)
    assert (await model.call()).code == OK


async def test_many_requests_at_once_each_get_their_own_answer(mesh: RouterMesh) -> None:
    model = await mesh.model()
    await model.second_batcher()

    answers = await asyncio.gather(*(model.call(float(n), *[0.0] * (n % 7)) for n in range(400)))
    async with aiohttp.ClientSession() as session:

        async def by_rest(number: int) -> float:
            url = f"http://{mesh.rest_address}/v2/models/{model.name}/infer"
            async with session.post(url, json=rest_request(float(number))) as response:
                return float((await response.json())["outputs"][0]["data"][0])

        rest = await asyncio.gather(*map(by_rest, range(200)))

    assert [a.response.raw_output_contents[0][:8] for a in answers if a.response] == [floats(n, n) for n in range(400)]
    assert rest == list(range(200))


async def test_the_counts_are_what_callers_got(mesh: RouterMesh) -> None:
    model = await mesh.model()
    for _ in range(5):
        await model.call()
    await model.rest(rest_request(1.0))
    await model.call(version="9")
    await mesh.call(infer_request("nobody-counts-me", 1.0))

    counted = {code: await mesh.metric("turnout_requests_total", model=model.name, code=code) for code in ("0", "5")}
    stages = await mesh.metric("turnout_stage_seconds_count", model=model.name, stage="total")

    assert counted == {"0": 6, "5": 1}
    assert stages == 6
    assert await mesh.metric("turnout_requests_total", model="nobody-counts-me") == 0


async def test_the_native_front_tells_its_own_time_of_a_call(mesh: RouterMesh, request: pytest.FixtureRequest) -> None:
    model = await mesh.model("1")
    before = await mesh.metric("turnout_front_seconds_count", code="0")
    expected = before + ("native" in request.node.callspec.id)

    await mesh.call(infer_request(model.name, 1.0))

    async def is_counted() -> bool:
        return await mesh.metric("turnout_front_seconds_count", code="0") == expected

    await until("the front has counted the call", is_counted)
