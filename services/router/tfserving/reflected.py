"""TensorFlow Serving's services as reflection tells them: their names, our messages, the same bytes on the wire."""

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message import Message

from turnout.tfserving import model_service_pb2 as model
from turnout.tfserving import prediction_service_pb2 as prediction

_FILE, _PACKAGE = "turnout/tfserving/services.proto", "tensorflow.serving"
_METHODS: dict[str, dict[str, tuple[type[Message], type[Message]]]] = {
    "PredictionService": {
        "Predict": (prediction.PredictRequest, prediction.PredictResponse),
        "Classify": (prediction.ClassificationRequest, prediction.ClassificationResponse),
        "Regress": (prediction.RegressionRequest, prediction.RegressionResponse),
        "MultiInference": (prediction.MultiInferenceRequest, prediction.MultiInferenceResponse),
        "GetModelMetadata": (prediction.GetModelMetadataRequest, prediction.GetModelMetadataResponse),
    },
    "ModelService": {
        "GetModelStatus": (model.GetModelStatusRequest, model.GetModelStatusResponse),
        "HandleReloadConfigRequest": (model.ReloadConfigRequest, model.ReloadConfigResponse),
    },
}
SERVICES = tuple(f"{_PACKAGE}.{name}" for name in _METHODS)
HEALTH_NAMES = (*_METHODS, *SERVICES)  # probes of TensorFlow Serving ask for the short ones


def describe() -> None:
    """Put the services among those that reflection finds. Only for a process that never imports TensorFlow."""
    file = descriptor_pb2.FileDescriptorProto(
        name="turnout/tfserving/services.proto", package=_PACKAGE, syntax="proto3"
    )
    file.dependency.extend([prediction.DESCRIPTOR.name, model.DESCRIPTOR.name])
    for name, methods in _METHODS.items():
        service = file.service.add(name=name)
        for method, (request, response) in methods.items():
            service.method.add(
                name=method,
                input_type=f".{request.DESCRIPTOR.full_name}",
                output_type=f".{response.DESCRIPTOR.full_name}",
            )
    descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
