"""Links: long-lived streams of frames between two services. Reconnect, keepalive, coalescing and drain live here, once.

All envelopes that become ready in one turn of the event loop travel in one frame; see turnout/v1/link.proto.
"""

from services.chassis.link.client import LinkClient
from services.chassis.link.connection import FRAME_BYTES, KEEPALIVE_S, PROTOCOL, Link, LinkHandler, is_unix
from services.chassis.link.server import LinkServer, Unary, listen

__all__ = [
    "FRAME_BYTES",
    "KEEPALIVE_S",
    "PROTOCOL",
    "Link",
    "LinkClient",
    "LinkHandler",
    "LinkServer",
    "Unary",
    "is_unix",
    "listen",
]
