"""Requests of sequences: what is asked of their parameters, and that a sequence keeps to one version and replica."""

from collections.abc import Mapping
from typing import Any

import grpc
import pytest

from inference import grpc_service_pb2 as pb
from tests.support.puppets import PuppetBatcher, refuse
from tests.support.router_mesh import Answer, Model, RouterMesh, infer_request, rest_request, until
from turnout.v1 import link_pb2

pytestmark = pytest.mark.asyncio(loop_scope="module")

OK, INVALID = grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT
SPEC: dict[str, Any] = {"batching": {"sequence_batching": {}}}


def parameter(value: object) -> pb.InferParameter:
    if isinstance(value, bool):
        return pb.InferParameter(bool_param=value)
    if isinstance(value, str):
        return pb.InferParameter(string_param=value)
    if isinstance(value, float):
        return pb.InferParameter(double_param=value)
    assert isinstance(value, int)
    return pb.InferParameter(uint64_param=value) if value >= 1 << 63 else pb.InferParameter(int64_param=value)


async def call(model: Model, parameters: Mapping[str, object], *rows: float, **fields: Any) -> Answer:
    request = infer_request(model.name, *(rows or (1.0,)), **fields)
    for name, value in parameters.items():
        request.parameters[name].CopyFrom(parameter(value))
    return await model.mesh.call(request)


def seen(batcher: PuppetBatcher) -> list[link_pb2.Sequence]:
    found = [request.sequence for request in batcher.requests]
    batcher.requests.clear()
    return found


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (7, {"number": 7}),
        ((1 << 64) - 1, {"number": (1 << 64) - 1}),
        (-1, {"number": (1 << 64) - 1}),
        ("7", {"text": "7"}),
        ("ünï", {"text": "ünï"}),
    ],
)
async def test_a_sequence_reaches_the_batcher_as_the_caller_named_it(
    mesh: RouterMesh, given: int | str, sent: dict[str, Any]
) -> None:
    model = await mesh.model(spec=SPEC)
    parameters = {"sequence_id": given, "sequence_start": True, "sequence_end": False}

    answer = await call(model, parameters)
    rest = await model.rest(rest_request(1.0, parameters=parameters))

    assert (answer.code, rest.status) == (OK, 200)
    assert seen(model.batcher) == [link_pb2.Sequence(start=True, **sent)] * 2


@pytest.mark.parametrize("given", [{}, {"sequence_id": 0}, {"sequence_id": ""}, {"sequence_start": True}])
async def test_a_model_with_state_takes_no_request_without_a_sequence(
    mesh: RouterMesh, given: dict[str, object]
) -> None:
    model = await mesh.model(spec=SPEC)

    answer = await call(model, given)
    rest = await model.rest(rest_request(1.0, parameters=given))

    assert (answer.code, rest.status) == (INVALID, 400)
    assert "send parameter 'sequence_id'" in answer.message
    assert rest.body == {"error": answer.message}
    assert not model.batcher.requests


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"sequence_id": True}, "takes a whole number of 64 bits, or text"),
        ({"sequence_id": 1.5}, "takes a whole number of 64 bits, or text"),
        ({"sequence_id": "x" * 129}, "has 129 characters; it takes at most 128"),
        ({"sequence_id": 1, "sequence_start": 1}, "parameter 'sequence_start' is '1'; it takes true or false"),
        ({"sequence_id": 1, "sequence_end": "yes"}, "parameter 'sequence_end' is 'yes'; it takes true or false"),
    ],
)
async def test_parameters_of_the_wrong_type_are_refused_saying_what_is_right(
    mesh: RouterMesh, given: dict[str, object], text: str
) -> None:
    model = await mesh.model(spec=SPEC)

    answer = await call(model, given)
    rest = await model.rest(rest_request(1.0, parameters=given))

    assert (answer.code, rest.status) == (INVALID, 400)
    assert text in answer.message
    assert rest.body == {"error": answer.message}


async def test_a_request_of_a_sequence_has_one_row(mesh: RouterMesh) -> None:
    model = await mesh.model(spec=SPEC)

    answer = await call(model, {"sequence_id": 1, "sequence_start": True}, 1.0, 2.0)

    assert answer.code == INVALID
    assert "a request of a sequence has 1 row, not 2" in answer.message


async def test_other_models_ignore_the_parameters(mesh: RouterMesh) -> None:
    model = await mesh.model()

    answer = await call(model, {"sequence_id": True, "sequence_start": 1}, 1.0, 2.0)

    assert answer.code == OK
    assert not model.batcher.requests[0].HasField("sequence")


async def two_replicas(mesh: RouterMesh) -> tuple[Model, PuppetBatcher]:
    """A model on two replicas, once the router uses both."""
    model = await mesh.model(spec=SPEC)
    other = await mesh.batcher()
    await other.serve(mesh.etcd, model.name, "1")
    numbers = iter(range(1, 1 << 20))

    async def is_used() -> bool:
        await call(model, {"sequence_id": next(numbers)})
        return bool(other.requests)

    await until("the second replica is used", is_used)
    other.requests.clear()
    model.batcher.requests.clear()
    return model, other


async def test_a_sequence_keeps_to_one_replica_and_sequences_use_both(mesh: RouterMesh) -> None:
    model, other = await two_replicas(mesh)

    for _ in range(3):
        for number in range(1, 21):
            await call(model, {"sequence_id": number})
    first = [sequence.number for sequence in seen(model.batcher)]
    second = [sequence.number for sequence in seen(other)]

    assert not set(first) & set(second)
    assert sorted(first + second) == sorted([*range(1, 21)] * 3)
    assert min(len(first), len(second)) >= 6


async def test_a_request_of_a_sequence_is_sent_to_no_second_replica(mesh: RouterMesh) -> None:
    model, other = await two_replicas(mesh)
    model.batcher.answer = other.answer = refuse(link_pb2.EXECUTED_NO)

    answer = await call(model, {"sequence_id": 1, "sequence_start": True})

    assert answer.code == grpc.StatusCode.UNAVAILABLE
    assert len(model.batcher.requests) + len(other.requests) == 1


async def test_a_lost_link_ends_a_request_of_a_sequence_as_one_that_may_have_run(mesh: RouterMesh) -> None:
    model, other = await two_replicas(mesh)

    def die(_request: object) -> None:
        model.batcher.lose_links()
        other.lose_links()

    model.batcher.answer = other.answer = die

    answer = await call(model, {"sequence_id": 1, "sequence_start": True})

    assert answer.code == grpc.StatusCode.INTERNAL
    assert "may have run" in answer.message


async def test_without_another_routing_key_the_sequence_chooses_the_version(mesh: RouterMesh) -> None:
    model = await mesh.model("1", "2", spec=SPEC)
    await model.route({"stable": "1", "canary": {"2": 50}})

    async def versions(**fields: Any) -> list[set[str]]:
        found = []
        for number in range(1, 17):
            answers = [await call(model, {"sequence_id": number}, **fields) for _ in range(4)]
            found.append({answer.response.model_version for answer in answers if answer.response})
        return found

    by_sequence = await versions()
    await model.route({"stable": "1", "canary": {"2": 50}, "sticky_by": "user"})

    assert [len(each) for each in by_sequence] == [1] * 16
    assert set.union(*by_sequence) == {"1", "2"}
    assert by_sequence == await versions()  # a request without the parameter has no other key


async def test_the_routing_key_goes_before_the_sequence(mesh: RouterMesh) -> None:
    model = await mesh.model("1", "2", spec=SPEC)
    await model.route({"stable": "1", "canary": {"2": 50}, "sticky_by": "user"})

    answers = [await call(model, {"sequence_id": number, "user": "ana"}) for number in range(1, 17)]

    assert len({answer.response.model_version for answer in answers if answer.response}) == 1
