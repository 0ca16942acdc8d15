"""A tool that knows no .proto files: what a server's reflection tells it."""

from typing import Any

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha import reflection_pb2 as pb

TIMEOUT_S = 20.0


async def services(channel: Any, version: str) -> dict[str, ServiceDescriptor]:
    """Every service that is listed, by its full name, as it is described."""
    call = channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=pb.ServerReflectionRequest.SerializeToString,
        response_deserializer=pb.ServerReflectionResponse.FromString,
    )(timeout=TIMEOUT_S)
    await call.write(pb.ServerReflectionRequest(list_services=""))
    names = [service.name for service in (await call.read()).list_services_response.service]
    files: dict[str, FileDescriptorProto] = {}
    for name in names:
        await call.write(pb.ServerReflectionRequest(file_containing_symbol=name))
        for file in (await call.read()).file_descriptor_response.file_descriptor_proto:
            found = FileDescriptorProto.FromString(file)
            files[found.name] = found
    await call.done_writing()
    pool = DescriptorPool()
    for each in list(files):
        _add(pool, files, each)
    return {name: pool.FindServiceByName(name) for name in names}


def _add(pool: DescriptorPool, files: dict[str, FileDescriptorProto], name: str) -> None:
    """A file, behind those that it needs."""
    file = files.pop(name, None)
    if file is not None:
        for needed in file.dependency:
            _add(pool, files, needed)
        pool.Add(file)
