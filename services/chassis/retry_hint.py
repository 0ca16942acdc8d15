"""When to try again, as gRPC's trailing metadata says it; the same on every front."""

import math
from functools import lru_cache

from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from services.core.errors import ServingError

PUSHBACK = "grpc-retry-pushback-ms"
DETAILS = "grpc-status-details-bin"

Metadata = tuple[tuple[str, str | bytes], ...]


def status_details(error: ServingError) -> Metadata:
    """The trailing metadata of `error`: its retry hint for gRPC's own retries and as RetryInfo; () without a hint."""
    if error.retry_after_s is None:
        return ()
    pause_ms = max(0, math.ceil(error.retry_after_s * 1000))
    status = Status(code=error.code, message=str(error), details=[_retry_info(pause_ms)])
    return ((PUSHBACK, str(pause_ms)), (DETAILS, status.SerializeToString()))


@lru_cache(maxsize=1024)
def _retry_info(pause_ms: int) -> AnyMessage:
    info = RetryInfo()
    info.retry_delay.FromMilliseconds(pause_ms)
    packed = AnyMessage()
    packed.Pack(info)
    return packed
