"""TensorFlow Serving's protocols on a real router, with batchers that echo."""

import asyncio
import json
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import grpc
import pytest
import pytest_asyncio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.core.tensor import encode_bytes
from tests.support.channels import own_channel
from tests.support.puppets import floats, refuse, signature, silence
from tests.support.reflecting import services
from tests.support.router_mesh import RestAnswer, RouterMesh, until
from tests.support.tfs_calls import TfsCalls, predict_request
from turnout.tfserving import model_service_pb2 as service_pb
from turnout.tfserving import prediction_service_pb2 as pb
from turnout.v1 import link_pb2, tensor_pb2

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMIT = 1 << 20
SETTINGS = {
    "tfs_grpc_address": "127.0.0.1:0",
    "tfs_rest_address": "127.0.0.1:0",
    "max_message_bytes": LIMIT,
}
PREDICT, CLASSIFY, REGRESS = "PredictionService/Predict", "PredictionService/Classify", "PredictionService/Regress"
STATUS, METADATA = "ModelService/GetModelStatus", "PredictionService/GetModelMetadata"
CODE = grpc.StatusCode


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def calls(mesh: RouterMesh) -> AsyncIterator[TfsCalls]:
    async with TfsCalls(await mesh.router.address("tfs-grpc")) as calls:
        yield calls


async def v1(mesh: RouterMesh, path: str, body: Any = None, **headers: str) -> RestAnswer:
    return await mesh.rest(f"/v1/models/{path}", body, method="GET" if body is None else "POST", headers=headers)


def classes_and_scores(request: link_pb2.Request) -> dict[str, Any]:
    rows = request.rows
    scores = tensor_pb2.Tensor(name="scores", datatype="FP32", shape=[rows, 2], data=floats(*[0.25, 0.75] * rows))
    classes = tensor_pb2.Tensor(
        name="classes", datatype="BYTES", shape=[rows, 2], data=encode_bytes([b"cat", b"dog"] * rows)
    )
    value = tensor_pb2.Tensor(name="outputs", datatype="FP32", shape=[rows, 1], data=floats(*range(rows)))
    return {"outputs": [scores, classes, value]}


async def test_row_column_and_grpc_give_the_same_numbers(mesh: RouterMesh, calls: TfsCalls) -> None:
    model = await mesh.model()

    rows = await v1(mesh, f"{model.name}:predict", {"instances": [[1.5, 1.5], [2, 2]]})
    named = await v1(mesh, f"{model.name}/versions/1:PREDICT", {"instances": [{"x": [1.5, 1.5]}, {"x": [2, 2]}]})
    columns = await v1(mesh, f"{model.name}:predict", {"inputs": [[1.5, 1.5], [2, 2]]}, **{"turnout-timing": "1"})
    answers = [
        await calls.ask(PREDICT, predict_request(model.name, 1.5, 2, content=content, signature_name=name))
        for content in (True, False)
        for name in ("", "serving_default")
        for _ in range(2)  # the second is known by its header
    ]

    expected = [[1.5, 1.5], [2.0, 2.0]]
    assert (rows.status, rows.body, rows.headers["turnout-arm"]) == (200, {"predictions": expected}, "stable")
    assert (named.status, named.body, named.headers["turnout-arm"]) == (200, {"predictions": expected}, "explicit")
    assert (columns.status, columns.body) == (200, {"outputs": expected})
    assert "total;dur=" in columns.headers["Server-Timing"]
    for answer in answers:
        assert list(answer.outputs["y"].float_val) == [1.5, 1.5, 2, 2]
        assert [dim.size for dim in answer.outputs["y"].tensor_shape.dim] == [2, 2]
        spec = answer.model_spec
        assert (spec.name, spec.version.value, spec.signature_name) == (model.name, 1, "serving_default")
    sent = {each.inputs[0].SerializeToString() for each in model.batcher.requests}
    assert len(model.batcher.requests) == 11
    assert len(sent) == 1


async def test_the_alias_s_port_serves_the_same_api(mesh: RouterMesh) -> None:
    model = await mesh.model()
    alias = await mesh.router.address("tfs-rest")

    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://{alias}/v1/models/{model.name}:predict", json={"instances": [[1, 2]]}) as answer,
    ):
        assert (answer.status, await answer.json()) == (200, {"predictions": [[1.0, 2.0]]})


async def test_numbers_that_are_not_finite_and_bytes_go_both_ways(mesh: RouterMesh) -> None:
    model = await mesh.model(signature=signature([("x", "FP32", (-1, 2)), ("t", "BYTES", (-1,))]))
    body = b'{"instances":[{"x":[NaN,-Infinity],"t":{"b64":"YQBiAA=="}},{"x":[Infinity,-0.0],"t":"\\u00e9"}]}'

    answer = await v1(mesh, f"{model.name}:predict", body)

    inputs = {each.name: bytes(each.data) for each in model.batcher.requests[-1].inputs}
    assert inputs["t"] == encode_bytes([b"a\0b\0", "é".encode()])
    assert [str(value) for value in struct.unpack("<4f", inputs["x"])] == ["nan", "-inf", "inf", "-0.0"]
    assert json.dumps(answer.body["predictions"]) == json.dumps(
        [{"y": [float("nan"), float("-inf")], "y1": "a\0b\0"}, {"y": [float("inf"), -0.0], "y1": "é"}]
    )


async def test_examples_are_classified_and_regressed_by_either_protocol(mesh: RouterMesh, calls: TfsCalls) -> None:
    outputs = [("scores", "FP32", (-1, 2)), ("classes", "BYTES", (-1, 2)), ("outputs", "FP32", (-1, 1))]
    model = await mesh.model(signature=signature([("age", "FP32", (-1,)), ("city", "BYTES", (-1,))], outputs))
    model.batcher.answer = classes_and_scores
    body = {"context": {"city": "Wien"}, "examples": [{"age": 30}, {"age": 40.5, "city": {"b64": "WA=="}}]}
    spec = pb.ModelSpec(name=model.name)
    request = pb.ClassificationRequest(model_spec=spec)
    for age, city in ((30, b"Wien"), (40.5, b"X")):
        features = request.input.example_list.examples.add().features.feature
        features["age"].float_list.value.append(age)
        features["city"].bytes_list.value.append(city)

    classified = await v1(mesh, f"{model.name}:classify", body)
    regressed = await v1(mesh, f"{model.name}:regress", body)
    by_grpc = await calls.ask(CLASSIFY, request, metadata=[("x-request-id", "r-1")])
    values = await calls.ask(REGRESS, pb.RegressionRequest(model_spec=spec, input=request.input))
    tasks = [pb.InferenceTask(model_spec=spec, method_name=f"tensorflow/serving/{m}") for m in ("regress", "classify")]
    both = await calls.ask(
        "PredictionService/MultiInference", pb.MultiInferenceRequest(tasks=tasks, input=request.input)
    )

    pairs = [["cat", 0.25], ["dog", 0.75]]
    assert (classified.status, classified.body) == (200, {"results": [pairs, pairs]})
    assert (regressed.status, regressed.body) == (200, {"results": [0.0, 1.0]})
    found = [[[c.label, c.score] for c in each.classes] for each in by_grpc.result.classifications]
    assert found == [pairs, pairs]
    assert by_grpc.model_spec.version.value == 1
    assert [each.value for each in values.result.regressions] == [0, 1]
    assert both.results[0].regression_result == values.result
    assert both.results[1].classification_result == by_grpc.result
    sent = {each.SerializeToString() for request in model.batcher.requests for each in request.inputs}
    assert (len(model.batcher.requests), len(sent)) == (6, 2)


async def test_status_and_metadata_by_either_protocol(mesh: RouterMesh, calls: TfsCalls) -> None:
    model = await mesh.model("1", "2")
    await model.route({"stable": "1", "labels": {"champion": "2"}})
    spec = pb.ModelSpec(name=model.name, version_label="champion")
    available = {"state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}

    status = await v1(mesh, model.name)
    of_label = await v1(mesh, f"{model.name}/labels/champion")
    metadata = await v1(mesh, f"{model.name}/versions/2/metadata")
    by_grpc = await calls.ask(STATUS, service_pb.GetModelStatusRequest(model_spec=spec))
    described = await calls.ask(METADATA, pb.GetModelMetadataRequest(model_spec=spec, metadata_field=["signature_def"]))

    states = [{"version": version, **available} for version in ("2", "1")]
    assert status.body == {"model_version_status": states}
    assert of_label.body == {"model_version_status": states[:1]}
    assert (metadata.body["model_spec"]["version"], list(metadata.body["metadata"])) == ("2", ["signature_def"])
    assert [(each.version, each.state) for each in by_grpc.model_version_status] == [(2, 30)]
    packed = described.metadata["signature_def"]
    assert packed.type_url == "type.googleapis.com/tensorflow.serving.SignatureDefMap"
    defs = pb.SignatureDefMap.FromString(packed.value).signature_def
    assert defs["serving_default"].inputs["x"].dtype == 1
    assert model.name in (await mesh.rest("/v1/models", method="GET")).body["models"]


async def test_kserve_s_clients_hear_whether_a_model_is_ready(mesh: RouterMesh) -> None:
    model = await mesh.model()
    async with AsyncExitStack() as stack:
        kserve = RouterMesh(mesh.server, mesh.folder / "kserve", stack, {"kserve_status": True})
        stack.push_async_callback(kserve.etcd.close)
        await kserve.start_router()
        await kserve.ready(model.name)

        assert (await v1(kserve, model.name)).body == {"name": model.name, "ready": True}
        assert (await v1(kserve, "nobody")).status == 404
        assert (await v1(kserve, f"{model.name}/versions/9")).status == 404
        await mesh.put(f"models/{model.name}-none", {})

        async def is_known() -> bool:
            return (await v1(kserve, f"{model.name}-none")).status == 503

        await until("a model without a version is not ready", is_known)


async def test_a_version_or_label_is_served_by_either_protocol(mesh: RouterMesh, calls: TfsCalls) -> None:
    model = await mesh.model("1", "2")
    await model.route({"stable": "1", "labels": {"champion": "2"}})

    answers = [
        await calls.ask(PREDICT, predict_request(model.name, 1, version_label="champion")),
        await calls.ask(PREDICT, predict_request(model.name, 1, version={"value": 2})),
    ]
    for path in ("labels/champion", "versions/2"):
        assert (await v1(mesh, f"{model.name}/{path}:predict", {"instances": [[1, 1]]})).status == 200

    assert [answer.model_spec.version.value for answer in answers] == [2, 2]
    assert [request.version for request in model.batcher.requests] == ["2"] * 4


async def test_a_split_gives_each_key_its_version_and_the_datatypes_of_that_version(mesh: RouterMesh) -> None:
    model = await mesh.model("1")
    await model.batcher.serve(mesh.etcd, model.name, "2", signature=signature([("x", "INT64", (-1, 2))]))
    await mesh.ready(model.name, "2")
    await model.route({"stable": "1", "pins": {"ana": "2", "7": "2"}, "sticky_by": "input:x"})

    pinned = await v1(mesh, f"{model.name}:predict", {"instances": [[1, 2]]}, **{"x-routing-key": "ana"})
    sticky = await v1(mesh, f"{model.name}:predict", {"instances": [[7, 8]]})
    other = await v1(mesh, f"{model.name}:predict", {"instances": [[8, 7]]})
    wrong = await v1(mesh, f"{model.name}:predict", {"instances": [[1.5, 2]]}, **{"x-routing-key": "ana"})

    assert (pinned.body, sticky.body) == ({"predictions": [[1, 2]]}, {"predictions": [[7, 8]]})
    assert other.body == {"predictions": [[8.0, 7.0]]}
    assert (wrong.status, "INT64 takes whole numbers" in wrong.body["error"]) == (400, True)


async def test_errors_mean_the_same_on_both_protocols(mesh: RouterMesh, calls: TfsCalls) -> None:
    model = await mesh.model()
    name = model.name
    good = {"instances": [[1, 1]]}

    unknown = await v1(mesh, "nobody:predict", good)
    assert (unknown.status, unknown.body["error"][:45]) == (404, "Servable not found for request: Latest(nobody")
    assert (await calls.refused(PREDICT, predict_request("nobody", 1)))[0] is CODE.NOT_FOUND
    assert (await v1(mesh, f"{name}/versions/9:predict", good)).status == 404
    assert (await calls.refused(PREDICT, predict_request(name, 1, version={"value": 9})))[0] is CODE.NOT_FOUND
    assert (await v1(mesh, f"{name}/labels/none:predict", good)).status == 404
    assert (await v1(mesh, f"{name}/versions/x:predict", good)).status == 400
    assert (await v1(mesh, f"{name}:explain", good)).status == 501
    assert (await v1(mesh, f"{name}:guess", good)).status == 404
    assert (await v1(mesh, f"{name}:predict", {"instances": [[1, 1, 1]]})).status == 400
    assert (await v1(mesh, f"{name}:classify", {"examples": []})).status == 400
    assert (await calls.refused(PREDICT, b"\xff"))[0] is CODE.INVALID_ARGUMENT
    assert (await calls.refused(CLASSIFY, b"\xff"))[0] is CODE.INVALID_ARGUMENT
    filtered = predict_request(name, 1)
    filtered.output_filter.append("nope")
    code, says = await calls.refused(PREDICT, filtered)
    assert (code, "has no output 'nope'" in says) == (CODE.INVALID_ARGUMENT, True)
    code, says = await calls.refused(METADATA, pb.GetModelMetadataRequest(model_spec=pb.ModelSpec(name=name)))
    assert (code, "ask for 'signature_def'" in says) == (CODE.INVALID_ARGUMENT, True)
    assert (await calls.refused(STATUS, service_pb.GetModelStatusRequest()))[0] is CODE.INVALID_ARGUMENT
    reload = await calls.refused("ModelService/HandleReloadConfigRequest", service_pb.ReloadConfigRequest())
    assert (reload[0], "takes no management calls" in reload[1]) == (CODE.PERMISSION_DENIED, True)


async def test_sizes_sheds_and_deadlines_are_as_on_every_protocol(mesh: RouterMesh, calls: TfsCalls) -> None:
    model = await mesh.model()
    large = predict_request(model.name, *[1.0] * (LIMIT // 8))
    code, says = await calls.refused(PREDICT, large)
    assert (code, str(LIMIT) in says) == (CODE.RESOURCE_EXHAUSTED, True)
    assert (await v1(mesh, f"{model.name}:predict", b" " * (LIMIT + 1))).status == 413

    model.batcher.answer = refuse(link_pb2.EXECUTED_NO, retry_after_us=2_000_000)
    shed = await v1(mesh, f"{model.name}:predict", {"instances": [[1, 1]]})
    assert (shed.status, shed.headers["Retry-After"]) == (503, "2")
    assert await calls.refused(PREDICT, predict_request(model.name, 1)) == (CODE.UNAVAILABLE, "queue is full")

    model.batcher.answer = silence
    late = await v1(mesh, f"{model.name}:predict", {"instances": [[1, 1]]}, **{"x-request-timeout-ms": "200"})
    assert late.status == 504
    code, _ = await calls.refused(PREDICT, predict_request(model.name, 1), timeout_s=0.2)
    assert code is CODE.DEADLINE_EXCEEDED


async def test_whoever_leaves_cancels_its_work(mesh: RouterMesh, calls: TfsCalls) -> None:
    model = await mesh.model(signature=signature([("x", "FP32", (-1, 2))]))
    model.batcher.answer = silence
    examples = pb.ClassificationRequest(model_spec=pb.ModelSpec(name=model.name))
    examples.input.example_list.examples.add().features.feature["x"].float_list.value.extend([1, 2])
    begun = [calls.start(PREDICT, predict_request(model.name, 1)), calls.start(CLASSIFY, examples)]
    rest = asyncio.create_task(v1(mesh, f"{model.name}:predict", {"instances": [[1, 1]]}))
    await model.batcher.until(lambda: len(model.batcher.requests) == 3)

    for call in (*begun, rest):
        call.cancel()

    await model.batcher.until(lambda: len(model.batcher.cancels) == 3)
    await asyncio.gather(rest, return_exceptions=True)
    assert sorted(model.batcher.cancels) == sorted(request.id for request in model.batcher.requests)


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_the_port_tells_of_its_services_and_their_health(mesh: RouterMesh, version: str) -> None:
    async with own_channel(await mesh.router.address("tfs-grpc")) as channel:
        described = await services(channel, version)
        check = health_pb2_grpc.HealthStub(channel).Check
        for name in ("ModelService", "PredictionService", "tensorflow.serving.PredictionService", ""):
            answer = await check(health_pb2.HealthCheckRequest(service=name), timeout=20)
            assert (name, answer.status) == (name, health_pb2.HealthCheckResponse.SERVING)

    prediction = described["tensorflow.serving.PredictionService"]
    assert prediction.methods_by_name["Predict"].input_type.fields_by_name["inputs"].number == 2
    assert "GetModelStatus" in described["tensorflow.serving.ModelService"].methods_by_name
    assert "grpc.health.v1.Health" in described
