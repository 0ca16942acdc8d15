"""What tests of a whole mesh do to it and ask of it."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio

from inference import grpc_service_pb2 as pb
from inference import grpc_service_pb2_grpc
from services.core import keys
from services.core.registry import ConfigStatus
from tests.support import numbered
from tests.support.channels import own_channel
from tests.support.mesh import Mesh, until

QUICK = {"runtime": {"SCAN_S": "0.2", "SETTLE_S": "0.2"}}  # settings of a mesh whose models appear at once
# The mesh's own deadline stands in for callers that set none.
SPEC: Mapping[str, Any] = {"default_version": "1", "default_deadline_ms": 3000}


async def serve(
    mesh: Mesh,
    model: str,
    *versions: int,
    spec: Mapping[str, Any] | None = None,
    route: Mapping[str, Any] | None = None,
    replicas: int = 1,
    router: str = "router",
) -> None:
    """Put numbered versions of a model into the mesh; return when `replicas` pods serve them and the router knows."""
    numbered.write(mesh.repository, model, *versions)
    await introduce(mesh, model, *versions, spec=spec, route=route, replicas=replicas, router=router)


async def introduce(
    mesh: Mesh,
    model: str,
    *versions: int,
    spec: Mapping[str, Any] | None = None,
    route: Mapping[str, Any] | None = None,
    replicas: int = 1,
    router: str = "router",
) -> None:
    """As `serve`, of what is in the repository already."""
    await put_model(mesh, model, *versions, spec=spec)
    if route:
        await mesh.put(f"routes/{model}", route)
    names = [str(version) for version in versions]
    await mesh.serving(model, *names, replicas=replicas)
    for name in names:
        await model_ready(mesh, model, name, router=router)


async def put_model(mesh: Mesh, model: str, *versions: int, spec: Mapping[str, Any] | None = None) -> None:
    """models/MODEL, which loads these versions."""
    policy = {"version_policy": {"specific": [str(version) for version in versions]}}
    await mesh.put(f"models/{model}", {**SPEC, **policy, **(spec or {})})


async def model_ready(mesh: Mesh, model: str, version: str = "", timeout_s: float = 30, router: str = "router") -> None:
    """Return when the router says that it can answer for the model."""
    async with own_channel(await mesh.listening(router, "grpc")) as channel:
        stub = grpc_service_pb2_grpc.GRPCInferenceServiceStub(channel)

        async def is_ready() -> bool:
            try:
                await stub.ModelReady(pb.ModelReadyRequest(name=model, version=version), timeout=5)
            except grpc.aio.AioRpcError:
                return False
            return True

        await until(f"{model}/{version} is ready", is_ready, timeout_s)


def workers(mesh: Mesh, runtime: str, model: str) -> list[int]:
    """The pids of a runtime's processes that hold versions of a model."""
    parent = mesh.child(runtime).pid
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            arguments = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it has just ended
        if int(fields[1]) == parent and len(arguments) > 3 and f'"model":"{model}"'.encode() in arguments[3]:
            found.append(int(folder.name))
    return sorted(found)


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def worker(mesh: Mesh, runtime: str, model: str, *, besides: Sequence[int] = ()) -> int:
    """The pid of the one process of a model, once there is one that is none of `besides`."""

    async def new() -> int:
        return next((pid for pid in workers(mesh, runtime, model) if pid not in besides), 0)

    return await until(f"a worker of {model}", new)


async def metric(mesh: Mesh, process: str, name: str, **labels: str) -> float:
    """The sum of a process's series of that name with those labels."""
    address = await mesh.metrics(process)
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    series = [line for line in lines if re.match(rf"{name}[{{ ]", line)]
    return sum(float(line.rpartition(" ")[2]) for line in series if all(each in line for each in wanted))


async def router_status(mesh: Mesh) -> list[ConfigStatus]:
    """status/router/INSTANCE/routes of every router."""
    listing = await mesh.client.list(f"{keys.STATUS}router/")
    return [ConfigStatus.parse(entry.value) for key, entry in listing.entries.items() if key.endswith("/routes")]


def errors(mesh: Mesh, *names: str) -> list[str]:
    """What the processes of that name (all, when none is given) logged as their own errors."""
    said = []
    for name in names or mesh.names():
        said += [f"{name}: {json.dumps(line)}" for line in mesh.log_lines(name) if line.get("level") == "error"]
    return said


def noise(mesh: Mesh, *names: str) -> list[str]:
    """Lines in the logs of these processes that are no log lines: tracebacks and warnings of libraries."""
    return [
        f"{name}: {line}"
        for name in names
        for line in mesh.child(name).log.read_text(errors="replace").splitlines()
        if line.strip() and not line.startswith("{")
    ]
