"""gRPC: what a model is, and what was counted of it."""

import grpc

from inference import grpc_service_pb2 as pb
from services.router.catalogue import Catalogue
from services.router.statistics_codec import model_statistics


class InventoryMethods:
    """Mixed into the servicer, which has the catalogue."""

    _catalogue: Catalogue

    async def ModelConfig(
        self, request: pb.ModelConfigRequest, context: grpc.aio.ServicerContext
    ) -> pb.ModelConfigResponse:
        return pb.ModelConfigResponse(config=self._catalogue.model_config(request.name, request.version))

    async def ModelStatistics(
        self, request: pb.ModelStatisticsRequest, context: grpc.aio.ServicerContext
    ) -> pb.ModelStatisticsResponse:
        counted = await self._catalogue.model_statistics(request.name, request.version)
        return pb.ModelStatisticsResponse(model_stats=map(model_statistics, counted))
