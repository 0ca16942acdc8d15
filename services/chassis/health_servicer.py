"""grpc.health.v1 of one server: Check and Watch, for names that come and go."""

import asyncio
from collections.abc import AsyncIterator, Mapping

import grpc.aio
from grpc_health.v1 import health_pb2 as pb
from grpc_health.v1 import health_pb2_grpc

from services.core.errors import NotFoundError

SERVICE: str = pb.DESCRIPTOR.services_by_name["Health"].full_name
_SERVING: int = pb.HealthCheckResponse.SERVING
_NOT_SERVING: int = pb.HealthCheckResponse.NOT_SERVING
_SHOWN = 128


class Health(health_pb2_grpc.HealthServicer):
    """What is said follows `set` at once; who watches hears every status that lasts."""

    def __init__(self) -> None:
        self._serving: dict[str, bool] = {}
        self._changed = asyncio.Event()  # replaced when set
        self._is_ending = False

    def set(self, serving: Mapping[str, bool]) -> None:
        """These names, and no others, are there from now on."""
        if not self._is_ending and serving != self._serving:
            self._serving = dict(serving)
            self._notify()

    def end(self) -> None:
        """Nothing serves any more, whatever is set."""
        self._is_ending = True
        self._serving = dict.fromkeys(self._serving, False)
        self._notify()

    async def Check(self, request: pb.HealthCheckRequest, context: grpc.aio.ServicerContext) -> pb.HealthCheckResponse:
        status = self._status(request.service)
        if status is None:
            raise NotFoundError(f"service {request.service[:_SHOWN]!r} is unknown: its health is not known either")
        return pb.HealthCheckResponse(status=status)

    async def Watch(
        self, request: pb.HealthCheckRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.HealthCheckResponse]:
        said = -1
        while True:
            changed = self._changed
            status = self._status(request.service)
            if status is None:
                status = pb.HealthCheckResponse.SERVICE_UNKNOWN
            if status != said:
                said = status
                yield pb.HealthCheckResponse(status=status)
            await changed.wait()

    def _status(self, service: str) -> int | None:
        serving = self._serving.get(service)
        return None if serving is None else _SERVING if serving else _NOT_SERVING

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
