"""TensorFlow Serving's list of models, taken by the management listener."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import pytest_asyncio

from services.core.model_spec import ModelSpec
from tests.support.router_mesh import RouterMesh
from tests.support.said_pod import SaidPod, Versions
from tests.support.tfs_calls import TfsCalls
from turnout.tfserving import model_server_config_pb2 as config_pb
from turnout.tfserving import model_service_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="module")

SETTINGS = {"management_grpc_address": "127.0.0.1:0", "tfs_grpc_address": "127.0.0.1:0"}
RELOAD = "ModelService/HandleReloadConfigRequest"
CODE = grpc.StatusCode


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pod(mesh: RouterMesh) -> AsyncIterator[SaidPod]:
    async with SaidPod(mesh.etcd, "said-1") as pod:
        yield pod


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def managing(mesh: RouterMesh) -> AsyncIterator[TfsCalls]:
    async with TfsCalls(await mesh.router.address("management_grpc")) as calls:
        yield calls


async def known(mesh: RouterMesh, pod: SaidPod, **spec: Any) -> str:
    """A model that the pod loads and lets go of, and that a batcher serves meanwhile."""
    name, batcher = f"m-{secrets.token_hex(4)}", await mesh.batcher()
    serving: set[asyncio.Task[None]] = set()

    def make(_: ModelSpec) -> Versions:
        serving.add(asyncio.create_task(batcher.serve(mesh.etcd, name, "1")))
        return {"1": {"state": "READY", "digest": "sha-1"}}

    pod.makes[name] = make
    pod.lets_go[name] = lambda: batcher.drop(name, "1")
    await mesh.put(f"models/{name}", spec)
    await mesh.ready(name, "1")
    return name


def listed(*names: str, base: str = "/models", **fields: Any) -> pb.ReloadConfigRequest:
    configs = [config_pb.ModelConfig(name=name, base_path=f"{base}/{name}", **fields) for name in names]
    return pb.ReloadConfigRequest(
        config=config_pb.ModelServerConfig(model_config_list=config_pb.ModelConfigList(config=configs))
    )


async def is_loaded(mesh: RouterMesh, model: str) -> bool:
    entry = await mesh.etcd.get(f"models/{model}")
    assert entry is not None
    return ModelSpec.parse(entry.value).loaded


async def test_a_list_is_what_is_loaded_with_its_labels(mesh: RouterMesh, pod: SaidPod, managing: TfsCalls) -> None:
    one = await known(mesh, pod, repository="file:///models")
    other = await known(mesh, pod)

    answer = await managing.ask(RELOAD, listed(one, version_labels={"champion": 1}))
    after_one = (await is_loaded(mesh, one), await is_loaded(mesh, other))
    route = await mesh.etcd.get(f"routes/{one}")
    await managing.ask(RELOAD, listed())
    after_none = (await is_loaded(mesh, one), await is_loaded(mesh, other))
    await managing.ask(RELOAD, listed(one, other))
    after_both = (await is_loaded(mesh, one), await is_loaded(mesh, other))

    assert answer.status.error_code == 0
    assert (after_one, after_none, after_both) == ((True, False), (False, False), (True, True))
    assert route is not None
    assert json.loads(route.value) == {"stable": "1", "labels": {"champion": "1"}}
    await mesh.ready(other)


async def test_what_a_list_may_not_say_is_refused_and_changes_nothing(
    mesh: RouterMesh, pod: SaidPod, managing: TfsCalls
) -> None:
    model = await known(mesh, pod, repository="file:///models")
    refusals = [
        (listed("nobody"), CODE.PERMISSION_DENIED, "model nobody is not in models/"),
        (listed(model, base="/etc"), CODE.PERMISSION_DENIED, f"model {model} does not lie at that base_path"),
        (listed(model, model), CODE.INVALID_ARGUMENT, "is listed twice"),
        (listed(""), CODE.INVALID_ARGUMENT, "needs a name that is one"),
        (pb.ReloadConfigRequest(), CODE.INVALID_ARGUMENT, "config has no model_config_list"),
        (listed(model, version_labels={"a": 7}), CODE.FAILED_PRECONDITION, "'a' is for version 7; AVAILABLE are: 1"),
    ]
    for request, code, says in refusals:
        found = await managing.refused(RELOAD, request)
        assert (found[0], says in found[1]) == (code, True), found

    async with TfsCalls(await mesh.router.address("tfs-grpc")) as public:
        found = await public.refused(RELOAD, listed())
    assert (found[0], "this listener takes no management calls" in found[1]) == (CODE.PERMISSION_DENIED, True)
    assert await is_loaded(mesh, model)
