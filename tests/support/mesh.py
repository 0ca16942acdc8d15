"""A whole mesh, or any part of it, as real processes with ports and folders of their own.

    async with Mesh(tmp_path) as mesh:                      # etcd and every service, ready
        await mesh.put("routes/digits", {"stable": "1"})
        channel = own_channel(await mesh.listening("router", "grpc"))
        await mesh.kill("runtime-0"); await mesh.restart("runtime-0")

Processes are named as in services/cli/plan.py: feature-proxy, shadow, runtime-0, batcher-0, router. Nothing is started
again by itself. Leaving the context stops all of it.
"""

import asyncio
import json
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar

from services.chassis.etcd import EtcdClient, EtcdProcess
from services.cli.plan import Place, Planned, Ports, plan
from services.cli.processes import Child, describe_exit, service, tail
from services.core import keys
from services.core.registry import Endpoint, Inventory, ServiceRecord

T = TypeVar("T")

STOP_S = 15.0
READY_S = 45.0
_POLL_S = 0.05


async def until(what: str, check: Callable[[], Awaitable[T | None]], timeout_s: float = READY_S) -> T:
    """The first truthy answer of `check`, asked again and again. Raises AssertionError after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer = await check()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout_s:g} s")
        await asyncio.sleep(_POLL_S)


class Mesh:
    """etcd and services below `folder`.

    `only` names the processes to start (None = all of one router, proxy, shadow and `replicas` pods); others can be
    started later with `start`. `settings` adds to the environment of a service: {"router": {"RETRY_BUDGET": "0"}}, or
    of one process: {"batcher-1": {...}}.
    """

    def __init__(
        self,
        folder: Path,
        *,
        only: Sequence[str] | None = None,
        replicas: int = 1,
        repository: Path | None = None,
        settings: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.folder = folder
        self.repository = repository or folder / "models"
        self.etcd = EtcdProcess(folder / "etcd", fsync=False)
        self.client: EtcdClient
        self._run = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))  # sockets need a short path
        self._replicas = replicas
        self._only = only
        self._settings = settings or {}
        self._planned: dict[str, Planned] = {}
        self._children: dict[str, Child] = {}

    async def __aenter__(self) -> Self:
        self.repository.mkdir(parents=True, exist_ok=True)
        try:
            await self.etcd.start()
            self.client = EtcdClient([self.etcd.endpoint])
            self._make_children()
            names = list(self._children) if self._only is None else list(self._only)
            await self.start(*names)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        for child in reversed(self._children.values()):
            await child.stop(STOP_S)
        if hasattr(self, "client"):
            await self.client.close()
        self.etcd.resume()
        await self.etcd.stop()
        shutil.rmtree(self._run, ignore_errors=True)

    # Processes, by name.

    def child(self, name: str) -> Child:
        return self._children[name]

    def names(self, service_name: str = "") -> list[str]:
        """Names of all planned processes, or of those of one service (as in services/)."""
        return [name for name, each in self._planned.items() if service_name in ("", each.service)]

    async def start(self, *names: str, ready: bool = True) -> None:
        """Start processes, together; return when all say that they are ready (or at once, if not `ready`)."""
        for name in names:
            self._children[name].start()
        if ready:
            for name in names:
                await self.ready(name)

    def add(self, name: str, like: str, **settings: str) -> None:
        """Plan another process like one that there is, with settings of its own; `start` starts it."""
        model = self._planned[like]
        own = {"DATA_DIR": str(self.folder / "state" / name), **settings}
        self._plan(Planned(name, model.service, model.addresses, {**model.settings, **own}))

    async def stop(self, name: str, timeout_s: float = STOP_S) -> int:
        """SIGTERM, and the exit code. Raises AssertionError if it had to be killed."""
        child = self._children[name]
        by_itself = await child.stop(timeout_s)
        assert by_itself, f"{name} did not stop within {timeout_s:g} s: {self.log(name)}"
        return await child.wait()

    async def kill(self, name: str) -> None:
        await self._children[name].kill()

    async def restart(self, name: str, *, ready: bool = True) -> None:
        """Start anew what was stopped or killed; what still runs is stopped first."""
        if self._children[name].pid:
            await self.stop(name)
        await self.start(name, ready=ready)

    def pause(self, name: str) -> None:
        self._children[name].pause()

    def resume(self, name: str) -> None:
        self._children[name].resume()

    def log(self, name: str) -> str:
        """The end of a process's log."""
        return tail(self._children[name].log, 20_000)

    def sockets(self) -> list[Path]:
        """Every Unix socket that its processes listen on."""
        return sorted(self._run.rglob("*.sock"))

    # What they say of themselves.

    async def record(self, name: str) -> ServiceRecord | None:
        """services/NAME/INSTANCE of the process that runs now."""
        child, planned = self._children[name], self._planned[name]
        listing = await self.client.list(f"{keys.SERVICES}{planned.service}/")
        for entry in listing.entries.values():
            record = ServiceRecord.parse(entry.value)
            if record.pid == child.pid:
                return record
        return None

    async def ready(self, name: str, timeout_s: float = READY_S) -> ServiceRecord:
        """Its record, once it says that it is ready. Raises AssertionError with its log if it dies or takes longer."""

        async def is_ready() -> ServiceRecord | None:
            child = self._children[name]
            if not child.pid:
                raise AssertionError(f"{name} {describe_exit(await child.wait())}:\n{self.log(name)}")
            record = await self.record(name)
            return record if record and record.state == "ready" else None

        try:
            return await until(f"{name} is ready", is_ready, timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log(name)}") from None

    async def address(self, name: str) -> str:
        """Where its peers reach it."""
        return (await self.registered(name)).address

    async def metrics(self, name: str) -> str:
        """host:port of /metrics, /live and /ready."""
        return (await self.registered(name)).metrics

    async def registered(self, name: str) -> ServiceRecord:
        """Its record, once there is one: a process that was paused for longer than its lease writes it anew."""
        return await until(f"{name} has a record", lambda: self.record(name))

    async def listening(self, name: str, what: str) -> str:
        """The address that its log says it listens on as `what`: grpc and rest of the router, link elsewhere."""
        addresses = [
            str(line["address"])
            for line in self.log_lines(name)
            if line.get("event") == "listening" and line.get("name") == what
        ]
        assert addresses, f"{name} does not say where it listens as {what}:\n{self.log(name)}"
        return addresses[0]

    def log_lines(self, name: str) -> list[dict[str, Any]]:
        """Every JSON line of a process's log."""
        lines = []
        for line in self._children[name].log.read_text(errors="replace").splitlines():
            try:
                lines.append(json.loads(line))
            except ValueError:
                continue
        return lines

    # etcd.

    async def put(self, key: str, value: Mapping[str, Any] | bytes) -> int:
        """Write a key (below the prefix); the revision."""
        return await self.client.put(key, value if isinstance(value, bytes) else json.dumps(value).encode())

    async def endpoints(self, model: str, version: str) -> list[Endpoint]:
        listing = await self.client.list(keys.endpoint(model, version, ""))
        return [Endpoint.parse(entry.value) for entry in listing.entries.values()]

    async def serving(self, model: str, *versions: str, replicas: int = 1, timeout_s: float = READY_S) -> None:
        """Return when each of `versions` has at least `replicas` endpoints."""
        for version in versions:

            async def has_endpoints(version: str = version) -> bool:
                return len(await self.endpoints(model, version)) >= replicas

            try:
                await until(f"{model}/{version} has {replicas} endpoints", has_endpoints, timeout_s)
            except AssertionError as error:
                raise AssertionError(f"{error}; inventory: {await self.inventory()}") from None

    async def inventory(self) -> dict[str, Inventory]:
        """What each live runtime says of its versions."""
        listing = await self.client.list(f"{keys.STATUS}runtime/")
        found = {key: entry for key, entry in listing.entries.items() if key.endswith("/inventory")}
        return {key: Inventory.parse(entry.value) for key, entry in found.items()}

    @asynccontextmanager
    async def without_etcd(self) -> AsyncIterator[None]:
        """etcd hangs while inside."""
        self.etcd.pause()
        try:
            yield
        finally:
            self.etcd.resume()

    def _make_children(self) -> None:
        place = Place(self.folder, self._run, self.repository.absolute().as_uri(), self.etcd.endpoint)
        for planned in plan(place, Ports(None), self._replicas):
            extra = {**self._settings.get(planned.service, {}), **self._settings.get(planned.name, {})}
            self._plan(Planned(planned.name, planned.service, planned.addresses, {**planned.settings, **extra}))

    def _plan(self, planned: Planned) -> None:
        given = {name: planned.settings.get(name, address) for name, address in planned.addresses.items()}
        planned = replace(planned, addresses=given)
        self._planned[planned.name] = planned
        self._children[planned.name] = service(planned, self.folder / "logs")
