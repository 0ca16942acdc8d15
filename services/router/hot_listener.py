"""A gRPC port of the router: its hot method goes through the front door, the rest to grpc.aio behind it."""

import grpc.aio

from services.chassis.front import Front, NativeFront, open_front
from services.chassis.tls import ListenerSecurity
from services.router.config import RouterConfig
from services.router.dispatcher import Dispatcher
from services.router.grpc_front import Codec, HotMethod
from services.router.metrics import RouterMetrics


async def open_grpc(
    address: str,
    method: str,
    codec: Codec,
    config: RouterConfig,
    dispatcher: Dispatcher,
    metrics: RouterMetrics,
    other: grpc.aio.Server,
    security: ListenerSecurity | None,
) -> Front:
    """Listen on `address`; `method` is read by `codec`, `other` serves all else. Raises CannotListenError."""
    limits = {"max_in_flight": config.max_in_flight, "max_message_bytes": config.max_message_bytes}
    hot = HotMethod(codec, dispatcher, metrics, **limits)
    front = hot.front = await open_front(
        address,
        method,
        hot,
        other,
        native=config.native_front,
        reuse_port=config.reuse_port,
        max_concurrent_streams=config.max_concurrent_streams,
        security=security,
    )
    if isinstance(front, NativeFront):
        metrics.follow_front(front.metrics, method)
    return front
