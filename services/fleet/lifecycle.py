"""Load, unload and index of a fleet's models: a key is written by compare-and-swap, live pods say what came of it."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

from services.chassis.etcd import EtcdClient, EtcdError, Mirror
from services.core import keys
from services.core.desired_state import IndexRow, Pods, Verdict, index, judge_load, judge_unload, loaded, unloaded
from services.core.errors import (
    INVALID_ARGUMENT,
    DeadlineExceededError,
    InvalidRequestError,
    NotFoundError,
    ServingError,
    UnavailableError,
)
from services.core.load_request import LoadRequest
from services.core.model_spec import ModelSpec
from services.core.names import checked_model_name
from services.core.registry import Inventory, ServiceRecord
from services.core.spec import BadValueError
from services.fleet.uploads import Uploads

_TRIES = 5
Show = Callable[[str], None]
Judge = Callable[[Pods], Verdict]
_RUNTIMES = f"{keys.SERVICES}runtime/"
_STATUS = f"{keys.STATUS}runtime/"


class LoadError(ServingError):
    """The model cannot be loaded as it was asked for; what was there before is there again."""

    code = INVALID_ARGUMENT


class Written(NamedTuple):
    """A spec as this process wrote it, and what it replaced."""

    spec: ModelSpec
    revision: int
    before: bytes | None


class Outcome(NamedTuple):
    """A load or unload that came about."""

    spec: ModelSpec
    pods: int  # 0: none of the model's pool runs, so that only the key was written
    revision: int  # of the spec as it was written


class Lifecycle:
    """Desired state as a caller sees it: asked for, waited for, undone where it fails."""

    def __init__(self, client: EtcdClient, log: Any, uploads: Uploads | None = None) -> None:
        self._client = client
        self._log = log
        self._uploads = uploads

    async def load(self, model: str, request: LoadRequest, timeout_s: float, show: Show = lambda _: None) -> Outcome:
        """Load a model, or load it anew; returns when every live pod of its pool has it READY.

        Raises InvalidRequestError for a request that makes no spec, LoadError with the pods' reason, or
        DeadlineExceededError; then the spec of before is back, unless somebody else has changed it meanwhile.
        """
        _check_name(model)
        overrides = dict(request.overrides)
        if request.files:
            if self._uploads is None:
                raise InvalidRequestError("file:VERSION/PATH is not offered here: no folder for uploads is configured")
            overrides["repository"] = await asyncio.to_thread(self._uploads.store, model, request.files)
            overrides["folder"] = None
        stored_s = time.time()
        try:
            return await self._load(model, overrides, timeout_s, show)
        finally:
            await self._tidy(model, stored_s)

    async def _load(self, model: str, overrides: dict[str, Any], timeout_s: float, show: Show) -> Outcome:
        written = await self._write(model, lambda before: loaded(before, overrides))
        named = (written.spec.version_policy.specific or ()) if "version_policy" in overrides else ()
        pool = written.spec.placement.pool
        judge = partial(judge_load, model=model, pool=pool, revision=written.revision, named=named)
        try:
            verdict = await self._judged(judge, timeout_s, show)
        except DeadlineExceededError as error:
            raise DeadlineExceededError(f"model {model}: {error}; {await self._undo(model, written)}") from None
        except BaseException:  # half a load is none
            await self._undo(model, written)
            raise
        if verdict.failed:
            undone = await self._undo(model, written)
            raise LoadError(f"model {model} is not loaded: {verdict.failed[0]}; {undone}")
        return Outcome(written.spec, verdict.pods, written.revision)

    async def _tidy(self, model: str, stored_s: float) -> None:
        """Remove uploads up to this load's own that the model's spec, as it is by now, does not name."""
        if self._uploads is None:
            return
        with suppress(EtcdError, BadValueError):  # they go with the next load
            entry = await self._client.get(f"{keys.MODELS}{model}")
            url = ModelSpec.parse(entry.value).repository if entry else None
            await asyncio.to_thread(self._uploads.keep_only, model, url, stored_s)

    async def unload(self, model: str, timeout_s: float, show: Show = lambda _: None) -> Outcome:
        """Have every pod let go of a model; the index keeps it. Raises NotFoundError, or DeadlineExceededError."""
        _check_name(model)
        written = await self._write(model, partial(_unloaded, model))
        judge = partial(judge_unload, model=model, pool=written.spec.placement.pool, revision=written.revision)
        return Outcome(written.spec, (await self._judged(judge, timeout_s, show)).pods, written.revision)

    async def index(self) -> list[IndexRow]:
        """Every version of every model that etcd names or a pod knows."""
        models = (await self._client.list(keys.MODELS)).entries
        inventories = (await self._client.list(_STATUS)).entries
        rows = index(
            (key.removeprefix(keys.MODELS) for key in models),
            inventories_of({key: entry.value for key, entry in inventories.items()}),
        )
        refused = {key.removeprefix(keys.MODELS): _refusal(entry.value) for key, entry in models.items()}
        return [row._replace(notes=(*refused.get(row.model, ()), *row.notes)) for row in rows]

    async def _write(self, model: str, change: Callable[[ModelSpec | None], ModelSpec]) -> Written:
        key = f"{keys.MODELS}{model}"
        for _ in range(_TRIES):
            entry = await self._client.get(key)
            try:
                spec = change(ModelSpec.parse(entry.value) if entry else None)
            except BadValueError as error:
                raise InvalidRequestError(f"model {model}: {error}") from None
            revision = await self._client.swap(key, spec.dump(), mod_revision=entry.mod_revision if entry else 0)
            if revision:
                return Written(spec, revision, entry.value if entry else None)
        raise UnavailableError(f"others keep changing models/{model}; try again")

    async def _undo(self, model: str, written: Written) -> str:
        """Put back what was there before, if it is still ours to replace; what became of it, in words."""
        swap = self._client.swap(f"{keys.MODELS}{model}", written.before, mod_revision=written.revision)
        if not await asyncio.shield(swap):
            return "somebody else has changed its spec meanwhile, which stays"
        return (
            "its spec of before is back" if written.before is not None else "it had no spec before, and has none again"
        )

    async def _judged(self, judge: Judge, timeout_s: float, show: Show) -> Verdict:
        """Wait until pods have come to an end. Raises DeadlineExceededError saying what it waited for."""
        verdict = Verdict(0, ("etcd",), ())
        try:
            async with asyncio.timeout(timeout_s), self._inventories() as inventories:
                async for pods in inventories:
                    verdict = judge(pods)
                    if verdict.is_over:
                        break
                    show(verdict.waits[0])
        except TimeoutError:
            raise DeadlineExceededError(f"not done within {timeout_s:g} s: {'; '.join(verdict.waits)}") from None
        return verdict

    @asynccontextmanager
    async def _inventories(self) -> AsyncIterator[AsyncIterator[Pods]]:
        """What live pods say, first as it is, then after each change."""
        news = asyncio.Event()
        prefixes = [_RUNTIMES, _STATUS]
        mirror = Mirror(self._client, prefixes, lambda _: news.set(), snapshot=None, log=self._log)

        async def follow() -> AsyncIterator[Pods]:
            await mirror.loaded.wait()
            while True:
                news.clear()
                yield pods_of({key: stored.value for key, stored in mirror.entries.items()})
                await news.wait()

        running = asyncio.create_task(mirror.run(), name="inventories")
        following = follow()
        try:
            yield following
        finally:
            await following.aclose()  # type: ignore[attr-defined]
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def _refusal(value: bytes) -> tuple[str, ...]:
    """What is wrong with a value of models/MODEL; nothing where it is right."""
    try:
        ModelSpec.parse(value)
    except BadValueError as error:
        return (f"its spec is refused, so the last good one holds: {error}",)
    return ()


def inventories_of(entries: dict[str, bytes]) -> dict[str, Inventory]:
    """By pod, out of the values below status/runtime/; one of another release that cannot be read is left out."""
    found = {}
    for key, value in entries.items():
        pod, _, what = key.removeprefix(_STATUS).rpartition("/")
        if what == "inventory":
            try:
                found[pod] = Inventory.parse(value)
            except BadValueError:
                continue
    return found


def pods_of(entries: dict[str, bytes]) -> Pods:
    """Every runtime that runs and does not stop, with what it says, out of services/runtime/ and status/runtime/."""
    inventories = inventories_of({key: value for key, value in entries.items() if key.startswith(_STATUS)})
    pods: dict[str, Inventory | None] = dict(inventories)
    for key, value in entries.items():
        if key.startswith(_RUNTIMES):
            pod = key.removeprefix(_RUNTIMES)
            if _is_draining(value):
                pods.pop(pod, None)
            else:
                pods.setdefault(pod, None)
    return pods


def _is_draining(record: bytes) -> bool:
    try:
        return ServiceRecord.parse(record).state == "draining"
    except BadValueError:  # of another release
        return False


def _unloaded(model: str, before: ModelSpec | None) -> ModelSpec:
    if before is None:
        raise NotFoundError(f"there is no model {model}")
    return unloaded(before)


def _check_name(model: str) -> None:
    try:
        checked_model_name(model)
    except ValueError as error:
        raise InvalidRequestError(str(error)) from None
