"""TensorFlow Serving's ports: gRPC, with Predict through the front door, and REST, which is all of the router's."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import grpc.aio

from services.chassis.app import App
from services.chassis.http import Routes
from services.chassis.tls import ListenerSecurity
from services.router.config import RouterConfig
from services.router.dispatcher import Dispatcher
from services.router.hot_listener import open_grpc
from services.router.metrics import RouterMetrics
from services.router.rest.server import RestServer
from services.router.tfserving.predict_codec import PREDICT, PredictCodec


@asynccontextmanager
async def listening(
    config: RouterConfig,
    app: App,
    dispatcher: Dispatcher,
    metrics: RouterMetrics,
    routes: Routes,
    other: Callable[[], grpc.aio.Server],
    security: ListenerSecurity | None,
) -> AsyncIterator[None]:
    """Open those that have an address and say where they are; close them when left. Raises CannotListenError.

    `other` makes the server of every method of the gRPC port but Predict.
    """
    async with AsyncExitStack() as opened:
        if config.tfs_grpc_address:
            codec, address = PredictCodec(), config.tfs_grpc_address
            front = await open_grpc(address, PREDICT, codec, config, dispatcher, metrics, other(), security)
            opened.push_async_callback(front.stop, 1)
            app.log.info("listening", name="tfs-grpc", address=front.address)
        if config.tfs_rest_address:
            limits = {"max_message_bytes": config.max_message_bytes, "max_connections": config.max_rest_connections}
            rest = RestServer(routes, **limits)
            opened.push_async_callback(rest.stop, 1)
            await rest.start(config.tfs_rest_address, reuse_port=config.reuse_port, security=security)
            app.log.info("listening", name="tfs-rest", address=rest.address)
        yield
