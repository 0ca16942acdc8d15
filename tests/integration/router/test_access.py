"""Who may call, on both front doors and REST: every refusal, every permission, and how soon a change holds."""

import asyncio
import gzip
import secrets
import signal
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import grpc.aio
import pytest
import pytest_asyncio

from inference import grpc_service_pb2 as pb
from services.core.api_key import ApiKey
from tests.support.credentials import AUDIENCE, ISSUER, Issuer, new_key, stored
from tests.support.router_mesh import (
    FRONTS,
    TIMEOUT_S,
    Model,
    RouterMesh,
    infer_request,
    rest_request,
    router_mesh,
    until,
)
from tests.support.service_process import started

pytestmark = pytest.mark.asyncio(loop_scope="module")
Code = grpc.StatusCode
OK = (Code.OK, 200)
UNAUTHENTICATED = (Code.UNAUTHENTICATED, 401)
DENIED = (Code.PERMISSION_DENIED, 403)
EXHAUSTED = (Code.RESOURCE_EXHAUSTED, 429)
Credentials = Mapping[str, str]
ANONYMOUS: Credentials = {}


class Guarded(RouterMesh):
    """A router that lets nobody in without callers/, and an issuer whose tokens it takes."""

    issuer: Issuer

    async def caller(self, **spec: Any) -> tuple[str, ApiKey]:
        """A caller with one key, known to the router."""
        name, key = f"c-{secrets.token_hex(4)}", new_key()
        await self.settle(name, {"keys": stored(key), **spec})
        return name, key

    async def settle(self, name: str, spec: Mapping[str, Any] | bytes) -> None:
        """Write callers/NAME, and return once the router has judged it."""
        revision = await self.put(f"callers/{name}", spec)

        async def is_judged() -> bool:
            status = await self.status()
            judged = (status.accepted.get(f"callers/{name}"), status.refused_at.get(f"callers/{name}"))
            return revision in judged

        await until(f"caller {name} is judged", is_judged)

    async def refusals(self, caller: str, reason: str) -> float:
        return await self.metric("turnout_refused_calls_total", caller=caller, reason=reason)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=FRONTS)
async def mesh(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RouterMesh]:
    folder = tmp_path_factory.mktemp("access")
    issuer = Issuer(folder / "keys.json")
    settings = {
        "anonymous": "refuse",
        "jwt_issuer": ISSUER,
        "jwt_audience": AUDIENCE,
        "jwt_keys": folder / "keys.json",
        "jwt_leeway_s": 5,
    }
    async with router_mesh(folder, request.param, **settings) as made:
        made.__class__ = Guarded
        made.issuer = issuer  # type: ignore[attr-defined]
        _, scraper = await made.caller(roles=["read-metrics"])  # type: ignore[attr-defined]
        made.scrape_headers = bearer(scraper)
        yield made


def bearer(secret: ApiKey | str) -> Credentials:
    return {"authorization": f"Bearer {secret.text() if isinstance(secret, ApiKey) else secret}"}


def api_key_header(key: ApiKey) -> Credentials:
    return {"x-api-key": key.text()}


async def codes(model: Model, credentials: Credentials) -> tuple[grpc.StatusCode, int]:
    """What a gRPC call and a REST call come to."""
    answer = await model.call(metadata=list(credentials.items()))
    rest = await model.rest(rest_request(1.0), headers=credentials)
    return answer.code, rest.status


async def metadata_code(model: Model, credentials: Credentials) -> tuple[grpc.StatusCode, int]:
    """What a slow method comes to."""
    request = pb.ModelMetadataRequest(name=model.name)
    try:
        await model.mesh.stub.ModelMetadata(request, metadata=list(credentials.items()), timeout=TIMEOUT_S)
        code = Code.OK
    except grpc.aio.AioRpcError as error:
        code = error.code()
    rest = await model.mesh.rest(f"/v2/models/{model.name}", method="GET", headers=credentials)
    return code, rest.status


async def test_strangers_get_in_only_where_the_model_says_so(mesh: Guarded) -> None:
    closed, opened = await mesh.model(), await mesh.model(spec={"access": {"anonymous": True}})
    _, key = await mesh.caller()
    counted = await mesh.refusals("", "anonymous")

    assert await codes(closed, ANONYMOUS) == await metadata_code(closed, ANONYMOUS) == UNAUTHENTICATED
    assert await codes(opened, ANONYMOUS) == await metadata_code(opened, ANONYMOUS) == OK
    assert await codes(closed, bearer(key)) == await metadata_code(closed, bearer(key)) == OK
    assert await codes(closed, api_key_header(key)) == OK
    answer = await closed.call()
    assert "takes no anonymous callers: send `authorization: Bearer KEY` or `x-api-key: KEY`" in answer.message
    unknown = await mesh.call(infer_request("no-such-model", 1.0))
    assert (unknown.code, opened.name in unknown.message) == (Code.UNAUTHENTICATED, False)
    assert await mesh.refusals("", "anonymous") == counted + 6
    live = await mesh.rest("/v2/health/live", method="GET")
    assert (live.status, (await mesh.rest("/v2", method="GET")).status) == (200, 200)
    assert (await mesh.rest("/v2/models", method="GET")).status == 401


async def test_credentials_that_are_wrong_are_refused_even_where_none_are_needed(mesh: Guarded) -> None:
    model = await mesh.model(spec={"access": {"anonymous": True}})
    name, key = await mesh.caller()
    old = new_key()
    await mesh.settle(name, {"keys": {**stored(key), **stored(old, expires="2020-01-01T00:00:00Z")}})
    stranger = new_key()
    wrong = {
        "another secret": bearer(ApiKey(key.id, stranger.secret)),
        "an unknown key": bearer(stranger),
        "half a key": bearer(key.text()[:-1]),
        "an expired key": bearer(old),
        "another scheme": {"authorization": "Basic c2hvcDpzaG9w"},
        "no token": bearer("x.y.z"),
        "no key": {"x-api-key": "hunter2"},
    }

    assert {what: await codes(model, sent) for what, sent in wrong.items()} == dict.fromkeys(wrong, UNAUTHENTICATED)
    messages = [(await model.call(metadata=list(sent.items()))).message for sent in wrong.values()]
    assert messages[:2] == ["the API key is not known here: it may have been revoked"] * 2
    assert messages[3] == "the API key expired at 2020-01-01T00:00:00+00:00"
    log = "".join(mesh.router.lines)
    status = (await mesh.status()).dump().decode()
    for secret in (key.secret, stranger.secret, old.secret, "hunter2"):
        assert secret not in log
        assert secret not in status
        assert all(secret not in message for message in messages)


async def test_a_caller_does_what_its_roles_and_models_say_and_no_more(mesh: Guarded) -> None:
    one, other = await mesh.model(), await mesh.model()
    name, key = await mesh.caller(models=[f"{one.name[:5]}*", one.name])
    _, reader = await mesh.caller(roles=["read-metrics"])
    _, off = await mesh.caller(enabled=False)

    assert await codes(one, bearer(key)) == OK
    assert await codes(other, bearer(key)) == await metadata_code(other, bearer(key)) == DENIED
    assert await codes(one, bearer(reader)) == await codes(one, bearer(off)) == DENIED
    assert (await other.call(metadata=list(bearer(key).items()))).message == (
        f"caller {name} may not call model {other.name}"
    )
    assert await mesh.refusals(name, "model") == 5

    await mesh.put(f"models/{one.name}", {"access": {"callers": {"somebody-else": ["predict"]}}})

    async def is_narrowed() -> bool:
        return await codes(one, bearer(key)) == DENIED

    await until("the model's own list holds", is_narrowed)


async def test_metrics_statistics_and_lists_are_for_those_who_may_see_them(mesh: Guarded) -> None:
    one, other = await mesh.model(), await mesh.model()
    _, key = await mesh.caller(models=[one.name])
    statistics = f"/v2/models/{one.name}/stats"

    async def statuses(credentials: Credentials) -> list[int]:
        async with aiohttp.ClientSession() as session:
            url = f"http://{mesh.metrics_address}/metrics"
            async with session.get(url, headers=credentials) as answer:
                scraped = answer.status
        return [scraped, (await mesh.rest(statistics, method="GET", headers=credentials)).status]

    assert await statuses(ANONYMOUS) == [401, 401]
    assert await statuses(bearer(key)) == [403, 403]
    assert await statuses(mesh.scrape_headers) == [200, 200]
    listed = await mesh.rest("/v2/models", method="GET", headers=bearer(key))
    assert listed.body == {"models": [one.name]}
    unknown = await mesh.call(infer_request("no-such-model", 1.0), metadata=list(bearer(key).items()))
    assert (unknown.code, other.name in unknown.message) == (Code.PERMISSION_DENIED, False)


async def test_a_revoked_key_is_refused_within_a_second(mesh: Guarded) -> None:
    model = await mesh.model()
    took_s = []
    for _ in range(3):  # the best of three: a busy machine is no fault of ours
        name, key = await mesh.caller()
        assert await codes(model, bearer(key)) == OK

        began = time.monotonic()
        await mesh.put(f"callers/{name}", {})
        while (await model.call(metadata=list(bearer(key).items()))).code == Code.OK:
            assert time.monotonic() - began < TIMEOUT_S
        took_s.append(time.monotonic() - began)

        assert await codes(model, bearer(key)) == UNAUTHENTICATED
    assert min(took_s) < 1


async def test_keys_are_replaced_without_a_gap_and_a_bad_value_changes_nothing(mesh: Guarded) -> None:
    model = await mesh.model()
    name, old = await mesh.caller()
    new, leaked = new_key(), new_key()

    await mesh.settle(name, {"keys": stored(old, new)})
    assert await codes(model, bearer(old)) == await codes(model, bearer(new)) == OK

    await mesh.settle(name, {"keys": stored(new)})
    assert (await codes(model, bearer(old)), await codes(model, bearer(new))) == (UNAUTHENTICATED, OK)

    await mesh.settle(name, {"keys": {leaked.text(): {}}})
    assert await codes(model, bearer(new)) == OK
    assert leaked.secret not in str((await mesh.status()).refused)
    thief, _ = await mesh.caller()
    await mesh.settle(thief, {"keys": stored(new)})
    assert f"is a key of caller {name}" in (await mesh.status()).refused[f"callers/{thief}"]
    assert leaked.secret not in "".join(mesh.router.lines)


async def test_tokens_of_the_issuer_are_callers(mesh: Guarded) -> None:
    model, issuer = await mesh.model(), mesh.issuer
    subject = f"s-{secrets.token_hex(4)}"
    await mesh.settle(f"c-{subject}", {"tokens": [{"subject": subject}, {"claims": {"groups": subject}}]})

    async def is_taken() -> bool:
        return await codes(model, bearer(issuer.token(sub=subject))) == OK

    await until("the issuer's keys are read", is_taken)
    assert await codes(model, bearer(issuer.token(sub="9", groups=["a", subject]))) == OK
    assert await codes(model, bearer(issuer.token(sub="nobody"))) == UNAUTHENTICATED
    assert await codes(model, bearer(issuer.token(sub=subject, exp=time.time() - 60))) == UNAUTHENTICATED
    assert await codes(model, bearer(issuer.token(sub=subject, aud="others"))) == UNAUTHENTICATED

    before = issuer.token(sub=subject)
    issuer.rotate()
    await until("the next key is read", is_taken)

    async def is_refused() -> bool:
        return await codes(model, bearer(before)) == UNAUTHENTICATED

    await until("the key of before is gone", is_refused)


async def test_over_its_limit_a_caller_waits_as_long_as_it_is_told(mesh: Guarded) -> None:
    model = await mesh.model()
    name, key = await mesh.caller(limits={"requests_per_s": 0.01, "burst_s": 300})
    sent = list(bearer(key).items())

    assert [(await model.call(metadata=sent)).code for _ in range(3)] == [Code.OK] * 3
    over = await model.call(metadata=sent)
    rest = await model.rest(rest_request(1.0), headers=bearer(key))

    assert (over.code, rest.status) == EXHAUSTED
    assert over.message == f"caller {name} is over its limit of 0.01 requests/s"
    assert 0 < (over.retry_ms() or 0) <= 100_000
    assert 0 < int(rest.headers["Retry-After"]) <= 100
    assert await mesh.refusals(name, "requests_per_s") == 2


async def test_rows_and_places_are_limited_too(mesh: Guarded) -> None:
    model = await mesh.model()
    _, rows = await mesh.caller(limits={"rows_per_s": 0.01, "burst_s": 100})
    name, places = await mesh.caller(limits={"max_concurrency": 1})

    many = await model.call(1.0, 2.0, 3.0, metadata=list(bearer(rows).items()))
    assert (many.code, await codes(model, bearer(rows))) == (Code.OK, EXHAUSTED)

    model.batcher.answer = lambda _: None
    seen = len(model.batcher.requests)
    held = asyncio.create_task(model.call(metadata=list(bearer(places).items())))

    async def is_held() -> bool:
        return len(model.batcher.requests) > seen

    await until("the first request is there", is_held)
    assert await codes(model, bearer(places)) == EXHAUSTED
    assert await mesh.refusals(name, "concurrency") == 2
    held.cancel()

    async def is_let_go() -> bool:
        model.batcher.reply(model.batcher.requests[-1])
        return (await model.call(timeout_s=0.5, metadata=list(bearer(places).items()))).code == Code.DEADLINE_EXCEEDED

    await until("a request that its caller gave up holds no place", is_let_go)


async def test_a_priority_above_the_ceiling_is_lowered_to_it(mesh: Guarded) -> None:
    batching = {"priority_levels": 3, "default_priority_level": 1}
    model = await mesh.model(spec={"batching": batching})
    _, key = await mesh.caller(limits={"max_priority": 2})
    seen = len(model.batcher.requests)

    for asked in (None, 1, 2, 3):
        parameters = {"priority": pb.InferParameter(uint64_param=asked)} if asked else {}
        request = infer_request(model.name, 1.0, parameters=parameters)
        assert (await mesh.call(request, metadata=list(bearer(key).items()))).code == Code.OK

    assert [request.priority for request in model.batcher.requests[seen:]] == [2, 2, 2, 3]


async def test_what_the_mesh_tells_itself_counts_from_trusted_callers_only(mesh: Guarded) -> None:
    model = await mesh.model("1", "2")
    match = [{"header": name, "equals": "yes", "version": "2"} for name in ("x-turnout-beta", "x-beta")]
    await model.route({"stable": "1", "match": match})
    _, key = await mesh.caller()
    _, trusted = await mesh.caller(roles=["predict", "internal"])

    async def version(credentials: Credentials, header: str) -> str:
        answer = await model.call(metadata=[*credentials.items(), (header, "yes")])
        assert answer.response is not None
        return answer.response.model_version

    assert await version(bearer(key), "x-turnout-beta") == "1"
    assert await version(bearer(key), "x-beta") == "2"
    assert await version(bearer(trusted), "x-turnout-beta") == "2"


async def test_who_guesses_is_told_to_wait_and_holds_up_nobody_else(mesh: Guarded) -> None:
    model = await mesh.model()
    _, key = await mesh.caller()
    body = rest_request(1.0)
    url = f"http://{mesh.rest_address}/v2/models/{model.name}/infer"
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)

    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(local_addr=("127.0.0.2", 0)), timeout=timeout
    ) as guesser:
        statuses = []
        while 429 not in statuses and len(statuses) < 2000:
            async with guesser.post(url, json=body, headers=bearer(new_key())) as answer:
                statuses.append(answer.status)
        assert (set(statuses), "Retry-After" in answer.headers) == ({401, 429}, True)
        async with guesser.post(url, json=body, headers=bearer(key)) as answer:
            assert answer.status == 200

    assert await codes(model, bearer(key)) == OK


async def test_two_routers_enforce_half_of_a_limit_each(mesh: Guarded) -> None:
    model = await mesh.model()
    limits = {"requests_per_s": 0.01, "burst_s": 400}
    environ = {**mesh.environ, "TURNOUT_ROUTER_DATA_DIR": str(mesh.folder / "second")}

    async def passed() -> int:
        """How many requests of a new caller this router takes at once."""
        _, key = await mesh.caller(limits=limits)
        return [(await model.call(metadata=list(bearer(key).items()))).code for _ in range(5)].count(Code.OK)

    async def takes(count: int) -> bool:
        return await passed() == count

    assert await passed() == 4
    async with started("services.router", environ) as second:
        await second.address("grpc")
        await until("a second router halves the limit", lambda: takes(2))
        second.signal(signal.SIGTERM)
        assert await second.exit_code() == 0
    await until("the limit is whole again", lambda: takes(4))


async def test_the_index_shows_a_caller_its_own_models(mesh: Guarded) -> None:
    model, other = await mesh.model(), await mesh.model()
    _, key = await mesh.caller(roles=["predict"], models=[model.name])
    rest = await mesh.rest("/v2/repository/index", headers=bearer(key))
    asked = mesh.stub.RepositoryIndex(
        pb.RepositoryIndexRequest(), metadata=list(bearer(key).items()), timeout=TIMEOUT_S
    )
    shown = {each.name for each in (await asked).models}

    assert {each["name"] for each in rest.body} == shown == {model.name}
    assert other.name not in shown


async def test_what_is_about_the_fleet_is_not_for_who_has_some_of_its_models(mesh: Guarded) -> None:
    model, other = await mesh.model(), await mesh.model()
    name, key = await mesh.caller(roles=["manage", "read-metrics", "predict"], models=[model.name])
    sent, address = list(bearer(key).items()), await mesh.router.address("management")

    async def code(method: Any, request: Any) -> grpc.StatusCode:
        try:
            await method(request, metadata=sent, timeout=TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            return error.code()
        return Code.OK

    async def managed(path: str) -> int:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)) as session,
            session.get(f"http://{address}{path}", headers=bearer(key)) as answer,
        ):
            return answer.status

    own, all_ = [f"/v2/models/{model.name}/stats"], ["/v2/models/stats", "/v2/trace/setting", "/v2/logging"]
    assert [await managed(path) for path in [*own, f"/v2/models/{model.name}/trace/setting"]] == [200, 200]
    assert [await managed(path) for path in [*all_, "/management/v1/routes"]] == [403] * 4
    assert await managed(f"/management/v1/routes/{other.name}") == 403
    statistics = [pb.ModelStatisticsRequest(name=each) for each in (model.name, other.name, "")]
    codes = [await code(mesh.stub.ModelStatistics, each) for each in statistics]
    assert codes == [Code.OK, Code.PERMISSION_DENIED, Code.PERMISSION_DENIED]
    assert await code(mesh.stub.LogSettings, pb.LogSettingsRequest()) == Code.PERMISSION_DENIED
    refused = await mesh.rest("/v2/models/stats", method="GET", headers=bearer(key))
    said = f"caller {name} may read metrics of some models only, and this is about all"
    assert (refused.status, refused.body["error"]) == (403, said)


async def test_a_large_body_is_read_only_of_who_may_call(mesh: Guarded) -> None:
    model = await mesh.model()
    name, key = await mesh.caller(models=["others-*"])
    text = b"[" * 70_000  # which is no JSON: whoever reads it says so
    squeezed = {"content-encoding": "gzip"}

    for path in (f"/v2/models/{model.name}/infer", f"/v1/models/{model.name}:predict"):
        for headers, body in (({}, text), (squeezed, gzip.compress(text)), (squeezed, b"no gzip" * 1000)):
            stranger = await mesh.rest(path, body, headers=headers)
            caller = await mesh.rest(path, body, headers={**headers, **bearer(key)})
            assert (stranger.status, caller.status) == (401, 403)
            assert caller.body["error"] == f"caller {name} may not call model {model.name}"


async def test_management_takes_its_role_on_its_own_listener_too(mesh: Guarded) -> None:
    _, caller = await mesh.caller(roles=["predict"])
    _, operator = await mesh.caller(roles=["manage"])
    address = await mesh.router.address("management")

    async def status(credentials: Credentials) -> int:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)) as session,
            session.get(f"http://{address}/management/v1/routes", headers=credentials) as answer,
        ):
            return answer.status

    assert [await status(each) for each in (ANONYMOUS, bearer(caller), bearer(operator))] == [401, 403, 200]
