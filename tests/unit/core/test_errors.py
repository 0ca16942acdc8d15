import inspect

import pytest
from grpc import StatusCode

from services.core import errors
from services.core.errors import RemoteError, ServingError, http_status_of

ERRORS = [
    (errors.InvalidRequestError, StatusCode.INVALID_ARGUMENT, 400),
    (errors.TooLargeError, StatusCode.RESOURCE_EXHAUSTED, 413),
    (errors.UnauthenticatedError, StatusCode.UNAUTHENTICATED, 401),
    (errors.AlreadyExistsError, StatusCode.ALREADY_EXISTS, 400),
    (errors.PermissionDeniedError, StatusCode.PERMISSION_DENIED, 403),
    (errors.QuotaError, StatusCode.RESOURCE_EXHAUSTED, 429),
    (errors.NotFoundError, StatusCode.NOT_FOUND, 404),
    (errors.UnavailableError, StatusCode.UNAVAILABLE, 503),
    (errors.OverloadedError, StatusCode.UNAVAILABLE, 503),
    (errors.DeadlineExceededError, StatusCode.DEADLINE_EXCEEDED, 504),
    (errors.UnimplementedError, StatusCode.UNIMPLEMENTED, 501),
    (errors.PreconditionError, StatusCode.FAILED_PRECONDITION, 412),
    (errors.InternalError, StatusCode.INTERNAL, 500),
]


@pytest.mark.parametrize(("kind", "status", "http"), ERRORS)
def test_each_error_has_the_status_that_the_callers_were_promised(
    kind: type[ServingError], status: StatusCode, http: int
) -> None:
    error = kind("what was wrong")

    assert (error.code, http_status_of(error), str(error)) == (status.value[0], http, "what was wrong")


def test_no_error_is_missing_above() -> None:
    kinds = {kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, ServingError)}

    assert kinds - {kind for kind, _, _ in ERRORS} == {ServingError, RemoteError}


@pytest.mark.parametrize(
    "name", [name for name in dir(errors) if name.isupper() and name not in {"HTTP_STATUS", "MAX_MESSAGE", "_CUT"}]
)
def test_the_codes_are_those_of_grpc(name: str) -> None:
    assert getattr(errors, name) == getattr(StatusCode, name).value[0]


def test_only_what_may_be_tried_again_hints_when() -> None:
    assert errors.InvalidRequestError("no").retry_after_s is None
    assert errors.UnavailableError("draining").retry_after_s == 1.0
    assert errors.OverloadedError("queue full", retry_after_s=0.05).retry_after_s == 0.05
    assert errors.UnavailableError("gone", retry_after_s=None).retry_after_s is None


def test_what_another_service_answered_keeps_its_code() -> None:
    error = RemoteError(errors.NOT_FOUND, "no such entity", retry_after_s=2)

    assert (error.code, http_status_of(error), error.retry_after_s) == (5, 404, 2)
    assert ServingError.code == errors.INTERNAL


@pytest.mark.parametrize("code", [10, 11, 15, 99])
def test_a_code_that_we_never_give_is_an_internal_error_on_http(code: int) -> None:
    assert http_status_of(RemoteError(code, "odd")) == 500


def test_a_message_is_cut_where_it_would_not_fit_into_headers() -> None:
    assert str(errors.NotFoundError("x" * 1024)) == "x" * 1024
    assert str(errors.NotFoundError("x" * 1025)) == "x" * 1021 + "…"
    assert str(errors.NotFoundError("模" * 400)) == "模" * 340 + "…"
