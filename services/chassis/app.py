"""What a service's build() is handed: its name, its place in etcd, its metrics, its tasks and its end."""

import asyncio
import os
import platform
import secrets
import socket
from collections.abc import Awaitable, Callable, Coroutine
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

import structlog
from prometheus_client import CollectorRegistry, Gauge, PlatformCollector, ProcessCollector

from services.chassis.config import BadConfigError, ServiceConfig
from services.chassis.etcd import EtcdClient, Registration, split_endpoints
from services.chassis.heartbeat import Heartbeat
from services.chassis.link import PROTOCOL
from services.chassis.ops import OpsServer, Readiness
from services.chassis.process import host_id
from services.chassis.telemetry import Traces, otlp_exporter
from services.chassis.tls import BadCertificateError, Certificates, Kept, ListenerSecurity, ListenerTls, Material
from services.core import keys
from services.core.registry import ServiceRecord, ServiceState
from turnout.v1 import link_pb2 as pb

_CANCEL_S = 1.0

T = TypeVar("T")


class App:
    """One running service. Made by run(); build() uses it and must not outlive it."""

    def __init__(self, service: str, config: ServiceConfig, instance: str = "") -> None:
        self.service = service
        self.config = config
        self.instance = instance or config.instance or make_instance()
        self.host = host_id()
        self.log: structlog.typing.FilteringBoundLogger = structlog.get_logger().bind()
        self.registry = CollectorRegistry()
        self.heartbeat = Heartbeat()
        _describe_process(self.registry, service, self.heartbeat)
        place = {"service.instance.id": self.instance, "service.version": release(), "host.name": socket.gethostname()}
        self.traces = Traces(service, otlp_exporter(config.otlp_endpoint), self.registry, place)
        self.certificates = Certificates(self.registry)
        # None = plaintext
        self.link_security = self.secured("LINK_TLS", lambda: self.certificates.links(config.link_tls))
        self.metrics_security = self.listener_security("metrics", "METRICS_TLS", config.metrics_tls)
        self.ops = OpsServer(self.registry, self.heartbeat, self.readiness, self.metrics_security)
        self.etcd = _etcd(config, self.secured("ETCD_TLS", lambda: self.certificates.etcd(config.etcd_tls)))
        self.registration = Registration(self.etcd, log=self.log)
        self.hello = pb.Hello(service=service, instance=self.instance, protocol=PROTOCOL)
        self.stop = asyncio.Event()  # set once by a signal or a crash
        self.has_failed = False
        self.is_built = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._drain_steps: list[Callable[[], Awaitable[None]]] = []
        self._checks: list[Callable[[], str | None]] = []
        self._record = ServiceRecord(host=self.host, pid=os.getpid())

    def listener_security(self, use: str, setting: str, tls: ListenerTls) -> ListenerSecurity | None:
        """Of listeners that share a certificate; None = plaintext. Raises BadConfigError."""
        return self.secured(setting, lambda: self.certificates.listener(use, tls))

    def secured(self, setting: str, read: Callable[[], T]) -> T:
        """What `read` makes of files. Raises BadConfigError, naming the setting and the file."""
        try:
            return read()
        except BadCertificateError as error:
            raise BadConfigError(f"TURNOUT_{self.service.upper()}_{setting}: {error}") from None

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run `coroutine` as a task that this service owns: its failure is logged and stops the process.

        It is cancelled after the drain steps, before build() is left.
        """
        task = self.own(coroutine, name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def own(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """As spawn(), for what must live to the very end: the caller cancels it."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        task.add_done_callback(self._ended)
        return task

    def on_drain(self, step: Callable[[], Awaitable[None]]) -> None:
        """Await `step` once when the process stops, after the steps registered before it; all share drain_s."""
        self._drain_steps.append(step)

    def ready_when(self, check: Callable[[], str | None]) -> None:
        """Be ready only while `check` gives None; else it gives the reason. Asked on the loop, about once a second."""
        self._checks.append(check)

    def announce(self, **fields: str) -> None:
        """Say in services/NAME/INSTANCE where this process is reached (fields of ServiceRecord)."""
        self._record = ServiceRecord.model_validate({**self._record.model_dump(), **fields})
        self._write_record()

    async def readiness(self) -> Readiness:
        return self.refresh()

    def refresh(self) -> Readiness:
        """Ask every check now; a change is written to etcd and logged."""
        reasons = self._ask()
        state = self._state(reasons)
        if state != self._record.state:
            self._record = self._record.model_copy(update={"state": state})
            self._write_record()
            self.log.info("state_changed", state=state, reasons=reasons)
        return Readiness(state, reasons)

    async def watch_readiness(self, every_s: float = 1.0) -> None:
        """Keep the announced state current, for ever."""
        while True:
            self.refresh()
            await asyncio.sleep(every_s)

    async def drain(self) -> None:
        """Every drain step in order, together within drain_s; one that fails or overruns is logged, not the end."""
        self.refresh()
        try:
            async with asyncio.timeout(self.config.drain_s):
                for step in self._drain_steps:
                    await self._drain_one(step)
        except TimeoutError:
            self.log.warning("drain_overran", drain_s=self.config.drain_s)

    async def cancel_tasks(self) -> None:
        """Cancel every spawned task and wait for their ends, a second at most."""
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_CANCEL_S)
            if late:
                self.log.warning("tasks_ignored_cancel", tasks=[task.get_name() for task in late])

    async def _drain_one(self, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except Exception:
            self.log.exception("drain_step_failed", step=getattr(step, "__qualname__", repr(step)))

    def _ask(self) -> list[str]:
        if self.stop.is_set():
            return ["draining"]
        if not self.is_built:
            return ["starting"]
        return [reason for check in self._checks if (reason := check()) is not None]

    def _state(self, reasons: list[str]) -> ServiceState:
        if self.stop.is_set():
            return "draining"
        if not self.is_built:
            return "starting"
        return "not_ready" if reasons else "ready"

    def _write_record(self) -> None:
        self.registration.put(keys.service(self.service, self.instance), self._record.dump())

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        self.log.error("task_failed", task=task.get_name(), exc_info=error)
        self.has_failed = True
        self.stop.set()


def make_instance() -> str:
    """A name for this process that no other has."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"


def release() -> str:
    """The installed version of Turnout; "0" when run from a bare checkout."""
    try:
        return version("turnout")
    except PackageNotFoundError:
        return "0"


def _etcd(config: ServiceConfig, files: Kept[Material] | None) -> EtcdClient:
    """Raises BadConfigError."""
    try:
        client = EtcdClient(
            split_endpoints(config.etcd_endpoints),
            config.etcd_prefix,
            user=config.etcd_user,
            password=config.password(),
            tls=files.value if files else None,
        )
    except ValueError as error:
        raise BadConfigError(f"ETCD_ENDPOINTS: {error}") from None
    if files is not None:
        files.on_change = client.renew
    return client


def _describe_process(registry: CollectorRegistry, service: str, heartbeat: Heartbeat) -> None:
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    build = Gauge(
        "turnout_build_info", "What runs here; always 1.", ["service", "version", "python"], registry=registry
    )
    build.labels(service, release(), platform.python_version()).set(1)
    lag = Gauge("turnout_loop_lag_seconds", "How late the event loop runs what is due.", registry=registry)
    lag.set_function(heartbeat.lag_now_s)
