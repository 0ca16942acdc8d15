"""A server of the Open Inference Protocol that a test says the answers of."""

import asyncio
from typing import Self

import grpc.aio
import numpy as np

from inference import grpc_service_pb2 as pb
from inference import grpc_service_pb2_grpc as pb_grpc

Tensor = pb.ModelMetadataResponse.TensorMetadata


class RemoteServer(pb_grpc.GRPCInferenceServiceServicer):
    """Model "sum": x FP32 [-1, 2] to y FP32 [-1]. `config`: a ModelConfigResponse, encoded; None = not offered."""

    def __init__(self, config: bytes | None = None, tls: tuple[bytes, bytes] | None = None) -> None:
        """`tls`: key and certificate, PEM."""
        self.config = config
        self._tls = tls
        self.is_ready = True
        self.batches: list[int] = []
        self.timeouts_s: list[float] = []
        self.headers: list[dict[str, str | bytes]] = []
        self.fault: tuple[grpc.StatusCode, str] | None = None
        self.release = asyncio.Event()  # what answers wait for
        self.release.set()
        self.server: grpc.aio.Server
        self.port = 0

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.release.set()
        await self.server.stop(grace=0)

    async def start(self) -> None:
        """On the port of the last time."""
        self.server = grpc.aio.server()
        pb_grpc.add_GRPCInferenceServiceServicer_to_server(self, self.server)
        address = f"127.0.0.1:{self.port}"
        if self._tls is None:
            self.port = self.server.add_insecure_port(address)
        else:
            self.port = self.server.add_secure_port(address, grpc.ssl_server_credentials([self._tls]))
        await self.server.start()

    async def ModelReady(
        self, request: pb.ModelReadyRequest, context: grpc.aio.ServicerContext
    ) -> pb.ModelReadyResponse:
        return pb.ModelReadyResponse(ready=self.is_ready)

    async def ModelMetadata(
        self, request: pb.ModelMetadataRequest, context: grpc.aio.ServicerContext
    ) -> pb.ModelMetadataResponse:
        return pb.ModelMetadataResponse(
            name="sum",
            platform="abacus",
            inputs=[Tensor(name="x", datatype="FP32", shape=[-1, 2])],
            outputs=[Tensor(name="y", datatype="FP32", shape=[-1])],
        )

    async def ModelInfer(
        self, request: pb.ModelInferRequest, context: grpc.aio.ServicerContext
    ) -> pb.ModelInferResponse:
        self.timeouts_s.append(context.time_remaining())
        self.headers.append(dict(context.invocation_metadata() or ()))
        rows = request.inputs[0].shape[0]
        self.batches.append(rows)
        await self.release.wait()
        if self.fault is not None:
            await context.abort(*self.fault)
        x = np.frombuffer(request.raw_input_contents[0], np.float32).reshape(rows, 2)
        y = pb.ModelInferResponse.InferOutputTensor(name="y", datatype="FP32", shape=[rows])
        y.contents.fp32_contents.extend(x.sum(axis=1))  # as numbers, which some servers send
        return pb.ModelInferResponse(model_name="sum", outputs=[y])

    async def ModelConfig(
        self, request: pb.ModelConfigRequest, context: grpc.aio.ServicerContext
    ) -> pb.ModelConfigResponse:
        if self.config is None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "not offered")
        return pb.ModelConfigResponse.FromString(self.config or b"")
