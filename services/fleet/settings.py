"""settings/NAME as a caller reads and writes it: a typed value, changed by compare-and-swap."""

from collections.abc import Callable
from typing import TypeVar

from services.chassis.etcd import EtcdClient
from services.core import keys
from services.core.errors import PreconditionError, UnavailableError
from services.core.spec import BadValueError, Spec
from services.fleet.applied import APPLIED_S, until_applied

S = TypeVar("S", bound=Spec)
_TRIES = 5


class SettingsStore:
    """Settings of a fleet."""

    def __init__(self, client: EtcdClient) -> None:
        self._client = client

    async def get(self, name: str, kind: type[S]) -> S:
        """What settings/NAME says; all that it may say is unset where there is none."""
        entry = await self._client.get(f"{keys.SETTINGS}{name}")
        return _parsed(name, kind, entry.value if entry else None)

    async def change(self, name: str, kind: type[S], change: Callable[[S], S]) -> S:
        """Write what `change` makes of it; returns once every router has it, or a moment later."""
        key = f"{keys.SETTINGS}{name}"
        for _ in range(_TRIES):
            entry = await self._client.get(key)
            before = _parsed(name, kind, entry.value if entry else None)
            after = change(before)
            if after == before:
                return after
            revision = await self._client.swap(key, after.dump(), mod_revision=entry.mod_revision if entry else 0)
            if revision:
                await until_applied(self._client, key, revision, APPLIED_S)
                return after
        raise UnavailableError(f"others keep changing {key}; try again")


def _parsed(name: str, kind: type[S], value: bytes | None) -> S:
    try:
        return kind.parse(value) if value is not None else kind()
    except BadValueError as error:
        raise PreconditionError(f"settings/{name} in etcd is refused, so nothing builds on it: {error}") from None
