"""What the repositories of this pod's models hold, looked at again and again."""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple

import structlog

from services.core.model_spec import ModelSpec
from services.runtime.aside import aside
from services.runtime.configured import Configured
from services.runtime.remembered import Remembered
from services.runtime.remote_repository import RemoteRepository
from services.runtime.repositories import Repositories
from services.runtime.source import Artifact, BadRepositoryError, Look, Repository, is_settled

_REMOTE_AT_ONCE = 4  # looks
_PATIENCE_S = 2.0  # before what was known at the last start has to do
_SHORTEST_S = 1.0  # between two looks at a remote repository

log = structlog.get_logger()


class Sighting(NamedTuple):
    """A version as the last look found it: `artifact` is unchanged since `since_s`, last seen at `seen_s`."""

    artifact: Artifact
    since_s: float  # monotonic
    seen_s: float


class Catalogue:
    """Versions by model. A repository that cannot be read keeps what it last showed, over a restart too.

    Local repositories are looked at whenever `look` is called, remote ones by tasks of their own when they are due.
    """

    def __init__(
        self, default_repository: str, repositories: Repositories, remembered: Remembered,
        spawn: Callable[[Coroutine[Any, Any, None]], object], wake: Callable[[], None],
        *, settle_s: float, remote_scan_s: float = 10.0,
    ) -> None:  # fmt: skip
        self._default = default_repository
        self._repositories = repositories
        self._remembered = remembered
        self._spawn = spawn
        self._wake = wake
        self._settle_s = settle_s
        self._remote_scan_s = remote_scan_s
        self._slots = asyncio.Semaphore(_REMOTE_AT_ONCE)
        self._looking: set[str] = set()  # models whose remote repository is being asked
        self._due_s: dict[str, float] = {}  # monotonic, by model, of remote ones
        self._given: Mapping[str, ModelSpec] = {}  # what was last asked for
        self._specs: dict[str, ModelSpec] = {}  # of remote ones, as last looked at
        self._whole: dict[str, set[str]] = {}  # seen settled once; a later change does not make a version disappear
        self._ignored: dict[str, tuple[str, ...]] = {}
        self.versions: dict[str, dict[str, Sighting]] = {}
        self.faults: dict[str, str] = {}  # by model
        self.configured = Configured()

    async def look(self, specs: Mapping[str, ModelSpec]) -> None:
        """Look at the repositories of these models, off the loop; remote ones may answer later."""
        self._given = dict(specs)
        for model, found in (await asyncio.to_thread(self._scan_local, self._given)).items():
            if isinstance(found, RemoteRepository):
                self._look_afar(model, specs[model], found)
            else:
                self._specs.pop(model, None)
                self._due_s.pop(model, None)
                self._take(model, found)
        for gone in [model for model in self._specs.keys() | self.versions.keys() if model not in specs]:
            self._forget(gone)

    def is_current(self, model: str) -> bool:
        """Whether the last look at a model, by the spec that was last given, has ended."""
        return model not in self._specs or model in self._due_s

    def available(self) -> dict[str, set[str]]:
        """The versions that a policy may choose from: a half-copied one is not the latest yet."""
        for model, versions in self.versions.items():
            whole = {version for version, sighting in versions.items() if self.is_settled(sighting)}
            self._whole[model] = (self._whole.get(model, set()) & set(versions)) | whole
        return self._whole

    def is_settled(self, sighting: Sighting) -> bool:
        """Whether a version is whole, as far as one can see."""
        return is_settled(sighting.artifact, sighting.seen_s - sighting.since_s, time.time(), self._settle_s)

    def _scan_local(self, specs: Mapping[str, ModelSpec]) -> dict[str, Look | RemoteRepository | str]:
        """What a model's local repository shows, or why it cannot be read; a remote one is only named.

        The means to read a repository may take a second to import.
        """
        found: dict[str, Look | RemoteRepository | str] = {}
        for model, spec in specs.items():
            try:
                repository = self._repositories.of(spec.repository or self._default)
            except BadRepositoryError as error:
                found[model] = str(error)
                continue
            if isinstance(repository, RemoteRepository):
                found[model] = repository
            else:
                found[model] = _scan(repository, spec.folder or model)
        return found

    # -- remote repositories

    def _look_afar(self, model: str, spec: ModelSpec, repository: RemoteRepository) -> None:
        """Begin a look if one is due, and at once where the spec is new: somebody waits for what it says."""
        if self._specs.get(model) != spec:
            self._specs[model] = spec
            self._due_s.pop(model, None)
        if model not in self._looking and time.monotonic() >= self._due_s.get(model, 0.0):
            self._looking.add(model)
            self._spawn(self._look_at(model, spec, repository))

    async def _look_at(self, model: str, spec: ModelSpec, repository: RemoteRepository) -> None:
        try:
            async with self._slots:
                found = await self._patiently(model, spec, repository)
        finally:
            self._looking.discard(model)
        if self._specs.get(model) != spec:
            return  # it is another one by now, or the model is gone: the next look is due
        if isinstance(found, Look):
            await asyncio.to_thread(self._remembered.note_listing, repository, model, found)
        else:
            self._recall(model, repository)
        self._take(model, found)
        is_quiet = all(self.is_settled(sighting) for sighting in self.versions.get(model, {}).values())
        pause_s = self._remote_scan_s if is_quiet else min(self._remote_scan_s, max(_SHORTEST_S, self._settle_s))
        self._due_s[model] = time.monotonic() + pause_s * random.uniform(0.8, 1.2)  # noqa: S311 - jitter
        self._wake()

    async def _patiently(self, model: str, spec: ModelSpec, repository: RemoteRepository) -> Look | str:
        looking = asyncio.ensure_future(aside("look", _scan, repository, spec.folder or model))
        try:
            await asyncio.wait({looking}, timeout=_PATIENCE_S)
            if not looking.done() and self._recall(model, repository):
                self._wake()
            return await looking
        finally:
            looking.cancel()

    def _recall(self, model: str, repository: RemoteRepository) -> bool:
        """Go by what the repository held before this process began, where nothing else is known of the model."""
        if model in self.versions or model not in self._specs:
            return False
        now_s = time.monotonic()
        look = self._remembered.listing(repository, model)
        recalled = {
            version: Sighting(artifact, now_s - self._settle_s, now_s)
            for version, artifact in self.configured.take(model, look, self._given.get(model)).items()
        }
        if recalled:
            self.versions[model] = recalled
        return bool(recalled)

    # -- taking in

    def _take(self, model: str, result: Look | str) -> None:
        if isinstance(result, str):
            self._failed(model, result)
            return
        known, now_s = self.versions.get(model, {}), time.monotonic()
        self.faults.pop(model, None)
        self.versions[model] = {
            version: before._replace(seen_s=now_s)
            if (before := known.get(version)) and before.artifact == artifact
            else Sighting(artifact, now_s, now_s)
            for version, artifact in self.configured.take(model, result, self._given.get(model)).items()
        }
        ignored = result.ignored
        if ignored and ignored != self._ignored.get(model):
            log.info("not_versions", model=model, names=ignored[:8], expected="a decimal number without leading zeros")
        self._ignored[model] = ignored

    def _failed(self, model: str, reason: str) -> None:
        if self.faults.get(model) != reason:
            log.warning("repository_unreadable", model=model, reason=reason)
        self.faults[model] = reason
        self.versions.setdefault(model, {})

    def _forget(self, model: str) -> None:
        for held in (self.versions, self._whole, self.faults, self._ignored, self._due_s, self._specs):
            held.pop(model, None)  # type: ignore[attr-defined]
        self.configured.forget(model)


def _scan(repository: Repository, model: str) -> Look | str:
    """One look; the reason why there was none."""
    try:
        return repository.scan(model)
    except (OSError, BadRepositoryError) as error:
        return str(error)
    except Exception as error:  # one repository that nobody expected must not end the others' models
        log.exception("look_crashed", repository=str(repository), model=model)
        return f"repository {repository} could not be read: {type(error).__name__}"
