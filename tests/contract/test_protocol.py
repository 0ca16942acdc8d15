"""The Open Inference messages are on the wire what every other implementation expects."""

import pytest
from google.protobuf.message import Message

from inference import grpc_service_pb2 as pb

# Message -> field -> number, as the protocol and Triton's own file have them.
FIELDS: dict[str, dict[str, int]] = {
    "ServerLiveRequest": {},
    "ServerLiveResponse": {"live": 1},
    "ServerReadyRequest": {},
    "ServerReadyResponse": {"ready": 1},
    "ModelReadyRequest": {"name": 1, "version": 2},
    "ModelReadyResponse": {"ready": 1},
    "ServerMetadataRequest": {},
    "ServerMetadataResponse": {"name": 1, "version": 2, "extensions": 3},
    "ModelMetadataRequest": {"name": 1, "version": 2},
    "ModelMetadataResponse": {"name": 1, "versions": 2, "platform": 3, "inputs": 4, "outputs": 5, "properties": 6},
    "ModelMetadataResponse.TensorMetadata": {"name": 1, "datatype": 2, "shape": 3},
    "InferParameter": {"bool_param": 1, "int64_param": 2, "string_param": 3, "double_param": 4, "uint64_param": 5},
    "InferTensorContents": {
        "bool_contents": 1,
        "int_contents": 2,
        "int64_contents": 3,
        "uint_contents": 4,
        "uint64_contents": 5,
        "fp32_contents": 6,
        "fp64_contents": 7,
        "bytes_contents": 8,
    },
    "ModelInferRequest": {
        "model_name": 1,
        "model_version": 2,
        "id": 3,
        "parameters": 4,
        "inputs": 5,
        "outputs": 6,
        "raw_input_contents": 7,
    },
    "ModelInferRequest.InferInputTensor": {"name": 1, "datatype": 2, "shape": 3, "parameters": 4, "contents": 5},
    "ModelInferRequest.InferRequestedOutputTensor": {"name": 1, "parameters": 2},
    "ModelInferResponse": {
        "model_name": 1,
        "model_version": 2,
        "id": 3,
        "parameters": 4,
        "outputs": 5,
        "raw_output_contents": 6,
    },
    "ModelInferResponse.InferOutputTensor": {"name": 1, "datatype": 2, "shape": 3, "parameters": 4, "contents": 5},
}
# Triton's extensions: message: names in the order of their numbers, from 1 on.
EXTENSIONS = """
ModelStreamInferResponse: error_message infer_response
ModelConfigRequest: name version
ModelConfigResponse: config
ModelStatisticsRequest: name version
ModelStatisticsResponse: model_stats
StatisticDuration: count ns
InferStatistics: success fail queue compute_input compute_infer compute_output cache_hit cache_miss
InferResponseStatistics: compute_infer compute_output success fail empty_response cancel
InferBatchStatistics: batch_size compute_input compute_infer compute_output
MemoryUsage: type id byte_size
ModelStatistics: name version last_inference inference_count execution_count inference_stats batch_stats \
memory_usage response_stats
ModelRepositoryParameter: bool_param int64_param string_param bytes_param
RepositoryIndexRequest: repository_name ready
RepositoryIndexResponse: models
RepositoryIndexResponse.ModelIndex: name version state reason
RepositoryModelLoadRequest: repository_name model_name parameters
RepositoryModelLoadResponse:
RepositoryModelUnloadRequest: repository_name model_name parameters
RepositoryModelUnloadResponse:
SystemSharedMemoryStatusRequest: name
SystemSharedMemoryStatusResponse: regions
SystemSharedMemoryStatusResponse.RegionStatus: name key offset byte_size
SystemSharedMemoryRegisterRequest: name key offset byte_size
SystemSharedMemoryRegisterResponse:
SystemSharedMemoryUnregisterRequest: name
SystemSharedMemoryUnregisterResponse:
CudaSharedMemoryStatusRequest: name
CudaSharedMemoryStatusResponse: regions
CudaSharedMemoryStatusResponse.RegionStatus: name device_id byte_size
CudaSharedMemoryRegisterRequest: name raw_handle device_id byte_size
CudaSharedMemoryRegisterResponse:
CudaSharedMemoryUnregisterRequest: name
CudaSharedMemoryUnregisterResponse:
TraceSettingRequest: settings model_name
TraceSettingRequest.SettingValue: value
TraceSettingResponse: settings
TraceSettingResponse.SettingValue: value
LogSettingsRequest: settings
LogSettingsRequest.SettingValue: bool_param uint32_param string_param
LogSettingsResponse: settings
LogSettingsResponse.SettingValue: bool_param uint32_param string_param
"""
for _line in EXTENSIONS.strip().splitlines():
    _message, _, _names = _line.partition(":")
    FIELDS[_message] = {name: number for number, name in enumerate(_names.split(), 1)}
METHODS = {
    *("ModelStreamInfer", "ModelConfig", "ModelStatistics", "TraceSetting", "LogSettings"),
    *("RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload"),
    *(f"{kind}SharedMemory{what}" for kind in ("System", "Cuda") for what in ("Status", "Register", "Unregister")),
}
CORE_METHODS = {"ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer"}
REQUEST = "0a016d 1a0131 2a0d 0a0178 120446503332 1a020102 3a08 0000803f00000040"
RESPONSE = "0a016d 120131 1a0131 2a0d 0a0179 1205494e543634 1a0101 3208 ffffffffffffffff"


def all_messages() -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}

    def visit(prefix: str, descriptors: list) -> None:
        for message in descriptors:
            if not message.GetOptions().map_entry:
                found[prefix + message.name] = {field.name: field.number for field in message.fields}
                visit(f"{prefix}{message.name}.", message.nested_types)

    visit("", list(pb.DESCRIPTOR.message_types_by_name.values()))
    return found


def test_every_message_that_we_have_is_checked() -> None:
    assert set(FIELDS) <= set(all_messages())
    assert set(all_messages()) - set(FIELDS) == set()


@pytest.mark.parametrize("message", FIELDS)
def test_fields_have_the_protocols_numbers(message: str) -> None:
    assert all_messages()[message] == FIELDS[message]


def test_the_service_has_the_protocols_methods_and_path() -> None:
    service = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"]

    assert service.full_name == "inference.GRPCInferenceService"
    assert {method.name for method in service.methods} == CORE_METHODS | METHODS
    for method in service.methods:
        streams = method.name == "ModelStreamInfer"
        assert (method.client_streaming, method.server_streaming) == (streams, streams)
        assert method.input_type.name == ("ModelInferRequest" if streams else f"{method.name}Request")
        assert method.output_type.name == f"{method.name}Response"


@pytest.mark.parametrize(
    ("kind", "hexadecimal", "expected"),
    [
        (
            pb.ModelInferRequest,
            REQUEST,
            pb.ModelInferRequest(
                model_name="m",
                id="1",
                inputs=[pb.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=[1, 2])],
                raw_input_contents=[bytes.fromhex("0000803f00000040")],
            ),
        ),
        (
            pb.ModelInferResponse,
            RESPONSE,
            pb.ModelInferResponse(
                model_name="m",
                model_version="1",
                id="1",
                outputs=[pb.ModelInferResponse.InferOutputTensor(name="y", datatype="INT64", shape=[1])],
                raw_output_contents=[b"\xff" * 8],
            ),
        ),
    ],
)
def test_golden_bytes_parse_and_are_emitted_again(kind: type[Message], hexadecimal: str, expected: Message) -> None:
    golden = bytes.fromhex(hexadecimal)

    assert kind.FromString(golden) == expected
    assert expected.SerializeToString() == golden


@pytest.mark.parametrize(
    ("name", "parameter", "hexadecimal"),
    [
        ("priority", pb.InferParameter(uint64_param=2), "220e 0a08 7072696f72697479 1202 2802"),
        ("timeout", pb.InferParameter(int64_param=5000), "220e 0a07 74696d656f7574 1203 108827"),
    ],
)
def test_golden_parameters_parse_and_are_emitted_again(
    name: str, parameter: pb.InferParameter, hexadecimal: str
) -> None:
    request = pb.ModelInferRequest(parameters={name: parameter})

    assert pb.ModelInferRequest.FromString(bytes.fromhex(hexadecimal)) == request
    assert request.SerializeToString() == bytes.fromhex(hexadecimal)
