"""Secrets that are marked, given to every service and misused: none of them is ever seen again."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import grpc.aio
import pytest
import pytest_asyncio

from services.chassis.etcd import EtcdClient, EtcdProcess
from tests.integration.etcd.support import etcdctl
from tests.support.channels import own_channel
from tests.support.router_mesh import MODEL_INFER, TIMEOUT_S, infer_request, rest_request, until
from tests.support.service_process import ServiceProcess, started

pytestmark = pytest.mark.asyncio(loop_scope="module")
MARK = "hush5f3a"
PASSWORD = f"{MARK}-of-etcd"
SERVICES = ("router", "batcher", "runtime", "feature_proxy", "shadow")
SENT = (
    f"tk_0123456789abcdef.{MARK}{'x' * 35}",
    f"Bearer tk_0123456789abcdef.{MARK}{'x' * 35}",
    f"Bearer eyJhbGciOiJSUzI1NiJ9.{MARK}.{MARK}",
    f"Basic {MARK}",
)


class Mesh:
    """All services, each by its name."""

    def __init__(self, etcd: EtcdClient, services: dict[str, ServiceProcess]) -> None:
        self.etcd = etcd
        self.services = services

    async def metrics(self, name: str) -> str:
        url = f"http://{await self.services[name].address('metrics')}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return await answer.text()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mesh]:
    folder = tmp_path_factory.mktemp("secrets")
    in_file = folder / "word"
    in_file.write_text(f"{PASSWORD}\n")
    async with AsyncExitStack() as stack:
        etcd = EtcdProcess(folder / "etcd", fsync=False, flags=["--bcrypt-cost=4"])
        await stack.enter_async_context(etcd)
        for words in (("add", f"root:{PASSWORD}"), ("grant-role", "root", "root")):
            etcdctl(etcd, "user", *words)
        etcdctl(etcd, "auth", "enable")
        client = EtcdClient([etcd.endpoint], user="root", password=PASSWORD)
        stack.push_async_callback(client.close)

        async def start(name: str) -> ServiceProcess:
            own = {"ETCD_PASSWORD_FILE": str(in_file)} if name == "shadow" else {"ETCD_PASSWORD": PASSWORD}
            settings = environment(name, folder, etcd.endpoint) | own
            environ = {f"TURNOUT_{name.upper()}_{key}": value for key, value in settings.items()}
            service = await stack.enter_async_context(started(f"services.{name}", environ))
            await service.address("metrics")
            return service

        yield Mesh(client, {name: await start(name) for name in SERVICES})  # one by one: each has its time to start


def environment(name: str, folder: Path, etcd: str) -> dict[str, str]:
    listeners = {"router": ("GRPC", "REST", "MANAGEMENT"), "runtime": ()}.get(name, ("LINK",))
    settings = {f"{each}_ADDRESS": "127.0.0.1:0" for each in (*listeners, "METRICS")}
    if name == "router":
        settings["ANONYMOUS"] = "refuse"
    if name == "runtime":
        settings["REPOSITORY"] = f"http://user:{MARK}@127.0.0.1:1/models?token={MARK}"
    if name in {"batcher", "runtime"}:
        settings["RUN_DIR"] = str(folder / "run")
    return {"ETCD_ENDPOINTS": etcd, "ETCD_USER": "root", "DATA_DIR": str(folder / name), **settings}


async def test_what_is_secret_is_in_no_log_answer_metric_or_command_line(mesh: Mesh) -> None:
    await mesh.etcd.put("models/m", json.dumps({"trusted": True}).encode())
    columns = [{"name": "age", "datatype": "FP32", "shape": []}]
    view = {"store": f"redis://user:{MARK}@127.0.0.1:1/zero", "entity": "id", "columns": columns}
    await mesh.etcd.put("feature_views/v", json.dumps(view).encode())
    await mesh.services["runtime"].logged("repository_unreadable", model="m")
    await mesh.services["feature_proxy"].logged("config_refused", key="feature_views/v")
    seen = [*await refused_calls(mesh)]
    for name, service in mesh.services.items():
        await until(f"{name} is logged in", lambda service=service: _has_logged(service, "lease_granted"))
        seen += [*service.lines, await mesh.metrics(name), command_line(service.pid)]

    assert [text for text in seen if MARK in text] == []
    listing = await mesh.etcd.list("status/")
    assert [key for key, entry in listing.entries.items() if MARK.encode() in entry.value] == []


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


async def _has_logged(service: ServiceProcess, event: str) -> bool:
    return any(line["event"] == event for line in service.events())


async def refused_calls(mesh: Mesh) -> list[str]:
    """What callers with bad credentials read."""
    router = mesh.services["router"]
    rest, answers = await router.address("rest"), []
    async with aiohttp.ClientSession() as session, own_channel(await router.address("grpc")) as channel:
        infer = channel.unary_unary(MODEL_INFER)
        for secret in SENT:
            name = "authorization" if " " in secret else "x-api-key"
            url = f"http://{rest}/v2/models/m/infer"
            async with session.post(url, json=rest_request(1.0), headers={name: secret}) as answer:
                answers.append(f"{answer.headers} {await answer.text()}")
                assert answer.status == 401
            request = infer_request("m", 1.0).SerializeToString()
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await infer(request, metadata=[(name, secret)], timeout=TIMEOUT_S)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
            answers.append(str(refused.value))
    return answers


async def test_a_wrong_password_is_not_repeated(mesh: Mesh, tmp_path: Path) -> None:
    etcd = mesh.etcd._connection.endpoint
    settings = environment("shadow", tmp_path, etcd) | {"ETCD_PASSWORD": f"{MARK}-wrong"}
    environ = {f"TURNOUT_SHADOW_{key}": value for key, value in settings.items()}
    async with started("services.shadow", environ) as service:
        said = await service.logged("registration_failed")

        assert "invalid user ID or password" in said["error"]
        assert [line for line in service.lines if MARK in line] == []
