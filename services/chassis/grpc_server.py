"""The slow path's gRPC server: grpc.aio, with one interceptor that turns errors into statuses."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, cast

import grpc
import grpc.aio
import structlog
from google.protobuf.message import DecodeError

from services.chassis.listening import CannotListenError, probe
from services.chassis.retry_hint import status_details
from services.chassis.tls import ListenerSecurity, Material
from services.core.errors import InvalidRequestError, ServingError

STATUS: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}
_LIMIT_BYTES = 64 << 20
_LEFT_OUT = {grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNIMPLEMENTED.value[0]}  # gRPC gives the number

log = structlog.get_logger()


def grpc_server(
    *,
    limit_bytes: int = _LIMIT_BYTES,
    max_in_flight: int = 1000,
    interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
) -> grpc.aio.Server:
    """A grpc.aio server whose handlers and interceptors raise ServingError; add servicers, then `bind` and start it."""
    return grpc.aio.server(
        interceptors=[ErrorInterceptor(), *interceptors],
        maximum_concurrent_rpcs=max_in_flight,
        options=[
            ("grpc.max_receive_message_length", limit_bytes),
            ("grpc.max_send_message_length", limit_bytes),
            ("grpc.so_reuseport", 0),  # a busy port is an error, not a share
        ],
    )


def bind(server: grpc.aio.Server, address: str, security: ListenerSecurity | None = None) -> str:
    """Listen on "host:port", or in plaintext on "unix:/path"; gives the address with its real port.

    Raises CannotListenError.
    """
    probe(address)  # as gRPC says only that it failed, and prints that itself
    try:
        if security is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, _credentials(security))
    except RuntimeError as error:
        raise CannotListenError.explain(address, error) from error
    return address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"


def _credentials(security: ListenerSecurity) -> grpc.ServerCredentials:
    """They follow the files: gRPC asks at each handshake."""
    shown = security.material

    def config(material: Material) -> grpc.ServerCertificateConfiguration:
        pair = (material.key, material.certificate)
        return grpc.ssl_server_certificate_configuration([pair], root_certificates=material.ca or None)

    def changed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal shown
        now = security.material
        if now is shown:
            return None
        shown = now
        return config(now)

    if security.asks == "optional":
        log.warning("certificates_not_asked_for", name="grpc", reason="gRPC's server cannot ask for one and do without")
    return grpc.dynamic_ssl_server_credentials(
        config(shown),
        cast("Any", changed),  # its type knows no None, which is as before
        require_client_authentication=security.asks == "required",
    )


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """ServingError becomes its status with its retry hint; any other exception INTERNAL "internal error" and a log.

    A message that cannot be read is the caller's fault, where gRPC alone would log and answer UNKNOWN.
    """

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler:
        handler: Any = await continuation(handler_call_details)
        if handler is None:  # an unknown method: gRPC answers UNIMPLEMENTED
            return None  # type: ignore[return-value]
        method = handler_call_details.method
        guarded: Any = around(handler, partial(_guard_call, method=method), partial(_guard_stream, method=method))
        read = handler.request_deserializer and _reader(handler.request_deserializer)
        replaced: grpc.RpcMethodHandler = guarded._replace(request_deserializer=read)
        return replaced


Call = Callable[[Any, grpc.aio.ServicerContext], Awaitable[Any]]
Stream = Callable[[Any, grpc.aio.ServicerContext], AsyncIterator[Any]]


def around(
    handler: Any, call: Callable[[Call], Call], stream: Callable[[Callable[..., Any]], Stream]
) -> grpc.RpcMethodHandler:
    """`handler` with what `call` makes of its function, or `stream` where that has any number of answers."""
    kind = f"{_arity(handler.request_streaming)}_{_arity(handler.response_streaming)}"
    wrap: Any = stream if handler.response_streaming else call
    wrapped: grpc.RpcMethodHandler = handler._replace(**{kind: wrap(getattr(handler, kind))})
    return wrapped


async def answers_of(handle: Callable[..., Any], request: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
    """What a handler with any number of answers gives."""
    answers = handle(request, context)
    if hasattr(answers, "__aiter__"):
        async for answer in answers:
            yield answer
    else:  # a coroutine that writes to the context
        await answers


def _arity(streaming: bool) -> str:  # noqa: FBT001 - named by its one caller
    return "stream" if streaming else "unary"


def _reader(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def reader(data: bytes) -> Any:
        try:
            return read(data)
        except DecodeError:  # given on, as only handlers can end a call
            return InvalidRequestError(f"{len(data)} bytes that are not the message of this method: was it cut off?")

    return reader


def _checked(request: Any) -> Any:
    """What a handler takes of what was read: a message, or those of a stream. Raises InvalidRequestError."""
    if isinstance(request, InvalidRequestError):
        raise request
    return _checked_stream(request) if hasattr(request, "__aiter__") else request


async def _checked_stream(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for request in requests:
        yield _checked(request)


def _guard_call(handle: Call, method: str) -> Call:
    async def guarded(request: Any, context: grpc.aio.ServicerContext) -> Any:
        try:
            return await handle(_checked(request), context)
        except Exception as error:  # noqa: BLE001 - every fault ends in a status
            await _abort(context, error, method)

    return guarded


def _guard_stream(handle: Callable[..., Any], method: str) -> Stream:
    async def guarded(request: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
        try:
            async for answer in answers_of(handle, _checked(request), context):
                yield answer
        except Exception as error:  # noqa: BLE001 - every fault ends in a status
            await _abort(context, error, method)

    return guarded


async def _abort(context: grpc.aio.ServicerContext, error: Exception, method: str) -> None:
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if isinstance(error, ServingError):
        await context.abort(STATUS.get(error.code, grpc.StatusCode.UNKNOWN), str(error), status_details(error))
    if context.code() in _LEFT_OUT:  # generated servicers set it, and then raise
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{method} is not offered here")
    log.error("call_failed", method=method, exc_info=error)
    await context.abort(grpc.StatusCode.INTERNAL, "internal error")
