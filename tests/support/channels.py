"""Channels of gRPC that share nothing: by default those to one address share a connection, and each other's faults."""

from typing import Any

import grpc.aio

OWN = ("grpc.use_local_subchannel_pool", 1)


def own_channel(address: str, **options: Any) -> Any:
    """A channel with a connection of its own; `options` without their "grpc."."""
    return grpc.aio.insecure_channel(address, options=[OWN, *((f"grpc.{name}", to) for name, to in options.items())])
