"""Routes as operators write them into etcd, live."""

import asyncio
import time
from collections import Counter

import grpc
import pytest

from services.core import keys
from services.core.split import point_of
from tests.support.proof import Starvation
from tests.support.puppets import signature
from tests.support.router_mesh import Answer, Model, RouterMesh, infer_request, rest_request, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

OK = grpc.StatusCode.OK
LIVE_S = 1.0  # within which a change takes effect on every router


def served(answer: Answer) -> tuple[str, str]:
    assert answer.code == OK, answer
    assert answer.response is not None
    return answer.response.model_version, answer.trailing["turnout-arm"]


async def by_key(model: Model, users: int) -> dict[str, str]:
    """User -> the version that served them."""
    answers = await asyncio.gather(
        *(model.call(metadata=[("x-routing-key", f"user-{number}")]) for number in range(users))
    )
    return {f"user-{number}": served(answer)[0] for number, answer in enumerate(answers)}


async def test_explicit_comes_before_pin_before_match_before_split(mesh: RouterMesh) -> None:
    model = await mesh.model("1", "2", "3", "4")
    route = {
        "stable": "1",
        "canary": {"2": 100},
        "labels": {"champion": "3"},
        "pins": {"qa-7": "4"},
        "match": [{"header": "x-beta", "equals": "1", "version": "3"}],
    }
    await model.route(route)
    pinned, matched = ("x-routing-key", "qa-7"), ("x-beta", "1")

    assert served(await model.call(version="champion", metadata=[pinned, matched])) == ("3", "explicit")
    assert served(await model.call(version="1", metadata=[pinned, matched])) == ("1", "explicit")
    assert served(await model.call(metadata=[pinned, matched])) == ("4", "pin")
    assert served(await model.call(metadata=[matched])) == ("3", "match")
    assert served(await model.call()) == ("2", "canary")
    rest = await model.rest(rest_request(1.0), version="champion")
    assert (rest.body["model_version"], rest.headers["turnout-arm"]) == ("3", "explicit")
    rest = await model.rest(rest_request(1.0), headers=dict([pinned]))
    assert (rest.body["model_version"], rest.headers["turnout-arm"]) == ("4", "pin")


async def test_a_split_is_the_one_that_every_router_computes(mesh: RouterMesh) -> None:
    model = await mesh.model("1", "2")
    await model.route({"stable": "1", "canary": [{"version": "2", "percent": 10, "at": 0}], "salt": "ctr"})

    assert await by_key(model, 300) == {
        f"user-{n}": "2" if point_of("ctr", f"user-{n}".encode()) < 100_000 else "1" for n in range(300)
    }


async def test_a_canary_grows_within_a_second_without_an_error_and_nobody_leaves_it(mesh: RouterMesh) -> None:
    model = await mesh.model("1", "2")
    share = {"version": "2", "percent": 10, "at": 0}
    await model.route({"stable": "1", "canary": [share]})
    before = await by_key(model, 400)
    errors: list[Answer] = []
    stop = asyncio.Event()

    async def load(number: int) -> None:
        while not stop.is_set():
            answer = await model.call(metadata=[("x-routing-key", f"user-{number}")])
            errors.extend([answer] if answer.code != OK else [])

    load_tasks = [asyncio.create_task(load(number)) for number in range(8)]
    newcomer = next(f"u{n}" for n in range(10_000) if 100_000 < point_of(model.name, f"u{n}".encode()) < 200_000)

    starved, began = Starvation(mesh.router.pid, mesh.server.pid), time.monotonic()
    await model.route({"stable": "1", "canary": [{**share, "percent": 20}]}, settled=False)

    async def has_moved() -> bool:
        return served(await model.call(metadata=[("x-routing-key", newcomer)]))[0] == "2"

    await until("the newcomer is in the canary", has_moved)
    took_s = time.monotonic() - began - starved.seconds
    after = await by_key(model, 400)
    stop.set()
    await asyncio.gather(*load_tasks)

    assert (errors, took_s < LIVE_S) == ([], True)
    assert 0.05 < Counter(before.values())["2"] / 400 < 0.16
    assert 0.13 < Counter(after.values())["2"] / 400 < 0.27
    assert {user for user, version in before.items() if version == "2"} < {u for u, v in after.items() if v == "2"}


async def test_a_canary_of_zero_gets_nobody_and_of_a_hundred_all(mesh: RouterMesh) -> None:
    model = await mesh.model("1", "2")
    for percent, expected in ((0, "1"), (100, "2")):
        await model.route({"stable": "1", "canary": {"2": percent}})

        assert set((await by_key(model, 100)).values()) == {expected}
        assert {served(await model.call())[0] for _ in range(20)} == {expected}


async def test_the_key_is_the_same_by_header_parameter_and_input_on_both_protocols(mesh: RouterMesh) -> None:
    ids = signature([("id", "INT64", [-1])], [("y", "INT64", [-1])])
    model = await mesh.model("1", "2", signature=ids)
    await model.route({"stable": "1", "canary": {"2": 50}, "sticky_by": "input:id"})
    data = {"name": "id", "datatype": "INT64", "shape": [1]}

    for number in range(12):
        expected = "2" if point_of(model.name, str(number).encode()) < 500_000 else "1"
        request = infer_request(model.name)
        del request.inputs[:], request.raw_input_contents[:]
        request.inputs.add(**data)
        request.raw_input_contents.append(number.to_bytes(8, "little"))

        assert served(await mesh.call(request))[0] == expected
        assert (await model.rest({"inputs": [{**data, "data": [number]}]})).body["model_version"] == expected
        keyed = await model.rest({"inputs": [{**data, "data": [99]}]}, headers={"x-routing-key": str(number)})
        assert keyed.body["model_version"] == expected

    await model.route({"stable": "1", "canary": {"2": 50}, "sticky_by": "user"})
    request.parameters["user"].string_param = "user-1"
    by_grpc = served(await mesh.call(request))[0]
    by_rest = await model.rest({"inputs": [{**data, "data": [1]}], "parameters": {"user": "user-1"}})
    assert by_grpc == by_rest.body["model_version"]


async def test_an_unready_canary_leaves_its_share_to_stable_and_the_metric_says_so(mesh: RouterMesh) -> None:
    model = await mesh.model("1", "2")
    await model.route({"stable": "1", "canary": {"2": 100}})
    assert served(await model.call()) == ("2", "canary")

    model.batcher.drop(model.name, "2")
    await until("stable serves", lambda: _is_served(model, ("1", "stable")))

    assert await mesh.metric("turnout_route_unready_versions", model=model.name) == 1
    explicit = await model.call(version="2")
    assert explicit.code in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.NOT_FOUND}


async def test_without_stable_the_fallback_serves_and_without_that_nobody_never_the_canary(mesh: RouterMesh) -> None:
    model = await mesh.model("1", "2", "3")
    route = {"stable": "1", "canary": {"2": 10}}
    await model.route(route)
    model.batcher.drop(model.name, "1")

    await until("nobody serves", lambda: _is_refused_for_stable(model))
    refused = await model.rest(rest_request(1.0), headers={"x-routing-key": outside(model)})
    await model.route({**route, "fallback": {"version": "3"}})

    assert (refused.status, "stable version 1 has no ready replica" in refused.body["error"]) == (503, True)
    assert refused.headers["Retry-After"] == "1"
    fallback = await model.call(metadata=[("x-routing-key", outside(model))])
    assert served(fallback) == ("3", "fallback")


def outside(model: Model) -> str:
    """A key that the canary at 0 to 10 % does not have."""
    return next(f"k{n}" for n in range(1000) if point_of(model.name, f"k{n}".encode()) > 100_000)


async def _is_refused_for_stable(model: Model) -> bool:
    answer = await model.call(metadata=[("x-routing-key", outside(model))])
    return answer.code == grpc.StatusCode.UNAVAILABLE


async def _is_served(model: Model, expected: tuple[str, str]) -> bool:
    answer = await model.call()
    if answer.code == grpc.StatusCode.UNAVAILABLE:  # it was chosen in the very turn in which its replica went
        return False
    return served(answer) == expected


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"{", "not JSON"),
        (b"1" * 5000, "4300 digits"),
        (b"\xff", ""),
        (b'{"stable": "1", "canry": {}}', "canry: unknown field"),
        (b'{"stable": "1", "canary": {"2": 101}}', "percent 101"),
        (b'{"stable": "1", "canary": {"2": 60, "3": 60}}', "over 100"),
        (b'{"stable": "1", "canary": {"2": -1}}', "-1"),
        (b'{"canary": {"2": 1}}', "stable"),
        (b"[]", ""),
    ],
)
async def test_a_bad_route_never_takes_effect_and_its_reason_stands_in_status_and_metric(
    mesh: RouterMesh, value: bytes, says: str
) -> None:
    model = await mesh.model("1", "2")
    good = await model.route({"stable": "2"})
    refusals = await mesh.metric("turnout_config_refused")

    await mesh.put(f"routes/{model.name}", value)
    status = await until("it is refused", lambda: _refusal(mesh, model))

    assert says in status.refused[f"routes/{model.name}"]
    assert status.accepted[f"routes/{model.name}"] == good
    assert served(await model.call()) == ("2", "stable")
    assert await mesh.metric("turnout_config_refused") == refusals + 1
    await model.route({"stable": "1"})
    assert served(await model.call()) == ("1", "stable")
    assert f"routes/{model.name}" not in (await mesh.status()).refused


async def _refusal(mesh: RouterMesh, model: Model) -> object:
    status = await mesh.status()
    return status if f"routes/{model.name}" in status.refused else None


async def test_a_key_that_is_no_text_is_refused_and_nothing_else_suffers(mesh: RouterMesh) -> None:
    model = await mesh.model()
    key = "routes/\udcff\udcfe"

    await mesh.put(key, {"stable": "1"})
    await until("it is refused", lambda: _refused_count(mesh))
    await mesh.etcd.delete(key)

    assert (await model.call()).code == OK


async def _refused_count(mesh: RouterMesh) -> float:
    return await mesh.metric("turnout_config_refused")


async def test_a_route_to_a_version_that_no_pod_has_waits_for_one(mesh: RouterMesh) -> None:
    model = await mesh.model("1", "2")
    inventory = keys.status("runtime", f"r-{model.name}", "inventory")
    await mesh.put(inventory, {"models": {model.name: {"1": {"state": "READY"}}}})
    await mesh.put(f"routes/{model.name}", {"stable": "2"})

    status = await until("it is refused", lambda: _refusal(mesh, model))
    assert served(await model.call(version="1"))[0] == "1"
    await mesh.put(inventory, {"models": {model.name: {"1": {"state": "READY"}, "2": {"state": "READY"}}}})
    await until("stable 2 serves", lambda: _is_served(model, ("2", "stable")))

    assert "no pod knows version 2" in status.refused[f"routes/{model.name}"]  # type: ignore[attr-defined]
    await mesh.etcd.delete(inventory)


async def test_a_deleted_route_gives_way_to_the_default_version(mesh: RouterMesh) -> None:
    model = await mesh.model("1", "2", spec={"default_version": "1"})
    await model.route({"stable": "2"})

    await mesh.etcd.delete(f"routes/{model.name}")
    await until("the default serves", lambda: _is_served(model, ("1", "stable")))

    await mesh.etcd.delete(f"models/{model.name}")

    async def is_unknown() -> bool:
        return (await model.call()).code == grpc.StatusCode.NOT_FOUND

    await until("the model is unknown", is_unknown)


async def test_a_model_may_refuse_anonymous_callers_and_named_versions(mesh: RouterMesh) -> None:
    model = await mesh.model("1", spec={"access": {"explicit_versions": False}})
    named = await model.call(version="1")
    await mesh.put(f"models/{model.name}", {"access": {"anonymous": False}})

    async def is_refused() -> bool:
        return (await model.call()).code == grpc.StatusCode.UNAUTHENTICATED

    await until("anonymous callers are refused", is_refused)
    assert (named.code, "leave the version empty" in named.message) == (grpc.StatusCode.INVALID_ARGUMENT, True)
    assert (await model.rest(rest_request(1.0))).status == 401
