"""turnout up: a whole mesh on this machine."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from services.chassis.etcd import EtcdClient
from services.cli.client import GrpcClient
from services.cli.data_dir import DataDir, Running, RunningProcess
from services.cli.demo.keys import write_demo, write_repository
from services.cli.demo.prepare import columns, is_prepared, prepare
from services.cli.detach import detach as run_detached
from services.cli.errors import CliError
from services.cli.etcd import own_etcd
from services.cli.options import DEFAULT_DATA_DIR, DataDirOption
from services.cli.output import say
from services.cli.plan import ETCD_PORT, MAX_REPLICAS, Place, Planned, Ports, plan
from services.cli.play import demonstrate, load_turns, raise_if_failed
from services.cli.ports import check_free
from services.cli.processes import service
from services.cli.progress import step
from services.cli.readiness import Readiness
from services.cli.repository import versions_in
from services.cli.security import etcd_client
from services.cli.supervise import Supervisor
from services.cli.welcome import show_welcome

_READY_S = 90.0
_ETCD_TIMEOUT_S = 5.0
_INTERRUPTED = 130
_LARGEST_OFFSET = 50_000


@dataclass(frozen=True, slots=True)
class Wish:
    """What the command line asks for."""

    data: DataDir
    port_offset: int
    replicas: int
    repository: Path | None  # None = the demo
    then_exit: bool
    etcd: str  # empty = one of our own


def up(
    *,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    port_offset: Annotated[int, typer.Option(min=0, max=_LARGEST_OFFSET, help="Added to every port.")] = 0,
    replicas: Annotated[int, typer.Option(min=1, max=MAX_REPLICAS, help="Pods: a runtime and its batcher each.")] = 1,
    repository: Annotated[Path | None, typer.Option(help="Serve MODEL/VERSION/file below this, not the demo.")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Leave it running in the background.")] = False,
    demo_then_exit: Annotated[bool, typer.Option("--demo-then-exit", help="Show the demo, then stop.")] = False,
) -> None:
    """Run a whole mesh here and show it at work; Ctrl-C stops it. Example: turnout up --replicas 2."""
    if demo_then_exit and (detach or repository):
        raise CliError("--demo-then-exit goes with neither --detach nor --repository", code=2)
    data = DataDir(data_dir).create()
    wish = Wish(data, port_offset, replicas, repository, demo_then_exit, os.environ.get("ETCD_ENDPOINTS", ""))
    if detach:
        run_detached(data, _arguments(wish))
        return
    raise typer.Exit(asyncio.run(_until_told(_up(wish))))


async def _until_told(work: Coroutine[Any, Any, None]) -> int:
    """Run `work` until its end, SIGINT or SIGTERM; gives the exit code. A second signal ends this process at once."""
    loop, task = asyncio.get_running_loop(), asyncio.create_task(work, name="up")
    told: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        if told:
            os._exit(_INTERRUPTED)  # the kernel tells the children
        told.append(number)
        say("stopping; once more to end at once")
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    try:
        await task
    except asyncio.CancelledError:
        if not told:
            raise
    if told:
        say("stopped")
    return 0


async def _up(wish: Wish) -> None:
    data = wish.data
    repository = (wish.repository or data.models).expanduser().absolute()
    with data.locked():
        data.claim(str(repository))
        found = versions_in(repository) if wish.repository else {}
        ports = Ports(wish.port_offset)
        own = None if wish.etcd else ports.at(ETCD_PORT)
        place = Place(data.root, data.run_folder(), repository.as_uri(), wish.etcd or ports.at(ETCD_PORT))
        planned = plan(place, ports, wish.replicas)
        check_free(planned, own, wish.port_offset)
        if not wish.repository and not is_prepared(data):
            with step("Training the demo's models") as show:
                await prepare(data, show)
        async with _etcd(wish, place) as client:
            if wish.repository:
                await write_repository(client, found)
            else:
                await write_demo(client, data.features, columns(data))
            await _serve(wish, place, planned, client)


@asynccontextmanager
async def _etcd(wish: Wish, place: Place) -> AsyncIterator[EtcdClient]:
    """A client of the mesh's etcd, which runs as long as this."""
    environ = os.environ if wish.etcd else {}  # our own asks for nothing
    client = etcd_client(place.etcd, place.etcd_prefix, timeout_s=_ETCD_TIMEOUT_S, environ=environ)
    try:
        if wish.etcd:
            await client.status()
            yield client
            return
        async with own_etcd(wish.data.etcd, place.etcd, say):
            yield client
    finally:
        await client.close()


async def _serve(wish: Wish, place: Place, planned: list[Planned], client: EtcdClient) -> None:
    """Run the services; show the demo or just say where they are; stay until cancelled."""
    grpc_address = planned[-1].addresses["GRPC_ADDRESS"]
    processes = tuple(RunningProcess(name=each.name, addresses=dict(each.addresses)) for each in planned)
    running = Running(pid=os.getpid(), etcd=place.etcd, etcd_prefix=place.etcd_prefix, processes=processes)
    wish.data.write(running)
    async with Supervisor([service(each, wish.data.logs) for each in planned], say) as supervisor:
        async with GrpcClient(grpc_address) as router:
            readiness = Readiness(client, router, supervisor.children)
            with step(f"Starting {len(planned)} services") as show:
                await _or_fail(supervisor, _ready(readiness, show))
        for version, reason in readiness.broken.items():
            say(f"{version} does not load: {reason}")
        supervisor.settle()
        if not wish.repository:
            played = await demonstrate(grpc_address, client, load_turns(wish.data))
            if wish.then_exit:
                raise_if_failed(played)
                return
        show_welcome(wish.data, running, is_demo=not wish.repository)
        wish.data.write(running.model_copy(update={"is_ready": True}))
        await asyncio.Event().wait()


async def _ready(readiness: Readiness, show: Callable[[str], None]) -> None:
    await readiness.wait(show, _READY_S)


async def _or_fail(supervisor: Supervisor, work: Coroutine[Any, Any, None]) -> None:
    """Await `work`, or raise what a child's hopeless death means."""
    task = asyncio.create_task(work, name="ready")
    try:
        await asyncio.wait({task, supervisor.failed}, return_when=asyncio.FIRST_COMPLETED)
        if supervisor.failed.done():
            supervisor.failed.result()
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _arguments(wish: Wish) -> list[str]:
    arguments = ["--data-dir", str(wish.data.root), "--port-offset", str(wish.port_offset)]
    arguments += ["--replicas", str(wish.replicas)]
    return [*arguments, "--repository", str(wish.repository)] if wish.repository else arguments
