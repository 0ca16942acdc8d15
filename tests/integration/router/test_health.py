"""grpc.health.v1 and reflection, as probes and tools ask for them."""

import asyncio

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.support.router_mesh import TIMEOUT_S, RouterMesh

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


async def test_reflection_lists_every_service(mesh: RouterMesh) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(mesh.channel)
    call = stub.ServerReflectionInfo(timeout=TIMEOUT_S)
    await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    answer = await call.read()
    await call.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol="inference.GRPCInferenceService"))
    described = await call.read()
    await call.done_writing()

    names = {service.name for service in answer.list_services_response.service}
    assert names == {
        "inference.GRPCInferenceService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    assert described.file_descriptor_response.file_descriptor_proto


async def test_a_method_that_is_not_offered_says_so(mesh: RouterMesh) -> None:
    for path in (
        "/inference.GRPCInferenceService/Nothing",
        "/x.Y/Z",
    ):
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await mesh.channel.unary_unary(path)(b"", timeout=TIMEOUT_S)

        assert (path, error.value.code()) == (path, grpc.StatusCode.UNIMPLEMENTED)
