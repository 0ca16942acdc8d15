"""One version of one model in this pod: fetched, started, swapped for new content, let go."""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

import structlog

from services.chassis.backoff import Backoff
from services.core.batching_spec import states_and_controls
from services.core.desired_state import UNLOADED
from services.core.model_spec import ModelSpec
from services.core.names import ModelVersion
from services.core.registry import InventoryInstance, InventoryVersion
from services.runtime.artifact_cache import ArtifactCache, Fetched
from services.runtime.catalogue import Sighting
from services.runtime.generation import Generation, Plan, Start, begins_with
from services.runtime.source import BadRepositoryError, ChangedError
from services.runtime.supervisor import Supervisor
from services.runtime.wanted import Progress
from turnout.v1 import runtime_pb2 as pb

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 5.0, 300.0  # between two tries to fetch the same

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Means:
    """What a held version works with."""

    cache: ArtifactCache
    start: Start  # make an instance and run it
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    wake: Callable[[], None]  # something changed: reconcile again
    swept: asyncio.Event  # set while no copies are being removed


class HeldVersion:
    """`want` is called on every reconcile while the version is wanted, `release` once it no longer is."""

    def __init__(self, identity: ModelVersion, means: Means) -> None:
        self.identity = identity
        self.current: Generation | None = None
        self.next: Generation | None = None  # loads beside `current`, to take its place
        self.fault = ""  # why the repository's present content is not served
        self._means = means
        self._leaving: list[Supervisor] = []
        self._fetch: asyncio.Task[None] | None = None
        self._asked: tuple[object, ...] | None = None  # what was fetched last: fingerprint and framework
        self._fetched: Fetched | None = None
        self._fetch_again_at_s = math.inf  # monotonic; inf = not before it has changed
        self._pauses = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        self._is_pending = False
        self._is_behind = False  # the repository holds something else than what was fetched
        self._is_released = False

    def want(self, spec: ModelSpec, sighting: Sighting | None, *, is_settled: bool, absence: str = "") -> None:
        """Come one step nearer to serving what the repository holds, as `spec` (of this version) says.

        `absence` says why nobody knows whether the repository holds it.
        """
        self._is_released = False
        self._is_pending = sighting is not None and not is_settled and self.current is None
        self._is_behind = sighting is not None and self._asked != (sighting.artifact, spec.framework)
        if sighting is None and self.current is None:
            self.fault = absence or "not in the repository"
        elif sighting is not None and is_settled:
            self._fetch_new(spec, sighting)
        fetched = self._fetched
        if fetched is not None and fetched.found is not None:
            file, pad_to = str(fetched.found.file), spec.batching.pad_to
            needs = states_and_controls(spec.batching.sequence_batching)
            plan = Plan(
                *self.identity, fetched.digest, fetched.found.framework, file, spec.trusted,
                spec.outputs, spec.doubles, spec.signature, pad_to, *needs,
                spec.instances.model_copy(update={"count": 1}), spec.loads,
                signature_name=spec.signature_name, text=spec.text, torch=spec.torch,
                begins_with=begins_with(spec), onnx=spec.onnx, decoupled=spec.decoupled,
            )  # fmt: skip
            self._advance(plan, spec)
        elif self.current is not None:
            self.current.adjust(spec, self._let_go)
        self._swap()

    def release(self) -> None:
        """Let all instances go."""
        self._is_released = True
        for generation in (self.current, self.next):
            if generation is not None:
                self._retire(generation)
        self.current = self.next = None

    async def left(self) -> None:
        """Wait until every instance that was let go has ended."""
        for supervisor in self._still_leaving():
            await supervisor.ended.wait()

    @property
    def is_gone(self) -> bool:
        """Whether nothing of it is left in this process."""
        return self.current is None and not self.is_fetching and not self._still_leaving()

    @property
    def is_fetching(self) -> bool:
        return self._fetch is not None and not self._fetch.done()

    @property
    def progress(self) -> Progress:
        if self.current is not None:
            return Progress.READY if self.current.is_serving else self.current.progress
        return Progress.PENDING if self._is_pending or self.is_fetching or not self.fault else Progress.FAILED

    @property
    def is_serving(self) -> bool:
        return self.current is not None and self.current.is_serving

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come of it by itself: it is ready, has failed, or lacks memory."""
        is_stuck = self.current is not None and self.current.is_stuck
        return is_stuck or self.progress is not Progress.PENDING

    def digests(self) -> set[str]:
        """Of every copy that is in use or about to be."""
        used = {generation.plan.digest for generation in (self.current, self.next) if generation is not None}
        used |= {supervisor.instance.digest for supervisor in self._still_leaving()}
        return used | ({self._fetched.digest} if self._fetched else set())

    def instances(self) -> Iterator[pb.Instance]:
        for generation in (self.current, self.next):
            if generation is not None:
                yield from (supervisor.instance for supervisor in generation.supervisors)
        yield from (supervisor.instance for supervisor in self._still_leaving())

    def inventory(self) -> InventoryVersion:
        """In Triton's words."""
        current = self.current
        if current is None:
            if self._still_leaving():
                return InventoryVersion(state="UNLOADING")
            if self._is_released:
                return InventoryVersion(state="UNAVAILABLE", reason=UNLOADED)
            state = "LOADING" if self.progress is Progress.PENDING else "UNAVAILABLE"
            return InventoryVersion(state=state, reason=self.fault)
        following = self.next
        reason = self.fault or (following.reason if following else "") or current.reason
        states = {Progress.READY: "READY", Progress.PENDING: "LOADING", Progress.FAILED: "UNAVAILABLE"}
        return InventoryVersion.model_validate(
            {
                "state": states[self.progress],
                "reason": reason,
                "digest": current.plan.digest,
                "framework": current.plan.framework,
                "update": self._update(),
                "failures": (following or current).failures,
                "instances": {
                    each.id: InventoryInstance(state=pb.InstanceState.Name(each.state), restarts=each.restarts)
                    for each in self.instances()
                },
            }
        )

    def _update(self) -> str:
        """How what is to take the place of what serves is coming on."""
        if self.is_fetching or self._is_behind:
            return "LOADING"
        if self.fault or (self.next is not None and self.next.progress is Progress.FAILED):
            return "UNAVAILABLE"
        return "LOADING" if self.next is not None else ""

    # -- fetching

    def _fetch_new(self, spec: ModelSpec, sighting: Sighting) -> None:
        asked = (sighting.artifact, spec.framework)
        if self.is_fetching or (asked == self._asked and time.monotonic() < self._fetch_again_at_s):
            return
        if asked != self._asked:
            self._pauses.reset()
        self._asked, self._fetch_again_at_s = asked, math.inf
        self._pauses.begin()
        self._fetch = self._means.spawn(self._fetch_one(spec, sighting))

    async def _fetch_one(self, spec: ModelSpec, sighting: Sighting) -> None:
        await self._means.swept.wait()
        try:
            fetched = await self._means.cache.fetch(sighting.artifact, spec.framework)
        except BadRepositoryError as error:
            self._fail(str(error))
        except ChangedError as error:
            self._fetch_again(f"not whole yet: {error}")
        except OSError as error:
            self._fetch_again(f"cannot be read: {error}")
        except Exception as error:  # one artifact that nobody expected must not end the others' instances
            log.exception("fetch_crashed", model=self.identity.model, version=self.identity.version)
            self._fetch_again(f"cannot be read: {type(error).__name__}")
        else:
            self._fetched = fetched
            self.fault = ""
            if fetched.fault:
                self._fail(fetched.fault)
        finally:
            self._means.wake()

    def _fetch_again(self, fault: str) -> None:
        """Later, or when it has changed."""
        wait_s = self._pauses.next_s()
        self._fetch_again_at_s = time.monotonic() + wait_s
        self._fail(fault, again_in_s=round(wait_s, 1))

    def _fail(self, fault: str, **details: float) -> None:
        self.fault = fault
        log.warning(
            "artifact_refused", model=self.identity.model, version=self.identity.version, reason=fault, **details
        )

    # -- instances

    def _advance(self, plan: Plan, spec: ModelSpec) -> None:
        if self.current is None:
            self.current = self._start(plan, spec)
        elif self.current.plan == plan:
            if self.next is not None:  # the repository went back to what is served
                self._retire(self.next)
                self.next = None
            self.current = self._adjusted(self.current, spec)
        elif self.next is None or self.next.plan != plan:
            if self.next is not None:
                self._retire(self.next)
            self.next = self._start(plan, spec)
        else:
            self.next = self._adjusted(self.next, spec)

    def _adjusted(self, generation: Generation, spec: ModelSpec) -> Generation:
        """The generation under a changed spec; one that has failed gets another chance."""
        if generation.progress is Progress.FAILED and generation.spec != spec:
            self._retire(generation)
            return self._start(generation.plan, spec)
        generation.adjust(spec, self._let_go)
        return generation

    def _swap(self) -> None:
        """Let the new generation take over once it is ready, or at once where the old one serves nothing."""
        current, following = self.current, self.next
        if current is None or following is None:
            return
        if following.progress is Progress.READY or current.progress is Progress.FAILED:
            log.info("version_swapped", model=self.identity.model, version=self.identity.version)
            self._retire(current)
            self.current, self.next = following, None

    def _start(self, plan: Plan, spec: ModelSpec) -> Generation:
        return Generation(plan, spec, self._means.start)

    def _retire(self, generation: Generation) -> None:
        for supervisor in generation.supervisors:
            self._let_go(supervisor)

    def _let_go(self, supervisor: Supervisor) -> None:
        supervisor.stop()
        self._leaving.append(supervisor)

    def _still_leaving(self) -> list[Supervisor]:
        self._leaving = [supervisor for supervisor in self._leaving if not supervisor.ended.is_set()]
        return self._leaving
