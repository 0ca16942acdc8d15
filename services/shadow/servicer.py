"""Wire in, domain call, wire out: mirrors on links, and the unary calls beside them."""

from typing import TypeVar

import structlog
from google.protobuf.message import DecodeError, Message
from grpc_health.v1 import health_pb2

from services.chassis.link import Link
from services.core.errors import InvalidRequestError, NotFoundError
from services.shadow.report import report
from services.shadow.runner import Runner
from services.shadow.tally import Tallies
from turnout.v1 import link_pb2, shadow_pb2

REPORT = "/turnout.v1.Shadow/Report"
CHECK = "/grpc.health.v1.Health/Check"
_SERVED = ("", "turnout.v1.Shadow", "turnout.v1.Link")

log = structlog.get_logger()
M = TypeVar("M", bound=Message)


class ShadowServicer:
    """A LinkHandler that takes mirrors, and the methods served on the same port."""

    def __init__(self, runner: Runner, tallies: Tallies) -> None:
        self.is_serving = True
        self._runner = runner
        self._tallies = tallies

    def opened(self, link: Link) -> None:
        log.info("link_opened", peer=link.peer.instance, service=link.peer.service)

    def received(self, _link: Link, frame: link_pb2.Frame) -> None:
        for mirror in frame.mirrors:
            self._runner.offer(mirror)

    def closed(self, link: Link, reason: str) -> None:
        log.info("link_closed", peer=link.peer.instance, reason=reason)

    async def report(self, body: bytes) -> bytes:
        request = _parse(shadow_pb2.ReportRequest(), body)
        answer: bytes = report(self._tallies, request.model).SerializeToString()
        return answer

    async def check(self, body: bytes) -> bytes:
        service = _parse(health_pb2.HealthCheckRequest(), body).service
        if service not in _SERVED:
            raise NotFoundError(f"service {service!r} is not served here; known are {', '.join(_SERVED[1:])}")
        response = health_pb2.HealthCheckResponse
        status = response.SERVING if self.is_serving else response.NOT_SERVING
        answer: bytes = response(status=status).SerializeToString()
        return answer


def _parse(message: M, body: bytes) -> M:
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        raise InvalidRequestError(f"the request is not a {message.DESCRIPTOR.full_name}") from error
    return message
