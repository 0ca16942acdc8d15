"""Requests whose inputs come from a feature proxy."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import pytest_asyncio

from inference import grpc_service_pb2 as pb
from tests.support.proof import Starvation, has_read
from tests.support.puppets import Fields, PuppetProxy, PuppetRecorder, X, floats, signature, silence
from tests.support.router_mesh import Model, RouterMesh, infer_request, rest_request, until
from turnout.v1 import feature_pb2, tensor_pb2

pytestmark = pytest.mark.asyncio(loop_scope="module")

OK, UNAVAILABLE = grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE
AGES = ("ages", "FP32", (-1, 2))
USE = {"view": "users", "input": "ages", "entity": "user_id"}
INVALID = grpc.StatusCode.INVALID_ARGUMENT


def ages(lookup: feature_pb2.FeatureLookup) -> Fields:
    """Columns `whole` = the key, `half` = half of it."""
    views = []
    for view in lookup.views:
        numbers = [float(key.int_value or len(key.string_value) or len(key.bytes_value)) for key in view.entities]
        columns = [
            tensor_pb2.Tensor(name=name, datatype="FP32", shape=[len(numbers)], data=floats(*(n * k for n in numbers)))
            for name, k in (("whole", 1.0), ("half", 0.5))
        ]
        views.append(feature_pb2.ViewValues(view=view.view, version=1, columns=columns))
    return {"views": views}


async def found(puppet: PuppetProxy, mesh: RouterMesh) -> None:
    """Announce it, and return once the router may ask it."""
    await puppet.announce(mesh.etcd)
    await puppet.until(lambda: any(link.peer.instance for link in puppet.server.links))
    for link in puppet.server.links:
        await has_read(link)


@pytest_asyncio.fixture(loop_scope="module")
async def proxy(mesh: RouterMesh) -> AsyncIterator[PuppetProxy]:
    async with PuppetProxy() as puppet:
        puppet.answer = ages
        await found(puppet, mesh)
        yield puppet
        await puppet.renounce(mesh.etcd)


async def featured(mesh: RouterMesh, **use: Any) -> Model:
    spec = {"features": [{**USE, **use}]}
    return await mesh.model(spec=spec, signature=signature([X, AGES]))


def with_user(model: Model, user: Any, *rows: float) -> pb.ModelInferRequest:
    request = infer_request(model.name, *(rows or (1.0,)))
    field = "string_param" if isinstance(user, str) else "bool_param" if isinstance(user, bool) else "uint64_param"
    setattr(request.parameters["user_id"], field, user)
    return request


async def test_the_input_is_filled_whichever_protocol_asks(mesh: RouterMesh, proxy: PuppetProxy) -> None:
    model = await featured(mesh)

    answer = await mesh.call(with_user(model, 8, 1.0, 2.0))
    rest = await model.rest(rest_request(1.0, 2.0, parameters={"user_id": 8}))

    assert (answer.code, rest.status) == (OK, 200), (answer, rest)
    for sent in model.batcher.requests:
        assert [(t.name, list(t.shape), t.data) for t in sent.inputs] == [
            ("x", [2, 2], floats(1, 1, 2, 2)),
            ("ages", [2, 2], floats(8, 4, 8, 4)),
        ]
    lookup = proxy.lookups[-1]
    assert [(v.view, len(v.entities), list(v.columns)) for v in lookup.views] == [("users", 2, [])]
    assert 0 < lookup.deadline_us < 30_000_000


async def test_the_entity_may_be_a_header_also_when_the_request_is_a_known_one(
    mesh: RouterMesh, proxy: PuppetProxy
) -> None:
    model = await featured(mesh, entity="header:x-user")

    for user in ("ann", "bernadette", "ann"):
        answer = await model.call(metadata=[("x-user", user)])

        assert answer.code == OK
        assert [t.name for t in model.batcher.requests[-1].inputs] == ["x", "ages"]
        assert model.batcher.requests[-1].inputs[1].data == floats(len(user), len(user) / 2)


async def test_an_input_that_only_carries_the_key_does_not_reach_the_model(
    mesh: RouterMesh, proxy: PuppetProxy
) -> None:
    model = await featured(mesh, entity="input:id")
    request = infer_request(model.name, 1.0, 2.0)
    request.inputs.add(name="id", datatype="INT64", shape=[2])
    request.raw_input_contents.append((6).to_bytes(8, "little") + (10).to_bytes(8, "little"))

    answer = await mesh.call(request)

    assert answer.code == OK
    assert [t.name for t in model.batcher.requests[-1].inputs] == ["x", "ages"]
    assert model.batcher.requests[-1].inputs[1].data == floats(6, 3, 10, 5)


async def test_a_record_has_what_the_caller_sent_and_what_features_filled(mesh: RouterMesh, proxy: PuppetProxy) -> None:
    model = await featured(mesh, entity="input:id")
    request = infer_request(model.name, 1.0)
    request.inputs.add(name="id", datatype="INT64", shape=[1])
    request.raw_input_contents.append((6).to_bytes(8, "little"))

    async def is_wanted() -> bool:
        return await mesh.metric("turnout_recorders") > 0

    async with PuppetRecorder(model.name) as recorder:
        await recorder.announce(mesh.etcd)
        await until("the recorder is heard", is_wanted)
        answer = await mesh.call(request)
        await recorder.until(lambda: recorder.records)
        await recorder.renounce(mesh.etcd)
    (record,) = recorder.records

    assert answer.code == OK
    assert [(tensor.name, tensor.data) for tensor in record.inputs] == [
        ("x", floats(1, 1)), ("id", (6).to_bytes(8, "little"))
    ]  # fmt: skip
    assert [(tensor.name, tensor.data) for tensor in record.filled] == [("ages", floats(6, 3))]


async def test_metadata_does_not_ask_callers_for_what_features_fill(mesh: RouterMesh, proxy: PuppetProxy) -> None:
    model = await featured(mesh)

    metadata = await mesh.stub.ModelMetadata(pb.ModelMetadataRequest(name=model.name), timeout=10)
    refused = infer_request(model.name, 1.0)
    refused.inputs.add(name="ages", datatype="FP32", shape=[1, 2])
    refused.raw_input_contents.append(floats(1, 1))
    answer = await mesh.call(refused)

    assert [i.name for i in metadata.inputs] == ["x"]
    assert (answer.code, "has no input 'ages'; its inputs are x" in answer.message) == (INVALID, True)


@pytest.mark.parametrize(
    ("use", "user", "says"),
    [
        ({}, None, "looks features up by request parameter 'user_id': send it"),
        ({}, True, "is text or a number"),
        ({}, (1 << 64) - 1, "a number of 64 bits"),
        ({"entity": "header:x-user"}, None, "by header 'x-user': send it"),
        ({"entity": "input:id"}, None, "by input 'id' (integers or BYTES): send it"),
    ],
)
async def test_a_missing_or_odd_key_is_the_callers_fault(
    mesh: RouterMesh, proxy: PuppetProxy, use: dict[str, str], user: Any, says: str
) -> None:
    model = await featured(mesh, **use)

    answer = await mesh.call(with_user(model, user) if user is not None else infer_request(model.name, 1.0))

    assert (answer.code, says in answer.message) == (INVALID, True), answer


@pytest.mark.parametrize(
    ("fields", "code", "status", "says"),
    [
        ({"code": 5, "message": "view users has no entity 8"}, grpc.StatusCode.NOT_FOUND, 404, "no entity 8"),
        ({"code": 9, "message": "view is version 2"}, grpc.StatusCode.FAILED_PRECONDITION, 412, "version 2"),
        ({"code": 14, "message": "the store is down"}, UNAVAILABLE, 503, "the store is down"),
        ({"views": []}, grpc.StatusCode.FAILED_PRECONDITION, 412, "1 feature views were asked for, 0 answered"),
        ({"views": [{}]}, grpc.StatusCode.FAILED_PRECONDITION, 412, "gives 0 values a row, input 'ages'"),
        (
            {"views": [{"columns": [{"name": "a", "datatype": "FP64", "shape": [1], "data": bytes(8)}]}]},
            grpc.StatusCode.FAILED_PRECONDITION,
            412,
            "column 'a' of feature view users is FP64, input 'ages'",
        ),
        (
            {"views": [{"columns": [{"name": "a", "datatype": "FP32", "shape": [3], "data": bytes(12)}]}]},
            grpc.StatusCode.FAILED_PRECONDITION,
            412,
            "has shape [3] for 1 rows",
        ),
    ],
)
async def test_what_the_proxy_says_is_passed_on_with_its_code(
    mesh: RouterMesh, proxy: PuppetProxy, fields: dict[str, Any], code: grpc.StatusCode, status: int, says: str
) -> None:
    model = await featured(mesh)
    proxy.answer = lambda _: fields

    answer = await mesh.call(with_user(model, 8))
    rest = await model.rest(rest_request(1.0, parameters={"user_id": 8}))

    assert (answer.code, rest.status, says in answer.message) == (code, status, True), answer
    assert (answer.retry_ms() is not None) == (code == UNAVAILABLE)
    assert ("Retry-After" in rest.headers) == (code == UNAVAILABLE)
    assert model.batcher.requests == []


async def test_columns_that_lie_about_their_bytes_fail_one_request(mesh: RouterMesh, proxy: PuppetProxy) -> None:
    model = await featured(mesh)
    column = {"name": "a", "datatype": "FP32", "shape": [2, 2], "data": b"short"}
    proxy.answer = lambda _: {"views": [{"columns": [column]}]}

    answer = await mesh.call(with_user(model, 8, 1.0, 2.0))
    mesh.router.lines.clear()  # it is logged, as it should be
    proxy.answer = ages

    assert answer.code == grpc.StatusCode.INTERNAL
    assert (await mesh.call(with_user(model, 8))).code == OK


async def test_the_deadline_holds_while_the_proxy_is_silent_and_it_hears_of_it(
    mesh: RouterMesh, proxy: PuppetProxy
) -> None:
    model = await featured(mesh)
    proxy.answer = silence
    starved = Starvation(mesh.router.pid)

    answer = await mesh.call(with_user(model, 8), timeout_s=0.5)
    await proxy.until(lambda: proxy.cancels)

    assert (answer.code, answer.took_s < 0.7 + starved.seconds) == (grpc.StatusCode.DEADLINE_EXCEEDED, True)
    assert proxy.cancels == [proxy.lookups[-1].id]


async def test_a_killed_proxy_is_an_error_at_once_and_another_takes_over(mesh: RouterMesh, proxy: PuppetProxy) -> None:
    model = await featured(mesh)
    proxy.answer = silence
    call = asyncio.create_task(mesh.call(with_user(model, 8)))
    await proxy.until(lambda: proxy.lookups)

    await proxy.server.close()
    starved, began = Starvation(mesh.router.pid), time.monotonic()
    lost, after = await call, await mesh.call(with_user(model, 8))
    took_s = time.monotonic() - began - starved.seconds

    assert [lost.code, after.code, took_s < 1] == [UNAVAILABLE, UNAVAILABLE, True]
    assert "feature proxy" in lost.message
    assert "no feature proxy is connected" in after.message
    async with PuppetProxy("proxy-1") as other:
        other.answer = ages
        await other.announce(mesh.etcd)

        async def works() -> bool:
            return (await mesh.call(with_user(model, 8))).code == OK

        await until("the other proxy answers", works)
        await other.renounce(mesh.etcd)


async def test_with_two_proxies_a_killed_one_costs_no_request(mesh: RouterMesh, proxy: PuppetProxy) -> None:
    model = await featured(mesh)
    async with PuppetProxy("proxy-1") as other:
        other.answer = silence
        await found(other, mesh)
        proxy.answer = silence
        calls = [asyncio.create_task(mesh.call(with_user(model, 8))) for _ in range(8)]

        async def all_asked() -> bool:
            return len(proxy.lookups) + len(other.lookups) == 8

        await until("every look-up is in flight", all_asked)
        assert other.lookups
        proxy.answer = ages
        other.lose_links()
        for lookup in list(proxy.lookups):
            proxy.tell(lookup, **(ages(lookup) or {}))
        answers = await asyncio.gather(*calls)
        await other.renounce(mesh.etcd)

    assert {answer.code for answer in answers} == {OK}
