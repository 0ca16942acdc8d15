"""routes/MODEL as a caller reads and writes it: checked as routers check it, written by compare-and-swap."""

from collections.abc import Mapping
from typing import NamedTuple

from services.chassis.etcd import EtcdClient
from services.core import keys
from services.core.errors import InvalidRequestError, NotFoundError, PreconditionError, UnavailableError
from services.core.names import checked_model_name
from services.core.route_spec import RouteSpec, check_known
from services.core.spec import BadValueError
from services.fleet.applied import APPLIED_S, Applied, until_applied
from services.fleet.lifecycle import inventories_of

_TRIES = 5


class StoredRoute(NamedTuple):
    """A route as it stands in etcd. `fault`: why it is none, so that routers go by the last good one."""

    value: bytes
    revision: int
    fault: str = ""


class RouteStore:
    """Routes of a fleet. Revisions are etcd's: give one to change just what was read."""

    def __init__(self, client: EtcdClient) -> None:
        self._client = client

    async def all(self) -> Mapping[str, StoredRoute]:
        """By model."""
        entries = (await self._client.list(keys.ROUTES)).entries
        return {
            key.removeprefix(keys.ROUTES): _stored(entry.value, entry.mod_revision)
            for key, entry in sorted(entries.items())
        }

    async def get(self, model: str) -> StoredRoute:
        """Raises NotFoundError."""
        entry = await self._client.get(_key(model))
        if entry is None:
            raise NotFoundError(f"model {model} has no route: its default_version, or its newest, serves")
        return _stored(entry.value, entry.mod_revision)

    async def put(self, model: str, value: bytes, revision: int | None) -> tuple[StoredRoute, Applied]:
        """Write a route, if it is still at `revision` (0 = if there is none; None = whatever is there).

        Returns once every router has judged it, or a moment later. Raises ServingError for what no router would take.
        """
        key = _key(model)
        try:
            route = RouteSpec.parse(value)
            check_known(model, route, await self._known(model))
        except BadValueError as error:
            raise InvalidRequestError(f"that is no route of model {model}: {error}") from None
        written = route.dump()
        at = await self._swap(model, written, revision)
        return StoredRoute(written, at), await until_applied(self._client, key, at, APPLIED_S)

    async def delete(self, model: str, revision: int | None) -> None:
        """Remove a route, if it is still at `revision`. Raises NotFoundError or PreconditionError."""
        await self.get(model)
        await self._swap(model, None, revision)

    async def _swap(self, model: str, value: bytes | None, revision: int | None) -> int:
        key = _key(model)
        for _ in range(_TRIES):
            entry = await self._client.get(key)
            found = entry.mod_revision if entry else 0
            if revision is not None and found != revision:
                raise PreconditionError(
                    f"the route of model {model} is at revision {found}, not {revision}: read it again"
                )
            if changed := await self._client.swap(key, value, mod_revision=found):
                return changed
        raise UnavailableError(f"others keep changing the route of model {model}; try again")

    async def _known(self, model: str) -> set[str]:
        """Versions of a model that exists. Raises NotFoundError for another."""
        if await self._client.get(f"{keys.MODELS}{model}") is None:
            raise NotFoundError(f"there is no model {model}: write models/{model} first, or load it")
        entries = (await self._client.list(f"{keys.STATUS}runtime/")).entries
        inventories = inventories_of({key: entry.value for key, entry in entries.items()})
        return {version for each in inventories.values() for version in each.models.get(model, {})}


def _stored(value: bytes, revision: int) -> StoredRoute:
    try:
        RouteSpec.parse(value)
    except BadValueError as error:
        return StoredRoute(value, revision, str(error))
    return StoredRoute(value, revision)


def _key(model: str) -> str:
    try:
        return f"{keys.ROUTES}{checked_model_name(model)}"
    except ValueError as error:
        raise InvalidRequestError(str(error)) from None
