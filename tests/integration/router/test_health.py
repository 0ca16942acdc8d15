"""What probes and tools ask for: grpc.health.v1, reflection, readiness, metadata and configuration of models."""

import asyncio
import secrets

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from inference import grpc_service_pb2 as pb
from services.core import keys
from services.core.registry import Inventory, InventoryVersion
from services.router.plain import plain
from tests.support.reflecting import services
from tests.support.router_mesh import TIMEOUT_S, RouterMesh, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


async def test_the_server_the_service_and_each_model_have_a_health_of_their_own(mesh: RouterMesh) -> None:
    model = await mesh.model()
    check = health_pb2_grpc.HealthStub(mesh.channel).Check

    for name in ("", "inference.GRPCInferenceService", f"model/{model.name}"):
        answer = await check(health_pb2.HealthCheckRequest(service=name), timeout=TIMEOUT_S)
        assert (name, answer.status) == (name, SERVING)
    with pytest.raises(grpc.aio.AioRpcError) as unknown:
        await check(health_pb2.HealthCheckRequest(service="model/nobody"), timeout=TIMEOUT_S)
    assert unknown.value.code() == grpc.StatusCode.NOT_FOUND


async def test_a_watch_hears_of_every_change(mesh: RouterMesh) -> None:
    model = await mesh.model()
    watch = health_pb2_grpc.HealthStub(mesh.channel).Watch(health_pb2.HealthCheckRequest(service=f"model/{model.name}"))
    nobody = health_pb2_grpc.HealthStub(mesh.channel).Watch(health_pb2.HealthCheckRequest(service="model/nobody"))

    async with asyncio.timeout(TIMEOUT_S):
        heard = [(await watch.read()).status]
        model.batcher.drop(model.name, "1")
        heard.append((await watch.read()).status)
        await model.batcher.serve(mesh.etcd, model.name, "1")
        heard.append((await watch.read()).status)
        unknown = (await nobody.read()).status
    watch.cancel()
    nobody.cancel()

    assert heard == [SERVING, NOT_SERVING, SERVING]
    assert unknown == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


async def test_a_model_that_is_taken_away_is_unknown_again(mesh: RouterMesh) -> None:
    model = await mesh.model()
    stub = health_pb2_grpc.HealthStub(mesh.channel)
    asked = health_pb2.HealthCheckRequest(service=f"model/{model.name}")
    watch = stub.Watch(asked)

    async with asyncio.timeout(TIMEOUT_S):
        heard = [(await watch.read()).status]
        await mesh.etcd.delete(f"models/{model.name}")
        heard.append((await watch.read()).status)
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await stub.Check(asked, timeout=TIMEOUT_S)
        await mesh.put(f"models/{model.name}", {})
        heard.append((await watch.read()).status)
    watch.cancel()

    assert heard == [SERVING, health_pb2.HealthCheckResponse.SERVICE_UNKNOWN, SERVING]
    assert unknown.value.code() == grpc.StatusCode.NOT_FOUND


async def test_a_model_that_does_not_load_is_not_serving(mesh: RouterMesh) -> None:
    name = f"m-{secrets.token_hex(4)}"
    watch = health_pb2_grpc.HealthStub(mesh.channel).Watch(health_pb2.HealthCheckRequest(service=f"model/{name}"))
    async with asyncio.timeout(TIMEOUT_S):
        heard = [(await watch.read()).status]
        failed = Inventory(models={name: {"1": InventoryVersion(state="UNAVAILABLE", reason="it is broken")}})
        await mesh.put(f"{keys.STATUS}runtime/{name}/inventory", failed.dump())
        await mesh.put(f"models/{name}", {})
        heard.append((await watch.read()).status)
    watch.cancel()

    assert heard == [health_pb2.HealthCheckResponse.SERVICE_UNKNOWN, NOT_SERVING]
    for path, status in ((f"/v2/models/{name}/ready", 503), (f"/v2/models/{name}/versions/1/ready", 503)):
        assert (await mesh.rest(path, method="GET")).status == status
    assert (await mesh.rest(f"/v2/models/{name}/versions/2/ready", method="GET")).status == 404


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_reflection_lists_and_describes_every_service(mesh: RouterMesh, version: str) -> None:
    described = await services(mesh.channel, version)

    assert described.keys() == {
        "inference.GRPCInferenceService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    assert {"ModelInfer", "ModelStatistics"} <= set(described["inference.GRPCInferenceService"].methods_by_name)
    assert (
        described["grpc.reflection.v1.ServerReflection"]
        .methods[0]
        .input_type.full_name.startswith("grpc.reflection.v1.")
    )


async def test_a_method_that_is_not_offered_says_so(mesh: RouterMesh) -> None:
    for path in (
        "/inference.GRPCInferenceService/Nothing",
        "/x.Y/Z",
    ):
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await mesh.channel.unary_unary(path)(b"", timeout=TIMEOUT_S)

        assert (path, error.value.code()) == (path, grpc.StatusCode.UNIMPLEMENTED)


async def test_what_is_unknown_is_not_found_and_what_is_not_ready_unavailable(mesh: RouterMesh) -> None:
    model = await mesh.model("1", "2")
    await model.route({"stable": "1", "labels": {"next": "2"}})
    known = Inventory(models={model.name: {version: InventoryVersion(state="LOADING") for version in ("1", "2", "3")}})
    await mesh.put(f"{keys.STATUS}runtime/{model.name}/inventory", known.dump())
    ladder = {"": 200, "1": 200, "2": 200, "next": 200, "3": 503, "4": 404, "champion": 404}
    codes = {200: grpc.StatusCode.OK, 404: grpc.StatusCode.NOT_FOUND, 503: grpc.StatusCode.UNAVAILABLE}

    async def is_known() -> bool:
        return (await mesh.rest(f"/v2/models/{model.name}/versions/3/ready", method="GET")).status == 503

    await until("version 3 is known", is_known)
    for version, status in ladder.items():
        place = f"/v2/models/{model.name}" + (f"/versions/{version}" if version else "")
        for what in ("/ready", "", "/config"):
            assert (version, (await mesh.rest(place + what, method="GET")).status) == (version, status)
        for ask in (
            mesh.stub.ModelReady(pb.ModelReadyRequest(name=model.name, version=version), timeout=TIMEOUT_S),
            mesh.stub.ModelMetadata(pb.ModelMetadataRequest(name=model.name, version=version), timeout=TIMEOUT_S),
            mesh.stub.ModelConfig(pb.ModelConfigRequest(name=model.name, version=version), timeout=TIMEOUT_S),
        ):
            assert (version, await ask.code()) == (version, codes[status])
    assert (await mesh.rest("/v2/models/nobody/ready", method="GET")).status == 404


async def test_the_configuration_is_the_same_by_both_protocols_and_holds_what_lies_beside_the_artifact(
    mesh: RouterMesh,
) -> None:
    spec = {"batching": {"max_batch_size": 32, "max_queue_delay_microseconds": 70}}
    beside = b'{"max_batch_size": 8, "preferred_batch_size": [4]}'
    model = await mesh.model(spec=spec, batching=beside)
    asked = pb.ModelConfigRequest(name=model.name)
    config = (await mesh.stub.ModelConfig(asked, timeout=TIMEOUT_S)).config
    by_rest = await mesh.rest(f"/v2/models/{model.name}/config", method="GET")

    assert by_rest.body == plain(config)
    assert (config.name, config.max_batch_size, config.platform) == (model.name, 32, "puppet")
    assert list(config.dynamic_batching.preferred_batch_size) == [4]
    assert config.dynamic_batching.max_queue_delay_microseconds == 70
    assert [(each.name, list(each.dims)) for each in (*config.input, *config.output)] == [("x", [2]), ("y", [2])]


async def test_only_extensions_that_there_are_are_told(mesh: RouterMesh) -> None:
    told = (await mesh.stub.ServerMetadata(pb.ServerMetadataRequest(), timeout=TIMEOUT_S)).extensions

    assert {"statistics", "model_configuration", "binary_tensor_data"} <= set(told)
    assert not {"cuda_shared_memory", "system_shared_memory"} & set(told)  # the one is not there, the other is off
    assert (await mesh.rest("/v2", method="GET")).body["extensions"] == list(told)
