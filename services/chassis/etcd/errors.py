"""What can go wrong with etcd; the classes carry the gRPC code that a caller of ours would see."""

import grpc

from services.core.errors import ServingError, UnavailableError


class EtcdError(ServingError):
    """etcd refused the call."""


class EtcdUnavailableError(EtcdError, UnavailableError):
    """etcd could not be reached, or did not answer in time."""


class LeaseLostError(EtcdError):
    """The lease is unknown to etcd: it ran out or was revoked, and its keys are gone."""


class CompactedError(EtcdError):
    """The history asked for is gone: compacted, or that of another store. List again."""


_ELSEWHERE = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})
_CUT_OFF = "Internal error from Core"  # grpc.aio's own words for a message that its connection no longer took
_STALE_TOKEN = ("user name is empty", "revision of auth store is old", "invalid auth token")


def may_answer_elsewhere(error: grpc.aio.AioRpcError) -> bool:
    """Whether it is this endpoint that failed, not the call."""
    if error.code() is grpc.StatusCode.INTERNAL:
        return _CUT_OFF in (error.details() or "")
    return error.code() in _ELSEWHERE


def was_never_sent(error: grpc.aio.AioRpcError) -> bool:
    """Whether no byte of the call left, so that even a write may be tried at another endpoint."""
    return (error.details() or "").startswith("failed to connect to all addresses")


def is_stale_token(error: grpc.aio.AioRpcError) -> bool:
    details = error.details() or ""
    return error.code() is grpc.StatusCode.UNAUTHENTICATED or any(words in details for words in _STALE_TOKEN)


def translated(error: grpc.aio.AioRpcError, endpoint: str) -> EtcdError:
    """The error of our own tree for one of gRPC's."""
    details = (error.details() or "no details").removeprefix("etcdserver: ")
    if "lease not found" in details:
        return LeaseLostError(f"etcd at {endpoint}: {details}")
    if "has been compacted" in details:
        return CompactedError(f"etcd at {endpoint}: {details}")
    if may_answer_elsewhere(error):
        return EtcdUnavailableError(f"etcd at {endpoint} did not answer: {details}")
    return EtcdError(f"etcd at {endpoint}: {error.code().name} {details}")
