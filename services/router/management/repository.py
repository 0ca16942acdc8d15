"""The model repository extension: index, load and unload, whichever protocol asks for them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import structlog

from services.core import keys
from services.core.desired_state import IndexRow, judge_load, ready_only
from services.core.errors import (
    InvalidRequestError,
    OverloadedError,
    PermissionDeniedError,
    UnavailableError,
    UnimplementedError,
)
from services.core.load_request import LoadRequest, check_unload, parse_load
from services.fleet.lifecycle import Lifecycle, Outcome
from services.router.state import State

log = structlog.get_logger()
_AT_ONCE = 16  # loads and unloads that wait for pods
_SEEN_S = 10.0  # within which this router sees what its pods have said
# Which code runs, what it may read, and who may call: an operator says that in models/MODEL, nobody over the network.
_OPERATORS = ("repository", "folder", "trusted", "environment", "access")


class Repository:
    """Waits for every live pod, then for this very router: what is loaded takes requests at once."""

    def __init__(self, lifecycle: Lifecycle, state: State, timeout_s: float) -> None:
        self._lifecycle = lifecycle
        self._state = state
        self._timeout_s = timeout_s
        self._running = 0
        self._changed = asyncio.Event()
        state.listeners.append(self._wake)

    async def index(self, repository: str, *, ready: bool) -> list[IndexRow]:
        """Every version of every model; only those that take requests where `ready`."""
        _check_repository(repository)
        rows = await self._lifecycle.index()
        return ready_only(rows) if ready else rows

    async def load(self, repository: str, model: str, parameters: Mapping[str, Any], within_s: float | None) -> None:
        """Load a model, or load it anew. Raises ServingError; then what was there before serves on."""
        _check_repository(repository)
        request = parse_load(model, parameters)
        _check_overrides(request.overrides)
        if request.files:  # they come over the network: no pickle or Python file among them is run
            request = LoadRequest({**request.overrides, "trusted": False}, request.files)
        async with self._one_more():
            outcome = await self._lifecycle.load(model, request, self._bounded(within_s))
            if not outcome.pods:
                raise UnavailableError(
                    f"model {model} is written, and no pod of pool {outcome.spec.placement.pool} runs to load it"
                )
            await self._until(lambda: self._serves(model, outcome), f"model {model} is READY in its pods")
        log.info("model_loaded", model=model, pods=outcome.pods)

    async def unload(self, repository: str, model: str, parameters: Mapping[str, Any], within_s: float | None) -> None:
        """Have every pod let go of a model. Raises ServingError."""
        _check_repository(repository)
        check_unload(parameters)
        async with self._one_more():
            outcome = await self._lifecycle.unload(model, self._bounded(within_s))
            await self._until(lambda: self._is_gone(model), f"model {model} is let go of by its pods")
        log.info("model_unloaded", model=model, pods=outcome.pods)

    def _bounded(self, within_s: float | None) -> float:
        return self._timeout_s if within_s is None else min(self._timeout_s, within_s)

    @asynccontextmanager
    async def _one_more(self) -> AsyncIterator[None]:
        if self._running >= _AT_ONCE:
            raise OverloadedError(f"{_AT_ONCE} loads and unloads are going on, the most this router waits for")
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1

    def _serves(self, model: str, outcome: Outcome) -> bool:
        """Whether this router has seen the load, and routes to every version that is READY by it."""
        desired = self._state.desired
        verdict = judge_load(desired.inventory, model, outcome.spec.placement.pool, outcome.revision)
        is_known = desired.accepted.get(f"{keys.MODELS}{model}", 0) >= outcome.revision
        if not is_known or verdict.waits or verdict.failed:
            return False
        digests: dict[str, set[str]] = {}
        for inventory in desired.inventory.values():
            for version, each in inventory.models.get(model, {}).items():
                if each.state == "READY":
                    digests.setdefault(version, set()).add(each.digest)
        targets = self._state.targets(model)
        return all(version in targets and targets[version].digest in digests[version] for version in digests)

    def _is_gone(self, model: str) -> bool:
        return not self._state.targets(model)

    async def _until(self, check: Callable[[], bool], what: str) -> None:
        """Wait until `check` holds. Raises UnavailableError when it does not come to that."""
        try:
            async with asyncio.timeout(_SEEN_S):
                while not check():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise UnavailableError(f"{what}; this router has not seen that within {_SEEN_S:g} s") from None

    def _wake(self) -> None:
        self._changed.set()


def _check_repository(name: str) -> None:
    if name:
        raise UnimplementedError("repositories have no names here: leave the repository's name out")


def _check_overrides(overrides: Mapping[str, Any]) -> None:
    """Raise PermissionDeniedError for a field that is not to be set over the network, of a version neither."""
    versions = overrides.get("versions")
    if versions is not None and not isinstance(versions, Mapping):
        raise InvalidRequestError("config.versions is no object")
    for fields in (overrides, *(versions or {}).values()):
        for name in _OPERATORS:
            if isinstance(fields, Mapping) and name in fields:
                raise PermissionDeniedError(
                    f"config.{name} is not set over the network: an operator writes it to models/ in etcd, or uses"
                    " `turnout models load`"
                )
