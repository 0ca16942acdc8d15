import grpc
import pytest
from grpc import StatusCode as Code
from grpc.aio import Metadata

from services.chassis.etcd import EtcdError, EtcdUnavailableError, LeaseLostError
from services.chassis.etcd.errors import may_answer_elsewhere, translated


def error(code: Code, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, Metadata(), Metadata(), details)


@pytest.mark.parametrize(
    ("code", "details", "kind", "elsewhere"),
    [
        (Code.UNAVAILABLE, "connection refused", EtcdUnavailableError, True),
        (Code.DEADLINE_EXCEEDED, "Deadline Exceeded", EtcdUnavailableError, True),
        (Code.INTERNAL, "Internal error from Core", EtcdUnavailableError, True),  # the connection went under a write
        (Code.INTERNAL, "etcdserver: corrupt cluster", EtcdError, False),
        (Code.NOT_FOUND, "etcdserver: requested lease not found", LeaseLostError, False),
        (Code.INVALID_ARGUMENT, "etcdserver: key is not provided", EtcdError, False),
    ],
)
def test_an_error_says_whether_the_endpoint_failed_or_the_call(
    code: Code, details: str, kind: type[EtcdError], *, elsewhere: bool
) -> None:
    failed = error(code, details)

    assert type(translated(failed, "etcd:2379")) is kind
    assert may_answer_elsewhere(failed) is elsewhere
