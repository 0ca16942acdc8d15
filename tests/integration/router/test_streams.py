"""A router whose replicas stream: order, credit, second tries, lost links, cancels, and how much it takes at once."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from inference import grpc_service_pb2 as pb
from services.chassis.streamed import WINDOW_BYTES
from services.core.errors import OK
from tests.support.puppets import PuppetBatcher, PuppetRecorder, floats, refuse, signature, silence
from tests.support.router_mesh import TIMEOUT_S, Model, RouterMesh, infer_request, until
from turnout.v1 import link_pb2, tensor_pb2

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def streaming(mesh: RouterMesh) -> Model:
    """A decoupled model whose batcher says nothing by itself."""
    decoupled = signature(batches=False)
    decoupled.decoupled = True
    model = await mesh.model(signature=decoupled)
    model.batcher.answer = silence
    return model


def part(batcher: PuppetBatcher, request: link_pb2.Request, seq: int, *, size: int = 2) -> None:
    tensor = tensor_pb2.Tensor(name="y", datatype="FP32", shape=[1, size], data=floats(*[seq] * size))
    batcher.reply(request, seq=seq, final=False, outputs=[tensor])


def end(batcher: PuppetBatcher, request: link_pb2.Request, seq: int, **fields: Any) -> None:
    batcher.reply(request, seq=seq, **fields)


async def asked(batcher: PuppetBatcher, count: int = 1) -> Sequence[link_pb2.Request]:
    await batcher.until(lambda: len(batcher.requests) >= count)
    return batcher.requests


def open_stream(mesh: RouterMesh) -> Any:
    return mesh.stub.ModelStreamInfer(timeout=TIMEOUT_S)


def wish(model: Model, name: str = "") -> pb.ModelInferRequest:
    return infer_request(model.name, 1.0, id=name)


async def test_answers_that_overtake_each_other_are_put_in_order(mesh: RouterMesh) -> None:
    model = await streaming(mesh)
    for order in list(itertools.permutations(range(4)))[::5]:
        call = open_stream(mesh)
        await call.write(wish(model))
        await call.done_writing()
        (request,) = await asked(model.batcher)
        model.batcher.requests.clear()
        for seq in order:
            if seq == 3:
                end(model.batcher, request, 3)
            else:
                part(model.batcher, request, seq)
        answers = [message.infer_response async for message in call]

        assert [each.raw_output_contents[0] for each in answers] == [floats(seq, seq) for seq in range(3)]


async def test_credit_is_given_as_answers_are_read(mesh: RouterMesh) -> None:
    model = await streaming(mesh)
    call = open_stream(mesh)
    await call.write(wish(model))
    (request,) = await asked(model.batcher)
    for seq in range(8):
        part(model.batcher, request, seq, size=WINDOW_BYTES // 32)
    for _ in range(8):
        await call.read()
    await model.batcher.until(lambda: sum(given for _, given in model.batcher.credits) >= WINDOW_BYTES)
    end(model.batcher, request, 8)
    await call.done_writing()

    assert request.credit == WINDOW_BYTES
    assert {number for number, _ in model.batcher.credits} == {request.id}
    assert sum(given for _, given in model.batcher.credits) == WINDOW_BYTES
    assert (await call.code()).value[0] == OK


async def test_a_link_that_is_lost_after_an_answer_is_an_error_and_nobody_else_is_asked(mesh: RouterMesh) -> None:
    model = await streaming(mesh)
    call = open_stream(mesh)
    await call.write(wish(model, "a"))
    (request,) = await asked(model.batcher)
    part(model.batcher, request, 0)
    await call.read()
    model.batcher.requests.clear()
    model.batcher.lose_links()
    broken = await call.read()
    await mesh.ready(model.name)
    await call.write(wish(model, "b"))
    (after,) = await asked(model.batcher)
    part(model.batcher, after, 0)
    heard = await call.read()
    call.cancel()

    assert broken.error_message.startswith("the link to replica ")
    assert (broken.infer_response.id, heard.infer_response.id, heard.error_message) == ("a", "b", "")
    assert len(model.batcher.requests) == 1


async def test_what_was_refused_before_an_answer_is_asked_elsewhere(mesh: RouterMesh) -> None:
    model = await streaming(mesh)
    other = await mesh.batcher()
    decoupled = signature(batches=False)
    decoupled.decoupled = True
    other.answer = lambda _: {"seq": 0}
    await other.serve(mesh.etcd, model.name, "1", signature=decoupled)
    model.batcher.answer = refuse(link_pb2.EXECUTED_NO)

    async def both_were_asked() -> bool:
        call = open_stream(mesh)
        await call.write(wish(model))
        await call.done_writing()
        messages = [message async for message in call]
        return bool(model.batcher.requests and other.requests) and messages == []

    await until("a refused stream is answered by the other replica", both_were_asked)


async def test_a_caller_that_cancels_cancels_at_the_replica(mesh: RouterMesh) -> None:
    model = await streaming(mesh)
    call = open_stream(mesh)
    await call.write(wish(model))
    (request,) = await asked(model.batcher)
    part(model.batcher, request, 0)
    await call.read()
    call.cancel()

    await model.batcher.until(lambda: model.batcher.cancels == [request.id])
    part(model.batcher, request, 1)  # nobody minds
    end(model.batcher, request, 2)
    assert (await mesh.rest("/v2/health/live", method="GET")).status == 200


async def test_no_more_than_64_requests_of_a_stream_are_under_way(mesh: RouterMesh) -> None:
    model = await streaming(mesh)
    call = open_stream(mesh)
    for number in range(80):
        await call.write(wish(model, str(number)))
    await call.done_writing()
    await asked(model.batcher, 64)
    ordinary = await mesh.model()
    for _ in range(3):
        await ordinary.call()  # time passes
    assert len(model.batcher.requests) == 64
    for request in list(model.batcher.requests):
        end(model.batcher, request, 0)
    for request in (await asked(model.batcher, 80))[64:]:
        end(model.batcher, request, 0)

    assert [message async for message in call] == []


async def test_streams_are_neither_recorded_nor_mirrored(mesh: RouterMesh) -> None:
    model = await streaming(mesh)
    ordinary = await mesh.model()
    async with PuppetRecorder(model.name, f"recorder-{model.name}") as recorder:
        await recorder.announce(mesh.etcd)

        async def is_known() -> bool:
            return await mesh.metric("turnout_recorders") > 0

        await until("the router knows the recorder", is_known)
        call = open_stream(mesh)
        await call.write(wish(model))
        await call.done_writing()
        (request,) = await asked(model.batcher)
        part(model.batcher, request, 0)
        end(model.batcher, request, 1)
        assert len([message async for message in call]) == 1
        await ordinary.call()

        assert recorder.records == []
        await recorder.renounce(mesh.etcd)


async def test_a_request_that_takes_one_answer_is_refused(mesh: RouterMesh) -> None:
    model = await streaming(mesh)
    answer = await model.call(1.0)
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 1]}]}

    assert answer.code.name == "UNIMPLEMENTED"
    assert (await model.rest(body)).status == 501
    assert model.batcher.requests == []
