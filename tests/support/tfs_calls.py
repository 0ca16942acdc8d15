"""Calls of TensorFlow Serving's gRPC by their literal names, as its own stubs make them."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio

from services.router.tfserving.tensors import tensor_proto
from tests.support.puppets import floats
from turnout.tfserving import model_service_pb2 as service_pb
from turnout.tfserving import prediction_service_pb2 as pb

TIMEOUT_S = 20.0
_ANSWERS = {
    "PredictionService/Predict": pb.PredictResponse,
    "PredictionService/Classify": pb.ClassificationResponse,
    "PredictionService/Regress": pb.RegressionResponse,
    "PredictionService/MultiInference": pb.MultiInferenceResponse,
    "PredictionService/GetModelMetadata": pb.GetModelMetadataResponse,
    "ModelService/GetModelStatus": service_pb.GetModelStatusResponse,
    "ModelService/HandleReloadConfigRequest": service_pb.ReloadConfigResponse,
}


class TfsCalls:
    """A channel to an address."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.aio.insecure_channel(
            address,
            options=[
                ("grpc.max_receive_message_length", -1),
                ("grpc.max_send_message_length", -1),
                ("grpc.use_local_subchannel_pool", 1),
            ],
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._channel.close()

    def start(self, method: str, request: Any, *, timeout_s: float = TIMEOUT_S, metadata: Sequence[Any] = ()) -> Any:
        """The call, begun."""
        payload = request if isinstance(request, bytes) else request.SerializeToString()
        path = f"/tensorflow.serving.{method}"
        return self._channel.unary_unary(path)(payload, timeout=timeout_s, metadata=metadata)

    async def ask(self, method: str, request: Any, **options: Any) -> Any:
        """Its answer."""
        return _ANSWERS[method].FromString(await self.start(method, request, **options))

    async def refused(self, method: str, request: Any, **options: Any) -> tuple[grpc.StatusCode, str]:
        """The status that it ends with, and what is said."""
        try:
            await self.start(method, request, **options)
        except grpc.aio.AioRpcError as error:
            return error.code(), error.details() or ""
        return grpc.StatusCode.OK, ""


def predict_request(model: str, *rows: float, content: bool = True, **spec: Any) -> pb.PredictRequest:
    """One input x of DT_FLOAT [n, 2]; each of `rows` stands twice."""
    data = floats(*(value for row in rows for value in (row, row)))
    request = pb.PredictRequest(model_spec=pb.ModelSpec(name=model, **spec))
    tensor = tensor_proto("x", "FP32", [len(rows), 2], data)
    if content:
        tensor.tensor_content = data
        del tensor.float_val[:]
    request.inputs["x"].CopyFrom(tensor)
    return request
