"""What grpcurl does, as far as docs/clients.md shows it: calls by reflection, JSON in and out.

python -m tests.support.grpcurl -plaintext [-d JSON] HOST:PORT SERVICE/METHOD
"""

import sys
from collections.abc import Sequence

import grpc
from google.protobuf import descriptor_pool, json_format
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

TIMEOUT_S = 30


def call(address: str, method: str, data: str) -> str:
    """The answer of a unary method."""
    service, _, name = method.rpartition("/")
    with grpc.insecure_channel(address) as channel:
        pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        found = pool.FindServiceByName(service).FindMethodByName(name)
        request = json_format.Parse(data, GetMessageClass(found.input_type)(), descriptor_pool=pool)
        answer = GetMessageClass(found.output_type)
        stub = channel.unary_unary(f"/{method}", request.__class__.SerializeToString, answer.FromString)
        return json_format.MessageToJson(stub(request, timeout=TIMEOUT_S), descriptor_pool=pool)


def main(arguments: Sequence[str]) -> None:
    assert arguments[0] == "-plaintext"
    data = arguments[2] if arguments[1] == "-d" else "{}"
    print(call(arguments[-2], arguments[-1], data))  # noqa: T201 - the answer


if __name__ == "__main__":
    main(sys.argv[1:])
