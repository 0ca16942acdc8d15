"""The feature proxy, put together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from services.chassis.app import App
from services.chassis.etcd import Mirror
from services.chassis.link_ports import link_ports
from services.core.keys import FEATURE_VIEWS
from services.feature_proxy.breaker import Breaker
from services.feature_proxy.cache import Cache
from services.feature_proxy.config import FeatureProxyConfig
from services.feature_proxy.live_views import LiveViews
from services.feature_proxy.lookup import Limits, Lookups
from services.feature_proxy.metrics import Metrics
from services.feature_proxy.round_trip import Reader
from services.feature_proxy.servicer import FeatureServicer
from services.feature_proxy.stores import StoreLimits
from services.feature_proxy.stores.pool import StorePool
from services.feature_proxy.views import Views

_NOTICE_S = 0.1  # between saying that this proxy drains and refusing what comes all the same


@asynccontextmanager
async def build(config: FeatureProxyConfig, app: App) -> AsyncIterator[None]:
    """Serve until left. Not ready before feature_views/ came from etcd or the snapshot."""
    async with AsyncExitStack() as stack:
        views, metrics = Views(), Metrics(app.registry)
        pool = StorePool(_store_limits(config), app.log)
        stack.push_async_callback(pool.close)
        reader = Reader(pool, _cache(config), lambda: _breaker(config), metrics, app.log)
        stack.callback(reader.close)
        lookups = Lookups(views, reader, metrics, _limits(config), app.log)
        metrics.in_flight.set_function(lambda: lookups.in_flight)
        mirror = _follow(config, app, LiveViews(app, views, pool, reader, metrics))
        app.ready_when(lambda: None if mirror.loaded.is_set() else "feature_views/ came from neither etcd nor snapshot")
        socket = Path(config.link_socket or config.data_dir / f"feature_proxy-{app.instance}.sock")
        servicer = FeatureServicer(lookups, metrics, app.log)
        servers = await stack.enter_async_context(link_ports(app, servicer, config.link_address, socket))

        async def drain() -> None:
            for server in servers:
                server.drain("the feature proxy stops")
            await asyncio.sleep(_NOTICE_S)
            await lookups.drain()

        app.on_drain(drain)
        yield


def _follow(config: FeatureProxyConfig, app: App, live: LiveViews) -> Mirror:
    snapshot = config.data_dir / "feature_proxy" / "snapshot"
    mirror = Mirror(app.etcd, [FEATURE_VIEWS], live.changed, snapshot=snapshot, log=app.log)
    app.spawn(mirror.run(), "feature-views")
    app.spawn(live.mark_loaded(mirror.loaded), "feature-views-loaded")
    return mirror


def _store_limits(config: FeatureProxyConfig) -> StoreLimits:
    return StoreLimits(config.sqlite_queue, config.redis_connections, config.redis_connect_s)


def _cache(config: FeatureProxyConfig) -> Cache:
    return Cache(config.cache_ttl_s, config.cache_max_entries, config.cache_max_bytes)


def _breaker(config: FeatureProxyConfig) -> Breaker:
    return Breaker(config.breaker_failures, config.breaker_open_s)


def _limits(config: FeatureProxyConfig) -> Limits:
    return Limits(config.max_in_flight, config.max_in_flight_rows, config.max_lookup_rows, config.max_answer_bytes)
