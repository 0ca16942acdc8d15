"""Management over gRPC and REST: on its own listener, to the whole fleet, refused elsewhere."""

import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp
import grpc.aio
import pytest
import pytest_asyncio

from inference import grpc_service_pb2 as pb
from inference import grpc_service_pb2_grpc
from services.core.model_spec import ModelSpec
from tests.support.channels import own_channel
from tests.support.router_mesh import TIMEOUT_S, RouterMesh, infer_request, until
from tests.support.said_pod import SaidPod, Versions

pytestmark = pytest.mark.asyncio(loop_scope="module")

SETTINGS = {"management_grpc_address": "127.0.0.1:0", "log_level": "info"}


class Said(NamedTuple):
    code: int
    body: Any
    headers: Any


class Managed:
    """Both management listeners of a router."""

    def __init__(self, mesh: RouterMesh, rest: str, channel: grpc.aio.Channel) -> None:
        self.mesh = mesh
        self.rest_address = rest
        self.stub: Any = grpc_service_pb2_grpc.GRPCInferenceServiceStub(channel)

    async def rest(self, method: str, path: str, body: Any = None, **headers: str) -> Said:
        data = json.dumps(body).encode() if body is not None else None
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)) as session,
            session.request(method, f"http://{self.rest_address}{path}", data=data, headers=named) as answer,
        ):
            text = await answer.text()
            return Said(answer.status, json.loads(text) if text else None, answer.headers)

    async def act(self, protocol: str, what: str, model: str, parameters: dict[str, Any]) -> tuple[Any, str]:
        """Load or unload: the status, and what an error says."""
        if protocol == "rest":
            said = await self.rest("POST", f"/v2/repository/models/{model}/{what}", {"parameters": parameters})
            return said.code, said.body.get("error", "")
        kind = {"load": pb.RepositoryModelLoadRequest, "unload": pb.RepositoryModelUnloadRequest}[what]
        request: Any = kind(model_name=model)
        for name, value in parameters.items():
            field = {str: "string_param", bool: "bool_param", bytes: "bytes_param"}[type(value)]
            setattr(request.parameters[name], field, value)
        call = {"load": self.stub.RepositoryModelLoad, "unload": self.stub.RepositoryModelUnload}[what]
        return await outcome(call(request, timeout=TIMEOUT_S))

    async def index(self, protocol: str, **fields: Any) -> list[tuple[str, str, str, str]]:
        if protocol == "rest":
            said = await self.rest("POST", "/v2/repository/index", fields)
            assert said.code == 200, said
            return [(each["name"], each["version"], each["state"], each["reason"]) for each in said.body]
        answer = await self.stub.RepositoryIndex(pb.RepositoryIndexRequest(**fields), timeout=TIMEOUT_S)
        return [(each.name, each.version, each.state, each.reason) for each in answer.models]

    async def spec(self, model: str) -> dict[str, Any] | None:
        entry = await self.mesh.etcd.get(f"models/{model}")
        return json.loads(entry.value) if entry else None


async def outcome(call: Any) -> tuple[int, str]:
    """A gRPC call as its HTTP status."""
    codes = {"INVALID_ARGUMENT": 400, "NOT_FOUND": 404, "PERMISSION_DENIED": 403, "UNIMPLEMENTED": 501,
             "UNAVAILABLE": 503, "DEADLINE_EXCEEDED": 504, "ALREADY_EXISTS": 400}  # fmt: skip
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return codes[error.code().name], error.details() or ""
    return 200, ""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def managed(mesh: RouterMesh) -> AsyncIterator[Managed]:
    async with own_channel(await mesh.router.address("management_grpc")) as channel:
        yield Managed(mesh, await mesh.router.address("management"), channel)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pod(mesh: RouterMesh) -> AsyncIterator[SaidPod]:
    async with SaidPod(mesh.etcd, "said-1") as pod:
        yield pod


@asynccontextmanager
async def known(mesh: RouterMesh, pod: SaidPod, make: Callable[[ModelSpec], Versions]) -> AsyncIterator[str]:
    """A model that the pod makes something of, and that a batcher would serve as version 1."""
    name, batcher = f"m-{secrets.token_hex(4)}", await mesh.batcher()
    pod.makes[name] = make
    pod.lets_go[name] = lambda: batcher.drop(name, "1")
    await batcher.serve(mesh.etcd, name, "1")
    yield name
    await mesh.etcd.delete(f"models/{name}")


def ready(_: ModelSpec) -> Versions:
    return {"1": {"state": "READY", "digest": "sha-1"}}


def broken(_: ModelSpec) -> Versions:
    return {"1": {"state": "UNAVAILABLE", "reason": "the file is no model"}}


PROTOCOLS = pytest.mark.parametrize("protocol", ["rest", "grpc"])


# -- the model repository


@PROTOCOLS
async def test_what_is_loaded_takes_requests_at_once(managed: Managed, pod: SaidPod, protocol: str) -> None:
    async with known(managed.mesh, pod, ready) as model:
        loaded = await managed.act(protocol, "load", model, {"config": '{"max_batch_size": 7}'})
        answered = await managed.mesh.call(infer_request(model, 1.0))
        rows = await managed.index(protocol, ready=True)
        spec = await managed.spec(model)

    assert (loaded, answered.code) == ((200, ""), grpc.StatusCode.OK)
    assert (model, "1", "READY", "") in rows
    assert spec == {"batching": {"max_batch_size": 7}}


@PROTOCOLS
async def test_a_load_that_fails_leaves_the_spec_of_before(managed: Managed, pod: SaidPod, protocol: str) -> None:
    async with known(managed.mesh, pod, ready) as model:
        await managed.act(protocol, "load", model, {"config": '{"max_batch_size": 7}'})
        before = await managed.spec(model)
        pod.makes[model] = lambda spec: broken(spec) if spec.batching.max_batch_size == 8 else ready(spec)
        code, message = await managed.act(protocol, "load", model, {"config": '{"max_batch_size": 8}'})
        after = await managed.spec(model)

    assert (code, before) == (400, after)
    assert f"model {model} is not loaded: said-1: version 1: the file is no model; its spec of before" in message


@PROTOCOLS
async def test_what_is_unloaded_takes_no_requests_and_stays_in_the_index(
    managed: Managed, pod: SaidPod, protocol: str
) -> None:
    async with known(managed.mesh, pod, ready) as model:
        await managed.act(protocol, "load", model, {})
        unloaded = await managed.act(protocol, "unload", model, {"unload_dependents": True})
        rows = await managed.index(protocol)
        ready_rows = await managed.index(protocol, ready=True)

        refused = await managed.mesh.call(infer_request(model, 1.0))

    assert (unloaded, refused.code) == ((200, ""), grpc.StatusCode.UNAVAILABLE)
    assert (model, "1", "UNAVAILABLE", "unloaded") in rows
    assert model not in [row[0] for row in ready_rows]


WRONG: list[tuple[str, dict[str, Any], int, str]] = [
    ("load", {"colour": "red"}, 400, "load parameter 'colour' is unknown"),
    ("load", {"config": "{"}, 400, "config is no JSON"),
    ("load", {"config": '{"max_batch_sizes": 1}'}, 400, "max_batch_sizes: unknown field"),
    ("load", {"config": "{}", "file:../../etc/cron.d/x": "AA=="}, 400, "is no place for a file"),
    ("load", {"config": "{}", "file:1//etc/passwd": "AA=="}, 400, "is no place for a file"),
    ("load", {"config": "{}", "file:1/model.onnx": "AA=="}, 400, "no folder for uploads is configured"),
    ("load", {"config": '{"repository": "file:///etc"}'}, 403, "config.repository is not set over the network"),
    ("load", {"config": '{"repository": "http://169.254.169.254/"}'}, 403, "config.repository is not set"),
    ("load", {"config": '{"trusted": true}'}, 403, "config.trusted is not set over the network"),
    ("load", {"config": '{"versions": {"1": {"trusted": true}}}'}, 403, "config.trusted is not set"),
    ("unload", {"config": "{}"}, 400, "unload parameter 'config' is unknown"),
]


@PROTOCOLS
async def test_what_is_wrong_with_a_load_is_said_by_name(managed: Managed, protocol: str) -> None:
    for what, parameters, code, says in WRONG:
        said = await managed.act(protocol, what, "wrong", parameters)
        assert (said[0], says in said[1]) == (code, True), said
    assert await managed.act(protocol, "unload", "nobody", {}) == (404, "there is no model nobody")
    assert (await managed.act(protocol, "load", "..", {}))[0] in {400, 404}
    assert await managed.spec("wrong") is None


async def test_repositories_have_no_names(managed: Managed) -> None:
    assert (await managed.rest("POST", "/v2/repository/mine/index")).code == 501
    assert (await managed.rest("POST", "/v2/repository/mine/models/m/load")).code == 501
    named = managed.stub.RepositoryIndex(pb.RepositoryIndexRequest(repository_name="mine"), timeout=TIMEOUT_S)
    assert (await outcome(named))[0] == 501


# -- where it is offered


async def test_listeners_of_callers_say_where_management_is(managed: Managed) -> None:
    mesh, here = managed.mesh, f"they go to REST at {managed.rest_address} and gRPC at "
    calls: list[Awaitable[object]] = [
        mesh.stub.RepositoryModelLoad(pb.RepositoryModelLoadRequest(model_name="m"), timeout=TIMEOUT_S),
        mesh.stub.RepositoryModelUnload(pb.RepositoryModelUnloadRequest(model_name="m"), timeout=TIMEOUT_S),
        mesh.stub.TraceSetting(pb.TraceSettingRequest(), timeout=TIMEOUT_S),
        mesh.stub.LogSettings(pb.LogSettingsRequest(), timeout=TIMEOUT_S),
    ]
    for call in calls:
        code, message = await outcome(call)
        assert (code, here in message) == (403, True), message
    for method, path in (
        ("POST", "/v2/repository/models/m/load"),
        ("POST", "/v2/repository/models/m/unload"),
        ("GET", "/v2/trace/setting"),
        ("POST", "/v2/logging"),
        ("GET", "/management/v1/routes"),
        ("PUT", "/management/v1/routes/m"),
    ):
        answer = await mesh.rest(path, method=method)
        assert (answer.status, here in answer.body["error"]) == (403, True), answer
    assert (await mesh.rest("/v2/repository/index")).status == 200


async def test_the_management_listener_says_that_it_lives_and_infers_nothing(managed: Managed) -> None:
    live = await managed.rest("GET", "/v2/health/live")
    infer = await managed.rest("POST", "/v2/models/m/infer", {})
    call = await outcome(managed.stub.ModelInfer(pb.ModelInferRequest(), timeout=TIMEOUT_S))

    assert (live.code, infer.code, call[0]) == (200, 404, 501)
    assert (await managed.mesh.record()).management == managed.rest_address


# -- routes


async def test_a_route_is_read_changed_and_removed_by_revision(managed: Managed) -> None:
    model = await managed.mesh.model("1", "2")
    path = f"/management/v1/routes/{model.name}"
    absent = await managed.rest("GET", path)
    first = await managed.rest("PUT", path, {"stable": "1"}, If_None_Match="*")
    again = await managed.rest("PUT", path, {"stable": "1"}, If_None_Match="*")
    read = await managed.rest("GET", path)
    was = read
    for _ in range(3):  # where a machine stands still for seconds, the answer does not wait for every router
        changed = await managed.rest("PUT", path, {"stable": "2"}, If_Match=read.headers["ETag"])
        served = (await model.call()).response
        if changed.body["routers"]["accepted"]:
            break
        read = await managed.rest("PUT", path, {"stable": "1"})
    stale = await managed.rest("PUT", path, {"stable": "1"}, If_Match=read.headers["ETag"])
    listed = await managed.rest("GET", "/management/v1/routes")
    removed = await managed.rest("DELETE", path, If_Match=changed.headers["ETag"])
    gone = await managed.rest("DELETE", path)

    assert (absent.code, first.code, again.code, changed.code, stale.code) == (404, 200, 412, 200, 412)
    assert was.body["route"] == first.body["route"] == {"stable": "1"}
    assert changed.body["routers"] == {"routers": 1, "accepted": 1, "refused": []}
    assert served is not None
    assert served.model_version == "2"  # every router had it when the answer came
    assert listed.body["routes"][model.name]["route"] == {"stable": "2"}
    assert (removed.code, gone.code) == (200, 404)


async def test_what_is_no_route_is_refused_as_routers_refuse_it(managed: Managed, pod: SaidPod) -> None:
    async with known(managed.mesh, pod, ready) as model:
        await managed.act("rest", "load", model, {})
        path = f"/management/v1/routes/{model}"
        for body, says in (
            ({"stable": "9"}, "no pod knows version 9"),
            ({"stable": "1", "canary": {"2": 150}}, "percent"),
            ({"stable": "1", "colour": "red"}, "colour: unknown field"),
            (["1"], "no route"),
        ):
            said = await managed.rest("PUT", path, body)
            assert (said.code, says in said.body["error"]) == (400, True), said
        unknown = await managed.rest("PUT", "/management/v1/routes/nobody", {"stable": "1"})
        wild = await managed.rest("PUT", path, {"stable": "1"}, If_Match="soon")

    assert (unknown.code, wild.code) == (404, 400)


# -- settings


async def test_trace_settings_hold_for_all_or_one_model_and_null_falls_back(managed: Managed) -> None:
    model = (await managed.mesh.model()).name
    own = f"/v2/models/{model}/trace/setting"
    began = await managed.rest("GET", "/v2/trace/setting")
    wide = await managed.rest("POST", "/v2/trace/setting", {"trace_rate": "4"})
    narrow = await managed.rest("POST", own, {"trace_level": ["OFF"], "trace_rate": "2"})
    other = await managed.rest("GET", "/v2/trace/setting")
    back = await managed.rest("POST", own, {"trace_rate": None})
    request = pb.TraceSettingRequest(model_name=model)
    request.settings["trace_level"].value.extend([])
    by_grpc = await managed.stub.TraceSetting(request, timeout=TIMEOUT_S)
    stored = await managed.mesh.etcd.get("settings/traces")
    await managed.rest("POST", "/v2/trace/setting", {"trace_rate": None})

    usual = {"trace_level": ["TIMESTAMPS"], "trace_count": "-1", "trace_mode": "opentelemetry"}
    assert began.body == {**usual, "trace_rate": "0", "trace_ratio": "0"}
    assert wide.body == other.body == {**usual, "trace_rate": "4", "trace_ratio": "0.25"}
    assert narrow.body == {**usual, "trace_level": ["OFF"], "trace_rate": "2", "trace_ratio": "0.5"}
    assert back.body == {**usual, "trace_level": ["OFF"], "trace_rate": "4", "trace_ratio": "0.25"}
    assert [list(by_grpc.settings[name].value) for name in ("trace_level", "trace_rate")] == [["TIMESTAMPS"], ["4"]]
    assert stored is not None
    assert json.loads(stored.value) == {"ratio": 0.25}
    assert (await managed.rest("GET", "/v2/models/nobody/trace/setting")).code == 404


async def test_log_settings_are_one_level_in_force_at_once(managed: Managed) -> None:
    router = managed.mesh.router
    began = await managed.rest("GET", "/v2/logging")
    debug = await managed.rest("POST", "/v2/logging", {"log_verbose_level": 1})
    request = pb.LogSettingsRequest()
    request.settings["log_verbose_level"].uint32_param = 0
    by_grpc = (await managed.stub.LogSettings(request, timeout=TIMEOUT_S)).settings
    await router.logged("log_level_changed", to="debug")
    await router.logged("log_level_changed", to="info")

    usual = {"log_file": "", "log_info": True, "log_warning": True, "log_error": True, "log_format": "ISO8601"}
    assert began.body == {**usual, "log_verbose_level": 0}
    assert debug.body == {**usual, "log_verbose_level": 1}
    assert (by_grpc["log_info"].bool_param, by_grpc["log_verbose_level"].uint32_param) == (True, 0)


async def test_what_cannot_be_set_is_refused_by_its_name(managed: Managed) -> None:
    for path, body, says in (
        ("/v2/trace/setting", {"trace_level": ["TENSORS"]}, "trace_level is TENSORS"),
        ("/v2/trace/setting", {"trace_file": "/x"}, "trace_file cannot be set"),
        ("/v2/trace/setting", {"trace_count": "10"}, "trace_count is 10"),
        ("/v2/trace/setting", {"trace_rate": "-1"}, "trace_rate is -1"),
        ("/v2/trace/setting", {"colour": "red"}, "trace setting 'colour' is unknown"),
        ("/v2/logging", {"log_file": "/etc/passwd"}, "log_file cannot be set"),
        ("/v2/logging", {"log_warning": False}, "log_info is on and log_warning is off"),
        ("/v2/logging", {"log_info": None}, "log_info is None"),
        ("/v2/logging", {"colour": "red"}, "log setting 'colour' is unknown"),
    ):
        said = await managed.rest("POST", path, body)
        assert (said.code, says in said.body["error"]) == (400, True), said


async def test_a_bad_setting_in_etcd_changes_nothing_and_is_said(managed: Managed) -> None:
    key = "settings/logs"
    await managed.mesh.put(key, {"level": "loud"})

    async def is_refused() -> bool:
        return key in (await managed.mesh.status()).refused

    await until("the setting is refused", is_refused)
    said = await managed.rest("GET", "/v2/logging")
    await managed.mesh.etcd.delete(key)

    assert (said.code, "settings/logs in etcd is refused" in said.body["error"]) == (412, True)
