"""turnout record: real requests of a model into a file, as its routers see them."""

import asyncio
import os
import secrets
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated

import structlog
import typer

from services.chassis.etcd import EtcdClient, Registration
from services.chassis.link import PROTOCOL, Link, listen
from services.chassis.listening import CannotListenError
from services.chassis.logs import set_up
from services.chassis.process import host_id
from services.chassis.recordings import RecordingWriter
from services.cli.errors import CliError
from services.cli.options import DEFAULT_DATA_DIR, DataDirOption, EtcdOption, PrefixOption, Target
from services.cli.output import say
from services.cli.security import link_security
from services.core import keys
from services.core.names import checked_model_name
from services.core.registry import ServiceRecord
from services.core.split import points_of_percent
from turnout.v1 import link_pb2, recorded_pb2

_FOUND_S = 15.0  # until a router has dialled
_REGISTERED_S = 15.0

log = structlog.get_logger()


def record(  # noqa: PLR0913 - a parameter for each option
    model: Annotated[str, typer.Argument(help="The model's name.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="A new file: NAME.recorded, or NAME.recorded.gz.")],
    *,
    version: Annotated[str, typer.Option(help="Only requests that this version serves.")] = "",
    percent: Annotated[float, typer.Option(min=0.0001, max=100, help="Share of the requests.")] = 100,
    count: Annotated[int, typer.Option(min=1, help="Stop after so many.")] = 1000,
    for_s: Annotated[float, typer.Option("--for", min=0, help="Stop after so many seconds; 0 = do not.")] = 0,
    max_bytes: Annotated[int, typer.Option(min=1, help="Stop once they take so many bytes.")] = 1 << 30,
    no_outputs: Annotated[bool, typer.Option("--no-outputs", help="Leave the answers out.")] = False,
    routing_keys: Annotated[bool, typer.Option("--routing-keys", help="Record routing keys, not only hashes.")] = False,
    address: Annotated[
        str, typer.Option("--listen", help="HOST:PORT that routers reach this command at; 0 = any free port.")
    ] = "127.0.0.1:0",
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    etcd: EtcdOption = "",
    etcd_prefix: PrefixOption = "",
) -> None:
    """Record real requests. Example: turnout record digits --count 200 -o warmup.recorded."""
    try:
        sampling = recorded_pb2.Sampling(
            model=checked_model_name(model), version=version, per_million=points_of_percent(percent), most=count,
            without_outputs=no_outputs, routing_keys=routing_keys,
        )  # fmt: skip
        with RecordingWriter(out) as writer:
            recorder = Recorder(sampling, writer, count, max_bytes)
            try:
                asyncio.run(_record(Target(data_dir, etcd, etcd_prefix), recorder, address, for_s))
            finally:
                if not writer.count:
                    out.unlink()
            if recorder.fault is not None:
                raise recorder.fault
    except FileExistsError:
        raise CliError(f"{out} is there already: name a new file") from None
    except (OSError, ValueError) as error:
        raise CliError(f"{out}: {error.strerror or error}" if isinstance(error, OSError) else str(error)) from None
    dropped = f", {recorder.dropped} dropped on the way" if recorder.dropped else ""
    where = f" into {out}" if writer.count else ""
    say(f"recorded {writer.count} requests of {model} from {len(recorder.routers)} router(s){where}{dropped}")


class Recorder:
    """A LinkHandler: tells each router what is wanted, and writes what comes until there is enough."""

    def __init__(self, sampling: recorded_pb2.Sampling, writer: RecordingWriter, most: int, most_bytes: int) -> None:
        self.model = sampling.model
        self.routers: set[str] = set()
        self.found = asyncio.Event()
        self.done = asyncio.Event()
        self.fault: OSError | None = None  # why no more can be written
        self._sampling = sampling
        self._writer = writer
        self._most = most
        self._most_bytes = most_bytes
        self._dropped: dict[Link, int] = {}

    @property
    def dropped(self) -> int:
        """Records that routers could not send."""
        return sum(self._dropped.values())

    def opened(self, link: Link) -> None:
        self.routers.add(link.peer.instance)
        link.frame_for(self._sampling.ByteSize() + 8).sampling.CopyFrom(self._sampling)
        self.found.set()

    def received(self, link: Link, frame: link_pb2.Frame) -> None:
        try:
            self._take(link, frame)
        except OSError as error:  # of the file: it would fail again and again, with each router's next link
            self.fault = error
            self.done.set()

    def closed(self, link: Link, reason: str) -> None:
        pass

    def _take(self, link: Link, frame: link_pb2.Frame) -> None:
        for each in frame.records:
            if self.done.is_set():
                return
            self._writer.write(each)
            self._dropped[link] = each.dropped
            if self._writer.count >= self._most or self._writer.size >= self._most_bytes:
                self.done.set()
        if frame.records:
            self._writer.flush()


async def _record(target: Target, recorder: Recorder, address: str, for_s: float) -> None:
    instance = f"cli-{secrets.token_hex(4)}"
    hello = link_pb2.Hello(service="recorder", instance=instance, protocol=PROTOCOL)
    loop = asyncio.get_running_loop()
    for end in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(end, recorder.done.set)
    set_up("error")
    async with target.open_etcd() as client:
        try:
            server = await listen(address, recorder, hello, security=link_security())
        except OSError as error:
            raise CliError(str(CannotListenError.explain(address, error))) from None
        try:
            async with _registered(client, instance, server.address):
                await _find(recorder, server.address)
                await _check_model(client, recorder)
                with suppress(TimeoutError):
                    await asyncio.wait_for(recorder.done.wait(), for_s or None)
        finally:
            await server.close()


async def _find(recorder: Recorder, address: str) -> None:
    """Wait for a router, or the end. Raises CliError when none comes."""
    ended = asyncio.ensure_future(recorder.done.wait())
    found = asyncio.ensure_future(recorder.found.wait())
    try:
        await asyncio.wait({ended, found}, timeout=_FOUND_S, return_when=asyncio.FIRST_COMPLETED)
        if not (found.done() or ended.done()):
            raise CliError(f"no router reached {address} within {_FOUND_S:g} s: --listen names where they can")
    finally:
        ended.cancel()
        found.cancel()


async def _check_model(client: EtcdClient, recorder: Recorder) -> None:
    """Raise CliError for a model that etcd does not name: nothing would ever be recorded of it."""
    if await client.get(f"{keys.MODELS}{recorder.model}") is None:
        names = ", ".join(key.removeprefix(keys.MODELS) for key in (await client.list(keys.MODELS)).entries)
        raise CliError(f"there is no model {recorder.model}; there are {names or 'none'}")


@asynccontextmanager
async def _registered(client: EtcdClient, instance: str, address: str) -> AsyncIterator[None]:
    """Be found by routers, under a lease: where this process is killed, its key goes too."""
    registration = Registration(client, log=log)
    entry = ServiceRecord(address=address, host=host_id(), state="ready", pid=os.getpid())
    registration.put(keys.service("recorder", instance), entry.dump())
    task = asyncio.create_task(registration.run())
    try:
        if not await registration.flush(_REGISTERED_S):
            raise CliError("etcd did not take this recorder's key in time: is a mesh running (`turnout up`)?")
        yield
    finally:
        await registration.close()
        task.cancel()
