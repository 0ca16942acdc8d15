"""What the router knows: desired state and live replicas in, the route table and status out."""

import asyncio
from collections.abc import Callable, Iterable, Mapping

import structlog

from services.chassis.app import App
from services.chassis.arena.arenas import Arenas
from services.chassis.etcd import Change, Mirror
from services.chassis.etcd.errors import EtcdError
from services.chassis.etcd.snapshot import Stored
from services.chassis.peers import Peers
from services.chassis.replicas import Replicas
from services.core import keys
from services.core.registry import ConfigStatus, Inventory, ServiceRecord
from services.core.spec import BadValueError
from services.router.access.gate import Access
from services.router.desired import Desired
from services.router.metrics import RouterMetrics
from services.router.table import Table, Target

log = structlog.get_logger()
ROUTERS = keys.SERVICES + "router/"
PREFIXES = (
    keys.MODELS,
    keys.ROUTES,
    keys.CALLERS,
    keys.SETTINGS,
    keys.ENDPOINTS,
    ROUTERS,
    keys.SERVICES + "feature_proxy/",
    keys.SERVICES + "shadow/",
    keys.SERVICES + "recorder/",
    keys.STATUS + "runtime/",
)
_AGE_S = 5.0


class State:
    """Follows etcd and the links; rebuilds the table once a turn, whatever changed."""

    def __init__(
        self, app: App, table: Table, access: Access, metrics: RouterMetrics, peers: Iterable[Peers], arenas: Arenas
    ) -> None:
        self._app = app
        self._table = table
        self._access = access
        self._metrics = metrics
        self._peers = list(peers)
        self.desired = Desired()
        self._published = b""
        self._rebuild_due = False
        self._once_ready: set[str] = set()
        self._searched: set[tuple[str, int]] = set()
        self.listeners: list[Callable[[], None]] = []
        self.replicas = Replicas(app.hello, app.host, self._changed, arenas, app.link_security)
        snapshot = app.config.data_dir / f"router-{app.config.instance or 'snapshot'}.json"
        self.mirror = Mirror(app.etcd, PREFIXES, self._take, snapshot=snapshot, log=app.log)

    def inventories(self) -> Iterable[Inventory]:
        """What each live pod says of its versions."""
        return self.desired.inventory.values()

    def not_ready(self) -> str | None:
        """Why the router is not ready; None when it is. Never for want of etcd once it has a snapshot."""
        if reason := self.closed():
            return reason
        for name, entry in self._table.entries().items():
            if entry.spec.required_for_ready and name not in self._once_ready:
                return f"model {name} is required and its stable version was never ready"
        return None

    def closed(self) -> str | None:
        """Why no model takes requests, whatever becomes of it; None when they may."""
        if self._app.stop.is_set():
            return "draining"
        if not self.mirror.loaded.is_set():
            return "no configuration yet: neither etcd nor a snapshot"
        return None

    def targets(self, model: str) -> Mapping[str, Target]:
        """Versions of a model that have a replica ready to take requests."""
        entry = self._table.entries().get(model)
        return entry.targets if entry else {}

    async def watch_age(self) -> None:
        """Keep the age of the configuration current."""
        while True:
            self._metrics.config_age.set(self.mirror.age_s())
            await asyncio.sleep(_AGE_S)

    async def tell_when_loaded(self) -> None:
        """Let the listeners look again once there is a configuration: an empty one changes nothing by itself."""
        await self.mirror.loaded.wait()
        self._changed()

    async def close(self) -> None:
        await self.replicas.close()
        for peers in self._peers:
            await peers.close()

    def _take(self, changes: list[Change]) -> None:
        self.desired.apply(changes)
        self._follow_callers(changes)
        for peers in self._peers:
            peers.apply(changes)
        self.replicas.apply(changes)
        self._rebuild()
        self._search_earlier()

    def _follow_callers(self, changes: list[Change]) -> None:
        """Tell the gate of callers that changed, and of how many routers share their limits."""
        if any(change.key.startswith(ROUTERS) for change in changes):
            self._access.share_with(live_routers(self.mirror.entries))
        if any(change.key.startswith(keys.CALLERS) for change in changes):
            self._access.follow(self.desired.callers)

    def _changed(self) -> None:
        if not self._rebuild_due:
            self._rebuild_due = True
            asyncio.get_running_loop().call_soon(self._rebuild)

    def _rebuild(self) -> None:
        self._rebuild_due = False
        served = {}
        for model, version in self.replicas.versions():
            said = self.replicas.served(model, version)
            if said is not None:
                served[model, version] = said
        self._table.rebuild(self.desired, served)
        for name, entry in self._table.entries().items():
            self._metrics.route_unready.labels(name).set(len(entry.chooser.unready))
            if entry.chooser.has_stable():
                self._once_ready.add(name)
        self._publish()
        for listener in self.listeners:
            listener()

    def _publish(self) -> None:
        """Say in status/ what is in effect and what is refused, when that changes."""
        desired = self.desired
        status = ConfigStatus(
            revision=self.mirror.revision,
            accepted=desired.accepted,
            refused=desired.refused,
            refused_at=desired.refused_at(),
        )
        self._metrics.config_refused.set(len(desired.refused))
        self._metrics.config_revision.set(status.revision)
        judged = status.model_copy(update={"revision": 0}).dump()
        if judged == self._published:
            return
        self._published = judged
        for key, reason in desired.refused.items():
            log.warning("config_refused", key=key, reason=reason)
        self._app.registration.put(keys.status("router", self._app.instance, "routes"), status.dump())

    def _search_earlier(self) -> None:
        """A refused key without a last good value: look for one among its earlier revisions, once."""
        for key, revision in self.desired.missing():
            if (key, revision) not in self._searched:
                self._searched.add((key, revision))
                self._app.spawn(self._find_earlier(key, revision), f"earlier-{key}")

    async def _find_earlier(self, key: str, before: int) -> None:
        try:
            async for entry in self._app.etcd.earlier(key, before):
                if key in self.desired.accepted:
                    return
                if self.desired.accept_earlier(key, entry.value, entry.mod_revision):
                    self._access.follow(self.desired.callers)
                    log.info("earlier_value_used", key=key, revision=entry.mod_revision)
                    self._changed()
                    return
        except EtcdError as error:
            log.warning("earlier_value_unknown", key=key, reason=str(error))
            self._searched.discard((key, before))


def live_routers(entries: Mapping[str, Stored]) -> int:
    """How many routers take requests, as they say in services/router/."""
    count = 0
    for key, stored in entries.items():
        if key.startswith(ROUTERS):
            try:
                count += ServiceRecord.parse(stored.value).state in {"ready", "not_ready"}
            except BadValueError:
                count += 1  # a router of another release
    return count
