"""When a mesh on this machine can be used: every process says so, and the router has every version."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from services.chassis.etcd import EtcdClient, EtcdError
from services.cli.client import GrpcClient
from services.cli.errors import CliError
from services.cli.processes import Child
from services.core import keys
from services.core.model_spec import ModelSpec
from services.core.names import ModelVersion
from services.core.registry import Inventory, InventoryVersion, ServiceRecord
from services.core.route_spec import RouteSpec
from services.core.spec import BadValueError

_POLL_S = 0.1
_GIVEN_UP_S = 10.0  # a version that was UNAVAILABLE for so long is not waited for


class Readiness:
    """What is still missing, asked again and again. `children` must say that they are ready."""

    def __init__(self, client: EtcdClient, router: GrpcClient, children: Sequence[Child]) -> None:
        self._client = client
        self._router = router
        self._children = children
        self._broken_since: dict[ModelVersion, float] = {}
        self.broken: dict[ModelVersion, str] = {}  # versions that do not load, and why

    async def wait(self, show: Callable[[str], None], timeout_s: float) -> None:
        """Return when nothing is missing; `show` is told what is. Raises CliError when that takes too long."""
        deadline = time.monotonic() + timeout_s
        while missing := await self._missing():
            if time.monotonic() > deadline:
                raise CliError(f"not ready after {timeout_s:g} s: {'; '.join(missing)}")
            show(missing[0])
            await asyncio.sleep(_POLL_S)

    async def _missing(self) -> list[str]:
        try:
            services = await self._client.list(keys.SERVICES)
            wanted = await wanted_versions(self._client)
            inventory = await versions(self._client)
        except EtcdError as error:
            return [str(error)]
        records = [ServiceRecord.parse(entry.value) for entry in services.entries.values()]
        if missing := not_ready(self._children, records):
            loading = ", ".join(str(each) for each in sorted(wanted) if not _is_settled(inventory.get(each)))
            return [f"{missing[0]}; to load: {loading}", *missing[1:]] if loading else missing
        return await self._not_served(wanted, inventory)

    async def _not_served(
        self, wanted: Collection[ModelVersion], inventory: Mapping[ModelVersion, InventoryVersion]
    ) -> list[str]:
        missing = []
        for each in sorted(wanted):
            if await self._router.is_ready(each.model, each.version):
                self.broken.pop(each, None)
            elif not self._is_given_up(each, inventory.get(each)):
                known = inventory.get(each)
                missing.append(f"{each} is {known.state.lower() if known else 'not loaded'}{_because(known)}")
        return missing

    def _is_given_up(self, version: ModelVersion, known: InventoryVersion | None) -> bool:
        """Whether a version says for some time already why it does not load."""
        if known is None or known.state != "UNAVAILABLE" or not known.reason:
            self._broken_since.pop(version, None)
            return False
        since = self._broken_since.setdefault(version, time.monotonic())
        if time.monotonic() - since < _GIVEN_UP_S:
            return False
        self.broken[version] = known.reason
        return True


def not_ready(children: Sequence[Child], records: Sequence[ServiceRecord]) -> list[str]:
    """Which of the children do not say that they are ready."""
    states = {record.pid: record.state for record in records}
    found = [(child.name, states.get(child.pid) if child.pid else "down") for child in children]
    return [f"{name} is {(state or 'starting').replace('_', ' ')}" for name, state in found if state != "ready"]


async def wanted_versions(client: EtcdClient) -> set[ModelVersion]:
    """Every version that a route names or a model defaults to."""
    wanted = set()
    for key, entry in (await client.list(keys.MODELS)).entries.items():
        try:
            default = ModelSpec.parse(entry.value).default_version
        except BadValueError:
            continue
        wanted |= {ModelVersion(key.removeprefix(keys.MODELS), default)} if default else set()
    for key, entry in (await client.list(keys.ROUTES)).entries.items():
        try:
            named = RouteSpec.parse(entry.value).named_versions()
        except BadValueError:
            continue
        wanted |= {ModelVersion(key.removeprefix(keys.ROUTES), version) for version in named}
    return wanted


async def versions(client: EtcdClient) -> dict[ModelVersion, InventoryVersion]:
    """Every version that any pod knows; of several pods, the one that is READY speaks."""
    found: dict[ModelVersion, InventoryVersion] = {}
    for key, entry in (await client.list(f"{keys.STATUS}runtime/")).entries.items():
        if not key.endswith("/inventory"):
            continue
        for model, known in Inventory.parse(entry.value).models.items():
            for version, state in known.items():
                name = ModelVersion(model, version)
                if name not in found or state.state == "READY":
                    found[name] = state
    return found


def _is_settled(known: InventoryVersion | None) -> bool:
    return known is not None and known.state in ("READY", "UNAVAILABLE")


def _because(known: InventoryVersion | None) -> str:
    return f" ({known.reason})" if known and known.reason else ""
