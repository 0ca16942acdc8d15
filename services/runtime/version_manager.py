"""The loop that makes this pod hold what operators want: it asks wanted.py, and acts."""

import asyncio
import secrets
from collections import Counter
from collections.abc import Sequence
from typing import Any

import structlog

from services.chassis.etcd import Change, EtcdClient, EtcdError
from services.core import keys
from services.core.model_spec import ModelSpec
from services.core.names import ModelVersion
from services.core.registry import Inventory
from services.runtime.admission import Admission
from services.runtime.artifact_cache import ArtifactCache
from services.runtime.catalogue import Catalogue
from services.runtime.config import RuntimeConfig
from services.runtime.control import WORKER_PREFIX, Control
from services.runtime.desired import Desired, Refused
from services.runtime.footprints import Footprints
from services.runtime.generation import Plan
from services.runtime.held_version import HeldVersion, Means
from services.runtime.hosting import Hosting
from services.runtime.inventory import inventory_of, is_settled
from services.runtime.job import Job
from services.runtime.memory import free_bytes
from services.runtime.metrics import RuntimeMetrics
from services.runtime.placing import Host, place, share
from services.runtime.previous import Previous
from services.runtime.remembered import Remembered
from services.runtime.repositories import Repositories
from services.runtime.status import Status
from services.runtime.supervisor import Bounds, Supervisor
from services.runtime.wanted import Progress, asked_for, may_release, stable_of, wanted
from turnout.v1 import runtime_pb2 as pb

_DRAIN_MARGIN_S = 1.0  # of the process's own drain, to end what did not end by itself
_EARLIER_TIMEOUT_S = 10.0

log = structlog.get_logger()


class VersionManager:
    """Owns every instance of this pod."""

    def __init__(
        self,
        config: RuntimeConfig,
        etcd: EtcdClient,
        control: Control,
        status: Status,
        metrics: RuntimeMetrics,
        hosting: Hosting,
        host: Host,
    ) -> None:
        self._config = config
        self._etcd = etcd
        self._control = control
        self._status = status
        self._metrics = metrics
        self._desired = Desired()
        self._wake = asyncio.Event()
        artifacts = config.artifacts_dir()
        remembered = Remembered(artifacts.with_name(f"{artifacts.name}-remembered.json"))
        self._catalogue = Catalogue(
            config.repository, Repositories(links_outside=config.links_outside), remembered,
            self._spawn, self._wake.set,
            settle_s=config.settle_s, remote_scan_s=config.remote_scan_s,
        )  # fmt: skip
        self._cache = ArtifactCache(artifacts, remembered, timeout_s=config.fetch_timeout_s)
        self._previous = Previous(config.data_dir / "runtime" / f"{config.run_dir.name}-previous.json")
        self._footprints = Footprints(config.data_dir / "runtime" / f"{config.run_dir.name}-footprints.json")
        self._admission = Admission(
            self._footprints, free_bytes, at_once=config.loads_at_once, budget=config.memory_bytes
        )
        self._held: dict[ModelVersion, HeldVersion] = {}
        self._hosting = hosting
        self._host = host
        self._instances = 0  # that this pod should have
        self._look_now = asyncio.Event()
        self._is_loaded = False  # etcd or a snapshot has spoken
        self._has_looked = False
        self._looked_at: dict[str, int] = {}  # model -> revision of its spec that the last whole look went by
        self._has_settled = False
        self._is_draining = False
        self._swept: set[str] | None = None  # what the cache was last cut down to
        self._is_swept = asyncio.Event()
        self._is_swept.set()
        self._tasks: asyncio.TaskGroup | None = None

    def changed(self, changes: Sequence[Change]) -> None:
        """The Mirror's callback."""
        for refused in self._desired.apply(changes):
            log.warning("config_refused", key=refused.key, revision=refused.revision, reason=refused.reason)
            if not refused.has_last_good and self._tasks is not None:
                self._spawn(self._find_last_good(refused))
        self._look_now.set()
        self._wake.set()

    def loaded(self) -> None:
        """Say that models/ and routes/ are known, if only from a snapshot; before that nothing is done."""
        self._is_loaded = True
        self._look_now.set()

    def not_ready(self) -> str | None:
        """Why this runtime is not ready yet: it is once every wanted version was loaded, or given up."""
        if not self._is_loaded:
            return "models/ and routes/ came from neither etcd nor snapshot"
        if self._has_settled:
            return None
        waiting = [str(held.identity) for held in self._held.values() if held.progress is Progress.PENDING]
        if waiting:
            return f"loading {', '.join(sorted(waiting)[:8])}"
        faults = [*self._catalogue.faults.values(), *(held.fault for held in self._held.values() if held.fault)]
        return f"none of its models is there: {faults[0]}" if faults else "looking at the repository"

    async def run(self) -> None:
        """Reconcile for ever; cancelling it kills every worker."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            await self._previous.load()
            await self._footprints.load()
            tasks.create_task(self._look_for_ever(), name="look")
            while True:
                await self._wake.wait()
                self._wake.clear()
                if self._is_loaded and self._has_looked and not self._is_draining:
                    self._reconcile()
                self._publish()

    async def drain(self) -> None:
        """Let every instance go, and wait for their ends."""
        self._is_draining = True
        self._publish()
        for held in self._held.values():
            held.release()
        self._wake.set()
        for held in self._held.values():
            await held.left()
        await self._footprints.save()
        self._publish()

    # -- looking

    async def _look_for_ever(self) -> None:
        while not self._is_draining:
            self._look_now.clear()
            if self._is_loaded:
                specs = self._desired.of_pool(self._config.pool)
                revisions = {model: self._desired.accepted.get(f"{keys.MODELS}{model}", 0) for model in specs}
                await self._catalogue.look(specs)
                self._looked_at = {
                    model: each for model, each in revisions.items() if self._catalogue.is_current(model)
                }
                self._has_looked = True
                self._wake.set()
                await self._sweep()
            try:
                async with asyncio.timeout(self._config.scan_s):
                    await self._look_now.wait()
            except TimeoutError:
                continue

    async def _sweep(self) -> None:
        """Remove copies of artifacts that nobody will load, when nothing is on its way."""
        if not self._has_settled or any(held.is_fetching for held in self._held.values()):
            return
        used = {digest for held in self._held.values() for digest in held.digests()}
        if used != self._swept:
            self._swept = used
            self._is_swept.clear()  # what is fetched from now on is not among `used`
            try:
                await self._cache.keep_only(used)
            finally:
                self._is_swept.set()

    async def _find_last_good(self, refused: Refused) -> None:
        """A key that is bad from the start holds what it held before."""
        try:
            async with asyncio.timeout(_EARLIER_TIMEOUT_S):
                async for entry in self._etcd.earlier(refused.key, refused.revision):
                    if self._desired.restore(refused.key, entry.value, entry.mod_revision):
                        log.info("earlier_value_used", key=refused.key, revision=entry.mod_revision)
                        self._look_now.set()
                        return
        except (EtcdError, TimeoutError) as error:
            log.warning("earlier_value_unknown", key=refused.key, reason=str(error) or "etcd did not answer in time")

    # -- acting

    def _reconcile(self) -> None:
        routes, available = self._desired.routes, self._catalogue.available()
        of_pool = self._catalogue.configured.filled(self._desired.of_pool(self._config.pool))
        specs = {model: spec for model, spec in of_pool.items() if model in available}  # others are looked at first
        for model, spec in specs.items():
            asked = asked_for(spec, routes.get(model), available.get(model, ()))
            self._previous.note(model, asked, self._serving(model))
        goal = wanted(specs, routes, available, self._previous.versions, self._config.pool)
        wanted_specs = {identity: specs[identity.model].for_version(identity.version) for identity in sorted(goal)}
        self._instances = sum(spec.instances.count for spec in wanted_specs.values())
        for identity, spec in wanted_specs.items():
            self._want(identity, spec)
        self._release(goal)
        if not self._has_settled and len(specs) == len(of_pool):
            self._has_settled = is_settled(specs, [self._held[identity] for identity in goal], self._catalogue)
        if self._footprints.is_unsaved:
            self._spawn(self._footprints.save())
        if self._previous.is_unsaved:
            self._spawn(self._previous.save())
            self._previous.is_unsaved = False

    def _serving(self, model: str) -> set[str]:
        return {version for (name, version), held in self._held.items() if name == model and held.is_serving}

    def _want(self, identity: ModelVersion, spec: ModelSpec) -> None:
        held = self._held.get(identity)
        if held is None:
            held = self._held[identity] = HeldVersion(identity, self._means())
        sighting = self._catalogue.versions.get(identity.model, {}).get(identity.version)
        is_settled = sighting is not None and self._catalogue.is_settled(sighting)
        held.want(spec, sighting, is_settled=is_settled, absence=self._catalogue.faults.get(identity.model, ""))

    def _release(self, goal: set[ModelVersion]) -> None:
        progress: dict[str, dict[str, Progress]] = {}
        for identity in goal:
            held = self._held[identity]
            is_lost = held.is_over and held.progress is Progress.PENDING  # what is let go may be what it waits for
            progress.setdefault(identity.model, {})[identity.version] = Progress.FAILED if is_lost else held.progress
        for identity, held in list(self._held.items()):
            if identity in goal:
                continue
            model = identity.model
            spec = self._desired.specs.get(model)
            is_ours = spec is not None and spec.placement.pool == self._config.pool and spec.loaded
            stable = stable_of(spec, self._desired.routes.get(model)) if spec else None
            if not is_ours or may_release(stable, progress.get(model, {})):
                if held.current is not None:
                    log.info("version_released", model=model, version=identity.version)
                held.release()
            if held.is_gone:
                del self._held[identity]

    def _means(self) -> Means:
        return Means(self._cache, self._start, self._spawn, self._wake.set, self._is_swept)

    def _start(self, plan: Plan, spec: ModelSpec, number: int) -> Supervisor:
        identity = f"{WORKER_PREFIX}{plan.model[:16]}-{plan.version[-6:]}-{secrets.token_hex(3)}"
        config, where = self._config, place(spec.instances, number, self._host)
        job = Job(
            id=identity, model=plan.model, version=plan.version, digest=plan.digest, framework=plan.framework,
            file=plan.file, trusted=plan.trusted, outputs=plan.outputs, doubles=plan.doubles,
            declared=plan.declared, signature_name=plan.signature_name,
            text=plan.text, torch=plan.torch, decoupled=plan.decoupled, max_execution_ms=spec.limits.max_execution_ms,
            onnx=plan.onnx, cache=self._cache.kept(plan.digest),
            socket=config.run_dir.absolute() / f"{identity}.sock",
            max_open_files=spec.limits.max_open_files, max_tensor_bytes=spec.limits.max_tensor_bytes,
            environment=spec.environment,
            fault=where.fault, device=where.device, visible_gpus=where.visible_gpus, cpus=where.cpus,
            threads=spec.instances.threads or config.worker_threads or share(self._host.cores, self._instances),
            warm_up=spec.warm_up, warm_up_sizes=spec.warm_up_sizes(),
            pad_to=plan.pad_to, states=plan.states, controls=plan.controls, quiet_s=config.quiet_s,
            log_level=config.log_level,
        )  # fmt: skip
        supervisor = Supervisor(
            job, Bounds.of(spec), self._wake.set, self._metrics, self._admission,
            load_timeout_s=config.load_timeout_s, drain_s=max(0.5, config.drain_s - _DRAIN_MARGIN_S),
            hosting=self._hosting, others=lambda: [i for held in self._held.values() for i in held.instances()],
        )  # fmt: skip
        self._spawn(self._supervise(supervisor))
        return supervisor

    async def _supervise(self, supervisor: Supervisor) -> None:
        try:
            await supervisor.run()
        finally:
            self._wake.set()

    def _spawn(self, coroutine: Any) -> asyncio.Task[None]:
        if self._tasks is None:
            raise RuntimeError("the version manager does not run")
        return self._tasks.create_task(coroutine)

    # -- saying

    def _publish(self) -> None:
        instances = [instance for _, held in sorted(self._held.items()) for instance in held.instances()]
        self._catalogue.configured.tell(instances)
        self._control.publish(instances, draining=self._is_draining)
        if self._has_looked:
            self._status.publish(self._inventory(), self._desired)
        self._metrics.refused.set(len(self._desired.refused))
        self._metrics.count(Counter((i.model, i.version, pb.InstanceState.Name(i.state)) for i in instances))

    def _inventory(self) -> Inventory:
        specs = self._catalogue.configured.filled(self._desired.of_pool(self._config.pool))
        return inventory_of(self._config.pool, specs, self._looked_at, self._catalogue, self._held)
