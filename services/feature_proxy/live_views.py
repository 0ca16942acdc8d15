"""Keeps Views at what etcd says, and says what became of it: in status/, metrics and the log."""

import asyncio
from itertools import count

from services.chassis.app import App
from services.chassis.etcd import Change, EtcdError
from services.core.keys import FEATURE_VIEWS, status
from services.feature_proxy.metrics import Metrics
from services.feature_proxy.round_trip import Reader
from services.feature_proxy.stores.pool import StorePool
from services.feature_proxy.views import Views

_RETRY_S = 2.0
_MAX_EARLIER = 100  # revisions of one key that are tried


class LiveViews:
    """`changed` is the on_changes of a Mirror of feature_views/."""

    def __init__(self, app: App, views: Views, pool: StorePool, reader: Reader, metrics: Metrics) -> None:
        self._app = app
        self._views = views
        self._pool = pool
        self._reader = reader
        self._metrics = metrics
        self._said: dict[str, str] = {}  # refusals in log and metrics
        self._sought: set[tuple[str, int]] = set()  # refused values whose predecessors are or were looked for

    async def mark_loaded(self, loaded: asyncio.Event) -> None:
        await loaded.wait()
        self._views.loaded = True
        self._publish()

    def changed(self, changes: list[Change]) -> None:
        self._views.apply(changes)
        self._publish()
        lost = set(self._views.without_good_value())
        for name, revision in lost - self._sought:
            self._app.spawn(self._recover(name, revision), f"recover-{name}")
        self._sought = lost

    def _publish(self) -> None:
        app, refused = self._app, self._views.refused()
        self._pool.keep(self._views.stores())
        self._reader.keep(self._views.names())
        self._metrics.views.set(len(self._views.names()))
        for name in self._said.keys() - refused.keys():
            self._metrics.refused.remove(name)
        for name, reason in refused.items():
            self._metrics.refused.labels(name).set(1)
            if self._said.get(name) != reason:
                app.log.warning("config_refused", key=FEATURE_VIEWS + name, reason=reason)
        self._said = refused
        app.registration.put(status(app.service, app.instance, "views"), self._views.status().dump())

    async def _recover(self, name: str, refused_at: int) -> None:
        """Read the key's earlier values until one is good: this process never saw the last good one."""
        while True:
            try:
                found = await self._seek(name, refused_at)
            except EtcdError as error:
                self._app.log.warning("earlier_value_unknown", key=FEATURE_VIEWS + name, reason=str(error))
                await asyncio.sleep(_RETRY_S)
                continue
            if found:
                self._publish()
            return

    async def _seek(self, name: str, refused_at: int) -> bool:
        tries = count(1)
        async for entry in self._app.etcd.earlier(FEATURE_VIEWS + name, refused_at):
            if self._views.recover(name, entry.value, entry.mod_revision, refused_at):
                self._app.log.info("earlier_value_used", key=FEATURE_VIEWS + name, revision=entry.mod_revision)
                return True
            if next(tries) >= _MAX_EARLIER:
                break
        return False
