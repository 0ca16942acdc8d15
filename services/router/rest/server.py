"""The REST listener of the router: services.chassis.http_server with the router's bounds."""

from services.chassis.http import Routes
from services.chassis.http_server.limits import Limits
from services.chassis.http_server.server import HttpServer
from services.router.flight import REQUEST_ID


class RestServer(HttpServer):
    """One listener of `routes`; `address` is the bound host:port."""

    def __init__(self, routes: Routes, *, max_message_bytes: int, max_connections: int = 8192) -> None:
        super().__init__(routes, Limits(body_bytes=max_message_bytes, connections=max_connections), echoed=REQUEST_ID)
