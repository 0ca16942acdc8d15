"""Every error a caller can meet: the class names its gRPC status, the message what was wrong and what is right."""

from typing import ClassVar

# gRPC status numbers, so that core needs no transport.
OK, CANCELLED, UNKNOWN, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND = 0, 1, 2, 3, 4, 5
ALREADY_EXISTS, PERMISSION_DENIED, RESOURCE_EXHAUSTED, FAILED_PRECONDITION = 6, 7, 8, 9
UNIMPLEMENTED, INTERNAL, UNAVAILABLE, UNAUTHENTICATED = 12, 13, 14, 16

HTTP_STATUS = {
    OK: 200,
    CANCELLED: 499,
    UNKNOWN: 500,
    INVALID_ARGUMENT: 400,
    DEADLINE_EXCEEDED: 504,
    NOT_FOUND: 404,
    ALREADY_EXISTS: 400,
    PERMISSION_DENIED: 403,
    RESOURCE_EXHAUSTED: 429,
    FAILED_PRECONDITION: 412,
    UNIMPLEMENTED: 501,
    INTERNAL: 500,
    UNAVAILABLE: 503,
    UNAUTHENTICATED: 401,
}

MAX_MESSAGE = 1024  # bytes: a status travels in headers, percent-encoded, and callers' own names may stand in it
_CUT = "…"


def _fitting(message: str) -> str:
    encoded = message.encode(errors="replace")
    if len(encoded) <= MAX_MESSAGE:
        return message
    return encoded[: MAX_MESSAGE - len(_CUT.encode())].decode(errors="ignore") + _CUT


class ServingError(Exception):
    """Base: raised with the sentence that the caller reads."""

    code: ClassVar[int] = INTERNAL
    http_status: ClassVar[int | None] = None  # where it differs from HTTP_STATUS[code]

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(_fitting(message))
        self.retry_after_s = retry_after_s  # after which a retry is worthwhile; None = no hint


class InvalidRequestError(ServingError):
    code = INVALID_ARGUMENT


class TooLargeError(ServingError):
    """The message is over the size limit."""

    code = RESOURCE_EXHAUSTED
    http_status = 413


class UnauthenticatedError(ServingError):
    code = UNAUTHENTICATED


class PermissionDeniedError(ServingError):
    """Not for this caller, or not here."""

    code = PERMISSION_DENIED


class QuotaError(ServingError):
    """The caller's own limit; after retry_after_s there is room again."""

    code = RESOURCE_EXHAUSTED


class NotFoundError(ServingError):
    code = NOT_FOUND


class AlreadyExistsError(ServingError):
    code = ALREADY_EXISTS


class UnavailableError(ServingError):
    """Nothing was executed: try again, after retry_after_s if it says so."""

    code = UNAVAILABLE

    def __init__(self, message: str, *, retry_after_s: float | None = 1.0) -> None:
        super().__init__(message, retry_after_s=retry_after_s)


class OverloadedError(UnavailableError):
    """Shed before any work was done."""


class DeadlineExceededError(ServingError):
    code = DEADLINE_EXCEEDED


class UnimplementedError(ServingError):
    code = UNIMPLEMENTED


class PreconditionError(ServingError):
    """A feature view or version is not the one the model was trained with."""

    code = FAILED_PRECONDITION


class InternalError(ServingError):
    code = INTERNAL


class RemoteError(ServingError):
    """What another service answered, passed on with its own code."""

    def __init__(self, code: int, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.code = code  # type: ignore[misc]
        if code == RESOURCE_EXHAUSTED:  # behind the router this is size; callers' quotas are the router's own
            self.http_status = TooLargeError.http_status  # type: ignore[misc]


def http_status_of(error: ServingError) -> int:
    return error.http_status or HTTP_STATUS.get(error.code, 500)
