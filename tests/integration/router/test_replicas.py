"""Replicas that refuse, fail, drain or go away: who is asked again, and who is not."""

import asyncio

import grpc
import grpc.aio
import pytest

from inference import grpc_service_pb2 as pb
from tests.support.proof import has_read
from tests.support.puppets import PuppetBatcher, echo, floats, refuse, silence
from tests.support.router_mesh import Model, RouterMesh, infer_request, rest_request, until
from turnout.v1 import link_pb2

pytestmark = pytest.mark.asyncio(loop_scope="module")

OK = grpc.StatusCode.OK
UNAVAILABLE, INTERNAL = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL
NO, MAYBE, YES = link_pb2.EXECUTED_NO, link_pb2.EXECUTED_MAYBE, link_pb2.EXECUTED_YES
SETTINGS = {"retry_budget": 1}  # so that no test lives on what another left


async def first_answers(model: Model, other: object, fields: object) -> None:
    """Make the replica that is asked first answer `fields` and the one asked second echo."""
    state = {"asked": 0}

    def answer(request: link_pb2.Request) -> object:
        state["asked"] += 1
        return fields(request) if state["asked"] == 1 else echo(request)  # type: ignore[operator]

    model.batcher.answer = other.answer = answer  # type: ignore[assignment,attr-defined]


async def all_asked(count: int, *batchers: PuppetBatcher) -> None:
    """Return once they got so many requests together."""

    async def have_come() -> bool:
        return sum(len(batcher.requests) for batcher in batchers) >= count

    await until(f"{count} requests at the replicas", have_come)


async def test_what_was_not_executed_is_sent_to_another_replica(mesh: RouterMesh) -> None:
    model = await mesh.model(spec={"idempotent": False})
    other = await model.second_batcher()
    await first_answers(model, other, refuse(NO))

    answer = await model.call()

    assert answer.code == OK
    assert [len(model.batcher.requests), len(other.requests)] == [1, 1]
    assert {request.tries for request in model.batcher.requests + other.requests} == {0}


async def test_a_replica_that_joins_gets_its_fair_share_at_once_however_little_there_is(mesh: RouterMesh) -> None:
    model = await mesh.model()
    other = await model.second_batcher()
    for at_once in (1, 8):
        model.batcher.requests.clear()
        other.requests.clear()
        for _ in range(400 // at_once):
            await asyncio.gather(*(model.call() for _ in range(at_once)))

        assert len(model.batcher.requests) + len(other.requests) == 400
        assert 0.4 < len(other.requests) / 400 < 0.6, at_once


async def test_a_refusal_by_two_replicas_is_the_answer_and_says_when_to_come_again(mesh: RouterMesh) -> None:
    model = await mesh.model()
    other = await model.second_batcher()
    model.batcher.answer = other.answer = refuse(NO, retry_after_us=40_000)

    answer = await model.call()
    rest = await model.rest(rest_request(1.0))

    assert (answer.code, answer.message, answer.retry_ms()) == (UNAVAILABLE, "queue is full", 40)
    assert (rest.status, rest.headers["Retry-After"], rest.headers["retry-after-ms"]) == (503, "1", "40")
    assert [len(model.batcher.requests), len(other.requests)] == [2, 2]


async def test_a_refusal_that_nobody_else_can_take_costs_no_retry(mesh: RouterMesh) -> None:
    model = await mesh.model()
    model.batcher.answer = refuse(NO)
    for _ in range(150):  # more than any budget holds
        assert (await model.call()).code == UNAVAILABLE

    other = await model.second_batcher(answer=refuse(NO))
    await first_answers(model, other, refuse(NO))

    assert (await model.call()).code == OK


async def test_what_may_have_run_is_tried_once_more_when_the_model_is_idempotent(mesh: RouterMesh) -> None:
    model = await mesh.model()
    other = await model.second_batcher()
    await first_answers(model, other, refuse(MAYBE))

    answer = await model.call()

    assert answer.code == OK
    assert sorted(request.tries for request in model.batcher.requests + other.requests) == [0, 1]


async def test_what_may_have_run_twice_is_not_tried_again(mesh: RouterMesh) -> None:
    model = await mesh.model()
    other = await model.second_batcher()
    model.batcher.answer = other.answer = refuse(MAYBE, "lost it")

    answer = await model.call()

    assert (answer.code, answer.message) == (INTERNAL, "lost it; the request may have run, so it is not tried again")
    assert [len(model.batcher.requests), len(other.requests)] == [1, 1]


@pytest.mark.parametrize(("spec", "executed"), [({"idempotent": False}, MAYBE), ({}, YES)])
async def test_what_must_not_run_again_does_not(mesh: RouterMesh, spec: dict, executed: link_pb2.Executed) -> None:
    model = await mesh.model(spec=spec)
    other = await model.second_batcher()
    model.batcher.answer = other.answer = refuse(executed)

    answer = await model.call()

    assert answer.code == INTERNAL
    assert len(model.batcher.requests) + len(other.requests) == 1


async def test_a_model_that_raised_is_answered_as_it_says(mesh: RouterMesh) -> None:
    model = await mesh.model()
    model.batcher.answer = lambda _: {"code": 13, "message": "no such word", "executed": YES}

    answer, rest = await model.call(), await model.rest(rest_request(1.0))

    assert (answer.code, answer.message) == (INTERNAL, "no such word")
    assert (rest.status, rest.body) == (500, {"error": "no such word"})
    assert len(model.batcher.requests) == 2


async def test_a_lost_link_moves_its_requests_to_the_other_replica(mesh: RouterMesh) -> None:
    model = await mesh.model()
    other = await model.second_batcher()
    model.batcher.answer = silence
    calls = [asyncio.create_task(model.call(float(n))) for n in range(8)]
    await all_asked(8, model.batcher, other)

    model.batcher.lose_links()
    answers = await asyncio.gather(*calls)

    assert {answer.code for answer in answers} == {OK}
    assert [a.response.raw_output_contents[0] for a in answers if a.response] == [floats(n, n) for n in range(8)]
    assert len(other.requests) == 8


async def test_a_lost_link_with_no_other_replica_is_an_error_at_once_and_mends(mesh: RouterMesh) -> None:
    model = await mesh.model()
    model.batcher.answer = silence
    call = asyncio.create_task(model.call())
    await model.batcher.until(lambda: model.batcher.requests)

    model.batcher.lose_links()
    answer = await call
    model.batcher.answer = echo
    await mesh.ready(model.name)

    assert (answer.code, answer.took_s < 2) == (INTERNAL, True)
    assert (await model.call()).code == OK


@pytest.mark.parametrize("rows", [1, 4000])
async def test_a_known_request_loses_nothing_on_any_way_it_can_take(mesh: RouterMesh, rows: int) -> None:
    model = await mesh.model(spec={"limits": {"max_request_rows": 5000}}, max_request_rows=5000)
    other = await model.second_batcher()
    request = infer_request(model.name, *map(float, range(rows)))
    wanting = pb.ModelInferRequest.FromString(request.SerializeToString())
    wanting.outputs.add(name="y")
    trace = [("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")]

    for _ in range(2):
        plain = [await mesh.call(request), await mesh.call(request, metadata=trace), await mesh.call(wanting)]
        await first_answers(model, other, refuse(NO))
        plain.append(await mesh.call(request))
        await first_answers(model, other, refuse(MAYBE))
        plain.append(await mesh.call(request))

        expected = request.raw_input_contents[0]
        assert [a.response.raw_output_contents[0] == expected for a in plain if a.response] == [True] * 5


async def test_a_draining_replica_gets_nothing_new_and_answers_what_it_has(mesh: RouterMesh) -> None:
    model = await mesh.model()
    other = await model.second_batcher()
    model.batcher.answer = silence
    calls = [asyncio.create_task(model.call(float(n))) for n in range(8)]
    await all_asked(8, model.batcher, other)
    held = list(model.batcher.requests)

    model.batcher.server.drain("stopping")
    for link in model.batcher.server.links:
        await has_read(link)
    answers = await asyncio.gather(*(model.call() for _ in range(8)))
    for request in held:
        model.batcher.reply(request, **(echo(request) or {}))

    assert {answer.code for answer in [*answers, *await asyncio.gather(*calls)]} == {OK}
    assert model.batcher.requests == held
    assert len(other.requests) == 16 - len(held)


async def test_an_answer_that_is_not_what_it_says_harms_only_its_caller(mesh: RouterMesh) -> None:
    model = await mesh.model()
    model.batcher.answer = lambda request: {**(echo(request) or {}), "stages_ns": [1, 2]}
    assert (await model.call(metadata=[("turnout-timing", "1")])).code == OK

    model.batcher.answer = silence
    waiting = asyncio.create_task(model.call(5.0))
    await model.batcher.until(lambda: len(model.batcher.requests) == 2)
    model.batcher.answer = lambda _: {"outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": b"abc"}]}
    rest = await model.rest(rest_request(1.0))
    model.batcher.reply(model.batcher.requests[1], **(echo(model.batcher.requests[1]) or {}))
    mesh.router.lines.clear()  # it is logged, as it should be

    assert (rest.status, rest.body) == (500, {"error": "internal error"})
    assert (await waiting).code == OK
