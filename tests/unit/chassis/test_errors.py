from collections.abc import AsyncIterator, Callable

import grpc
import grpc.aio
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from structlog.testing import capture_logs

from services.chassis.grpc_server import bind, grpc_server
from services.chassis.listening import CannotListenError
from services.core import errors
from services.core.errors import OverloadedError, RemoteError, ServingError, UnavailableError
from tests.support.channels import own_channel

Call = Callable[[], Exception | None]
METHODS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


def subclasses(base: type[ServingError]) -> list[type[ServingError]]:
    return [base, *(found for child in base.__subclasses__() for found in subclasses(child))]


def make(kind: type[ServingError]) -> ServingError:
    if kind is RemoteError:
        return RemoteError(errors.NOT_FOUND, "version 7 is unknown; 1 and 2 are served")
    return kind("version 7 is unknown; 1 and 2 are served")


ERRORS = [make(kind) for kind in subclasses(ServingError)]


class Raising:
    """A service with one method of each arity, each of which raises `error`."""

    def __init__(self) -> None:
        self.error: Exception = RuntimeError("unset")

    async def unary(self, _request: object, _context: object) -> bytes:
        raise self.error

    async def stream(self, _request: object, _context: object) -> AsyncIterator[bytes]:
        yield b"first"
        raise self.error

    async def drink(self, requests: AsyncIterator[object], _context: object) -> bytes:
        async for _ in requests:
            raise self.error
        return b""

    async def sip(self, requests: AsyncIterator[object], _context: object) -> AsyncIterator[bytes]:
        yield await self.drink(requests, None)

    async def abort(self, _request: object, context: grpc.aio.ServicerContext) -> bytes:
        await context.abort(grpc.StatusCode.ALREADY_EXISTS, "said by the handler itself")

    async def write(self, _request: object, context: grpc.aio.ServicerContext) -> None:
        await context.write(b"first")
        raise self.error

    def handlers(self) -> grpc.GenericRpcHandler:
        methods = {
            "unary_unary": grpc.unary_unary_rpc_method_handler(self.unary),
            "unary_stream": grpc.unary_stream_rpc_method_handler(self.stream),
            "stream_unary": grpc.stream_unary_rpc_method_handler(self.unary),
            "stream_stream": grpc.stream_stream_rpc_method_handler(self.stream),
            "abort": grpc.unary_unary_rpc_method_handler(self.abort),
            "write": grpc.unary_stream_rpc_method_handler(self.write),
        }
        return grpc.method_handlers_generic_handler("test.Raising", methods)


class Client:
    def __init__(self, service: Raising, channel: grpc.aio.Channel) -> None:
        self.service = service
        self._channel = channel

    async def fails(self, method: str, error: Exception, message: bytes = b"") -> grpc.aio.AioRpcError:
        self.service.error = error
        arity = "unary_stream" if method == "write" else "unary_unary" if method not in METHODS else method
        call = getattr(self._channel, arity)(f"/test.Raising/{method}")(
            message if arity.startswith("unary") else iter([message]), timeout=10
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self._drink(call) if arity.endswith("stream") else await call
        return caught.value

    async def _drink(self, call: grpc.aio.UnaryStreamCall) -> None:
        async for answer in call:
            assert answer == b"first"


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    service = Raising()
    server = grpc_server()
    server.add_generic_rpc_handlers([service.handlers()])
    address = bind(server, "127.0.0.1:0")
    await server.start()
    async with own_channel(address) as channel:
        yield Client(service, channel)
    await server.stop(0)


@pytest.mark.parametrize("error", ERRORS, ids=[type(error).__name__ for error in ERRORS])
async def test_every_serving_error_reaches_the_client_with_its_code_and_message(
    client: Client, error: ServingError
) -> None:
    got = await client.fails("unary_unary", error)

    assert (got.code().value[0], got.details()) == (error.code, "version 7 is unknown; 1 and 2 are served")


@pytest.mark.parametrize("method", [*METHODS, "write"])
async def test_an_error_is_mapped_on_calls_of_every_arity(client: Client, method: str) -> None:
    got = await client.fails(method, OverloadedError("the queue holds 4096 of 4096 rows"))

    assert (got.code(), got.details()) == (grpc.StatusCode.UNAVAILABLE, "the queue holds 4096 of 4096 rows")


@pytest.mark.parametrize("method", [*METHODS, "write"])
async def test_an_unknown_exception_is_internal_and_its_text_stays_in_the_log(client: Client, method: str) -> None:
    with capture_logs() as logged:
        got = await client.fails(method, KeyError("/etc/secret"))

    assert (got.code(), got.details()) == (grpc.StatusCode.INTERNAL, "internal error")
    assert [(line["event"], line["method"]) for line in logged] == [("call_failed", f"/test.Raising/{method}")]
    assert isinstance(logged[0]["exc_info"], KeyError)


async def test_a_handlers_own_abort_passes_unchanged_and_unlogged(client: Client) -> None:
    with capture_logs() as logged:
        got = await client.fails("abort", RuntimeError("unused"))

    assert (got.code(), got.details()) == (grpc.StatusCode.ALREADY_EXISTS, "said by the handler itself")
    assert logged == []


@pytest.mark.parametrize("method", METHODS)
async def test_a_message_that_cannot_be_read_is_the_callers_fault(method: str) -> None:
    service = Raising()
    make_handler = getattr(grpc, f"{method}_rpc_method_handler")
    handles = (service.unary, service.stream, service.drink, service.sip)
    handler = make_handler(handles[METHODS.index(method)], request_deserializer=Duration.FromString)
    server = grpc_server()
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test.Raising", {method: handler})])
    address = bind(server, "127.0.0.1:0")
    await server.start()
    with capture_logs() as logged:
        async with own_channel(address) as channel:
            got = await Client(service, channel).fails(method, RuntimeError("unused"), b"\xff\xff")
    await server.stop(0)

    assert (got.code(), logged) == (grpc.StatusCode.INVALID_ARGUMENT, [])
    assert got.details() == "2 bytes that are not the message of this method: was it cut off?"


async def test_an_unknown_method_is_unimplemented(client: Client) -> None:
    got = await client.fails("missing", RuntimeError("unused"))

    assert got.code() == grpc.StatusCode.UNIMPLEMENTED


async def test_a_retry_hint_reaches_the_client_in_both_its_forms(client: Client) -> None:
    got = await client.fails("unary_unary", UnavailableError("draining", retry_after_s=0.2501))

    trailers = dict(got.trailing_metadata())
    status = Status.FromString(trailers["grpc-status-details-bin"])
    info = RetryInfo()
    assert status.details[0].Unpack(info)
    assert trailers["grpc-retry-pushback-ms"] == "251"
    assert (status.code, status.message, info.retry_delay.ToMilliseconds()) == (errors.UNAVAILABLE, "draining", 251)


async def test_without_a_hint_no_retry_is_suggested(client: Client) -> None:
    got = await client.fails("unary_unary", errors.NotFoundError("no such thing"))

    assert "grpc-retry-pushback-ms" not in dict(got.trailing_metadata())


async def test_a_busy_port_is_one_clear_line() -> None:
    first = grpc_server()
    address = bind(first, "127.0.0.1:0")
    await first.start()

    with pytest.raises(CannotListenError, match=f"^{address} is in use: .*$"):
        bind(grpc_server(), address)
    await first.stop(0)
