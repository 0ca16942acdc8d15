"""The Open Inference Protocol's slow methods: translation only."""

import grpc

from inference import grpc_service_pb2 as pb
from inference import grpc_service_pb2_grpc
from services.router.catalogue import Catalogue
from services.router.inventory_servicer import InventoryMethods
from services.router.management.offer import Offer
from services.router.management_servicer import ManagementMethods
from services.router.shared_memory_servicer import SharedMemoryMethods


class InferenceServicer(
    InventoryMethods, ManagementMethods, SharedMemoryMethods, grpc_service_pb2_grpc.GRPCInferenceServiceServicer
):
    """Everything but ModelInfer, which the front door serves."""

    def __init__(self, catalogue: Catalogue, offer: Offer) -> None:
        self._catalogue = catalogue
        self._offer = offer
        self._regions = offer.regions

    async def ServerLive(
        self, request: pb.ServerLiveRequest, context: grpc.aio.ServicerContext
    ) -> pb.ServerLiveResponse:
        return pb.ServerLiveResponse(live=True)

    async def ServerReady(
        self, request: pb.ServerReadyRequest, context: grpc.aio.ServicerContext
    ) -> pb.ServerReadyResponse:
        return pb.ServerReadyResponse(ready=self._catalogue.is_ready())

    async def ModelReady(
        self, request: pb.ModelReadyRequest, context: grpc.aio.ServicerContext
    ) -> pb.ModelReadyResponse:
        self._catalogue.check_model_ready(request.name, request.version)
        return pb.ModelReadyResponse(ready=True)

    async def ServerMetadata(
        self, request: pb.ServerMetadataRequest, context: grpc.aio.ServicerContext
    ) -> pb.ServerMetadataResponse:
        return pb.ServerMetadataResponse(**self._catalogue.server_metadata())

    async def ModelMetadata(
        self, request: pb.ModelMetadataRequest, context: grpc.aio.ServicerContext
    ) -> pb.ModelMetadataResponse:
        metadata = self._catalogue.model_metadata(request.name, request.version)
        tensor = pb.ModelMetadataResponse.TensorMetadata
        return pb.ModelMetadataResponse(
            name=metadata.name,
            versions=metadata.versions,
            platform=metadata.platform,
            inputs=[tensor(name=s.name, datatype=s.datatype, shape=s.shape) for s in metadata.inputs],
            outputs=[tensor(name=s.name, datatype=s.datatype, shape=s.shape) for s in metadata.outputs],
        )
