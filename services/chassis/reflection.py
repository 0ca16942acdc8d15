"""Server reflection in both of its versions: tools ask for v1 first, grpcio's package has v1alpha only.

Their messages are the same, and so are their bytes.
"""

from collections.abc import Iterable

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha._async import ReflectionServicer

_V1ALPHA, _V1 = "grpc.reflection.v1alpha", "grpc.reflection.v1"
SERVICES = (f"{_V1ALPHA}.ServerReflection", f"{_V1}.ServerReflection")


def reflect(server: grpc.aio.Server, services: Iterable[str]) -> None:
    """Let `server` tell of `services`, by their full names, and of reflection itself."""
    names = (*services, *SERVICES)
    _describe_v1()
    servicer = ReflectionServicer(names)
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, server)
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    handlers = {"ServerReflectionInfo": handler}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICES[1], handlers),))


def _describe_v1() -> None:
    """Put version 1's file among those that reflection finds."""
    file = descriptor_pb2.FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(file)
    file.name, file.package = "grpc/reflection/v1/reflection.proto", _V1
    for message in file.message_type:
        for field in message.field:
            if field.type_name:
                field.type_name = field.type_name.replace(f".{_V1ALPHA}.", f".{_V1}.")
    for service in file.service:
        for method in service.method:
            method.input_type = method.input_type.replace(f".{_V1ALPHA}.", f".{_V1}.")
            method.output_type = method.output_type.replace(f".{_V1ALPHA}.", f".{_V1}.")
    descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
