"""The router, put together."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from time import perf_counter_ns

import grpc
from grpc_health.v1 import health_pb2_grpc

from inference import grpc_service_pb2_grpc
from services.chassis.app import App, release
from services.chassis.arena.arenas import Arenas
from services.chassis.grpc_server import grpc_server
from services.chassis.health_servicer import SERVICE as HEALTH
from services.chassis.health_servicer import Health
from services.chassis.http import Routes
from services.chassis.openapi import add_description
from services.chassis.reflection import reflect
from services.fleet.lifecycle import Lifecycle
from services.fleet.routes import RouteStore
from services.fleet.uploads import Uploads
from services.router.access.building import build_gate
from services.router.access.gate import Access
from services.router.access.interceptor import AccessInterceptor
from services.router.asking import Asker
from services.router.catalogue import MANAGEMENT, SHARED_MEMORY, Catalogue
from services.router.codec import MODEL_INFER, ModelInferCodec
from services.router.config import RouterConfig
from services.router.features import Features
from services.router.fleet_metrics import FleetCollector
from services.router.hot_listener import open_grpc
from services.router.live_settings import LiveSettings
from services.router.management.listener import management_listeners
from services.router.management.offer import Offer
from services.router.management.repository import Repository
from services.router.management.settings import Settings
from services.router.metrics import RouterMetrics
from services.router.mirror import Comparators, Mirrors
from services.router.recording import Recorders
from services.router.regions import Regions
from services.router.rest.generate import Generate
from services.router.rest.infer import Infer
from services.router.rest.management import Management
from services.router.rest.server import RestServer
from services.router.rest.shared_memory import SharedMemory
from services.router.rest.v1 import V1
from services.router.rest.v1_infer import V1Infer
from services.router.rest.v2 import Metadata
from services.router.retry import RetryBudget
from services.router.servicer import InferenceServicer
from services.router.state import State
from services.router.statistics import Statistics
from services.router.stream_servicer import StreamMethod
from services.router.streaming import StreamDispatcher
from services.router.table import Table
from services.router.tensor_extensions import TensorExtensions
from services.router.tfserving import reflected
from services.router.tfserving.described import Described
from services.router.tfserving.grpc_methods import ModelService, PredictionService
from services.router.tfserving.listener import listening as tf_listening
from services.router.tfserving.reload import Reload
from services.router.tracing import TraceKeeper

SERVICE = "inference.GRPCInferenceService"
_FIRST_CONFIG_S = 3.0
_OTHER_CALLS = 1024  # health watches, metadata


@asynccontextmanager
async def build(config: RouterConfig, app: App) -> AsyncIterator[None]:
    """Serve until left; everything the listeners need is opened before them and closed after."""
    metrics = RouterMetrics(app.registry)
    table = Table(metrics.follow)
    features = Features(app.hello, app.host, perf_counter_ns, app.link_security)
    comparators = Comparators(app.hello, app.host, app.link_security)
    recorders = Recorders(app.hello, app.host, metrics, config.max_record_bytes, app.link_security)
    arenas = Arenas(config.shared_memory_bytes)
    app.registry.register(arenas)
    access = build_gate(config, app, table, metrics)
    state = State(app, table, access, metrics, [features.peers, comparators.peers, recorders.peers], arenas)
    keeper = TraceKeeper(app.traces, slow_ms=config.slow_ms, ratio=config.trace_ratio)
    state.listeners.append(LiveSettings(state.desired, keeper, config.log_level).follow)
    regions = Regions(offered=config.system_shared_memory)
    dispatcher = StreamDispatcher(
        access,
        state.replicas,
        features,
        Mirrors(comparators, metrics, config.max_mirror_bytes),
        recorders,
        metrics,
        RetryBudget(config.retry_budget),
        TensorExtensions(regions, config.max_message_bytes),
        keeper=keeper if app.traces.enabled else None,
    )
    table.closed = state.closed
    catalogue = _catalogue(config, app, state, table)
    await _follow_etcd(app, state)

    health = Health()
    state.listeners.append(lambda: health.set(_health(catalogue)))
    health.set(_health(catalogue))
    app.spawn(state.tell_when_loaded(), "loaded")
    app.on_drain(partial(_refuse_new, health, dispatcher))
    offer = _offer(config, app, state, table, regions, access)
    described = Described(table, state.inventories)

    def model_service(offer: Offer) -> ModelService:
        return ModelService(described, Reload(offer, state), access)

    try:
        async with (
            _managing(config, app, catalogue, health, access, offer, model_service) as public,
            _listening(config, app, dispatcher, metrics, catalogue, health, public, model_service(public)),
        ):
            yield
    finally:
        await state.close()


def _catalogue(config: RouterConfig, app: App, state: State, table: Table) -> Catalogue:
    statistics = Statistics(state.replicas.all)
    state.replicas.on_stats = statistics.received
    if config.fleet_metrics:
        app.registry.register(FleetCollector(statistics.ledger))
    state.listeners += [statistics.changed, lambda: statistics.ledger.forget_models(table.entries().keys())]
    catalogue = Catalogue(table, release(), statistics, not_ready=state.not_ready, closed=state.closed)
    catalogue.extensions |= {SHARED_MEMORY} if config.system_shared_memory else set()
    catalogue.extensions |= MANAGEMENT if config.public_management else set()
    return catalogue


async def _refuse_new(health: Health, dispatcher: StreamDispatcher) -> None:
    """The drain: health says so first, then nothing new is taken, then the rest is waited for."""
    health.end()
    dispatcher.drain()
    await dispatcher.drained()


@asynccontextmanager
async def _listening(
    config: RouterConfig,
    app: App,
    dispatcher: StreamDispatcher,
    metrics: RouterMetrics,
    catalogue: Catalogue,
    health: Health,
    offer: Offer,
    model_service: ModelService,
) -> AsyncIterator[None]:
    """Open all listeners and say where they are; close them when left."""
    limits = {"max_in_flight": config.max_in_flight, "max_message_bytes": config.max_message_bytes}
    security = app.listener_security("listeners", "TLS", config.tls)
    other = _other_methods(catalogue, health, config, dispatcher.access, offer)
    StreamMethod(dispatcher, **limits).add_to(other)
    codec, address = ModelInferCodec(), config.grpc_address
    front = await open_grpc(address, MODEL_INFER, codec, config, dispatcher, metrics, other, security)
    routes = _routes_for_callers(config, dispatcher, catalogue, model_service.described, offer)
    asker = Asker(dispatcher, max_in_flight=config.max_in_flight)
    prediction_service = PredictionService(asker, model_service.described)
    rest = RestServer(routes, max_message_bytes=config.max_message_bytes, max_connections=config.max_rest_connections)
    try:
        await rest.start(config.rest_address, reuse_port=config.reuse_port, security=security)
        app.announce(address=front.address, rest=rest.address)
        app.log.info("listening", name="grpc", address=front.address)
        app.log.info("listening", name="rest", address=rest.address)
        behind = partial(_tf_methods, prediction_service, model_service, health, config, dispatcher.access)
        async with tf_listening(config, app, dispatcher, metrics, routes, behind, security):
            yield
    finally:
        await front.stop(1)
        await rest.stop(1)


def _routes_for_callers(
    config: RouterConfig, dispatcher: StreamDispatcher, catalogue: Catalogue, described: Described, offer: Offer
) -> Routes:
    routes = Routes(dispatcher.access.guard)
    Metadata(catalogue).add_routes(routes)
    Infer(dispatcher, max_in_flight=config.max_in_flight).add_routes(routes)
    Generate(dispatcher, max_in_flight=config.max_in_flight).add_routes(routes)
    V1(catalogue, described, is_kserve=config.kserve_status).add_routes(routes)
    V1Infer(dispatcher, max_in_flight=config.max_in_flight).add_routes(routes)
    Management(offer).add_routes(routes)
    SharedMemory(offer.regions).add_routes(routes)
    add_description(routes, "Turnout", release(), "The REST API of a router.")
    return routes


@asynccontextmanager
async def _managing(
    config: RouterConfig,
    app: App,
    catalogue: Catalogue,
    health: Health,
    access: Access,
    offer: Offer,
    model_service: Callable[[Offer], ModelService],
) -> AsyncIterator[Offer]:
    """Open the listeners for operators; gives what those for callers offer of management."""
    routes = Routes(access.guard)
    Metadata(catalogue).add_routes(routes)
    Management(offer).add_routes(routes)
    add_description(routes, "Turnout, management", release(), "The REST API of a router for operators.")
    server = _other_methods(catalogue, health, config, access, offer) if config.management_grpc_address else None
    if server is not None:
        model_service(offer).add_to(server)
    security = app.listener_security("management", "TLS", config.tls)
    async with management_listeners(config, app, offer, routes, server, security) as public:
        yield public


def _offer(config: RouterConfig, app: App, state: State, table: Table, regions: Regions, access: Access) -> Offer:
    uploads = Uploads(config.uploads) if config.uploads else None
    repository = Repository(Lifecycle(app.etcd, app.log, uploads), state, config.load_timeout_s)
    settings = Settings(app.etcd, table.entries, own_ratio=config.trace_ratio, own_level=config.log_level)
    return Offer(repository, settings, RouteStore(app.etcd), regions, access)


async def _follow_etcd(app: App, state: State) -> None:
    """Returns once there is a configuration, or soon: a router that answers its first call knows its models."""
    app.ready_when(state.not_ready)
    app.spawn(state.mirror.run(), "etcd-mirror")
    app.spawn(state.watch_age(), "config-age")
    with suppress(TimeoutError):  # past it the router serves all the same, not ready, and says why
        async with asyncio.timeout(_FIRST_CONFIG_S):
            await state.mirror.loaded.wait()


def _other_methods(
    catalogue: Catalogue, health: Health, config: RouterConfig, access: Access, offer: Offer
) -> grpc.aio.Server:
    """The grpc.aio server of everything but ModelInfer."""
    server = _guarded_server(config, access)
    grpc_service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(InferenceServicer(catalogue, offer), server)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    reflect(server, (SERVICE, HEALTH))
    return server


def _tf_methods(
    prediction_service: PredictionService,
    model_service: ModelService,
    health: Health,
    config: RouterConfig,
    access: Access,
) -> grpc.aio.Server:
    """The grpc.aio server of all that TensorFlow Serving's port answers but Predict."""
    server = _guarded_server(config, access)
    prediction_service.add_to(server)
    model_service.add_to(server)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    reflected.describe()
    reflect(server, (*reflected.SERVICES, HEALTH))
    return server


def _guarded_server(config: RouterConfig, access: Access) -> grpc.aio.Server:
    """Its limits are over our own, so that ours is the message a caller reads."""
    return grpc_server(
        limit_bytes=config.max_message_bytes + (64 << 20),
        max_in_flight=config.max_in_flight + _OTHER_CALLS,
        interceptors=[AccessInterceptor(access)],
    )


def _health(catalogue: Catalogue) -> dict[str, bool]:
    """What grpc.health.v1 says: of "", of the services, and of model/NAME."""
    ready = catalogue.is_ready()
    named = dict.fromkeys(("", SERVICE, *reflected.HEALTH_NAMES), ready)
    return named | {f"model/{name}": is_so for name, is_so in catalogue.ready_models().items()}
