"""Calls to an etcd cluster: fail-over between endpoints, TLS, log-in, and a deadline on each call."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, cast

import grpc
from google.protobuf.message import Message

from services.chassis.etcd.errors import (
    EtcdError,
    EtcdUnavailableError,
    is_stale_token,
    may_answer_elsewhere,
    translated,
    was_never_sent,
)
from services.chassis.tls import Material
from turnout.etcd import rpc_pb2 as rpc

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)
Metadata = tuple[tuple[str, str], ...]

# gRPC's keepalive alone takes a minute to notice a hung peer: ping_timeout_ms is what makes it 8 s.
# etcd closes connections that ping more often than each 5 s, or without a call.
_OPTIONS = [
    ("grpc.keepalive_time_ms", 6_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.ping_timeout_ms", 2_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", 256 << 20),
]


class TlsFiles(NamedTuple):
    """PEM files; `cert` and `key` where the other side asks for a certificate."""

    ca: Path
    cert: Path | None = None
    key: Path | None = None


@dataclass(frozen=True, slots=True)
class Method(Generic[RequestT, ResponseT]):
    """One of etcd's methods by its literal path; a `repeatable` one may be sent twice without harm."""

    path: str
    response: type[ResponseT]
    repeatable: bool = False


_AUTHENTICATE: Method[rpc.AuthenticateRequest, rpc.AuthenticateResponse] = Method(
    "/etcdserverpb.Auth/Authenticate", rpc.AuthenticateResponse, repeatable=True
)


class Stream(Generic[RequestT, ResponseT]):
    """One bidirectional call; its errors are ours."""

    def __init__(self, call: Any, endpoint: str, connection: "Connection") -> None:
        self._call = call
        self._connection = connection
        self.endpoint = endpoint

    async def write(self, request: RequestT) -> None:
        """Raises EtcdError when the call is over."""
        try:
            await self._call.write(request)
        except grpc.aio.AioRpcError as error:
            raise self._failed(error) from None
        except asyncio.InvalidStateError:
            raise self._over() from None

    async def read(self) -> ResponseT:
        """The next message. Raises EtcdError when the call is over."""
        try:
            response: Any = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise self._failed(error) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise self._over() from None  # the call was, not who reads: its channel is closed
        if not isinstance(response, Message):  # the end of the stream
            raise self._over()
        return cast("ResponseT", response)

    def cancel(self) -> None:
        self._call.cancel()

    def silent(self, seconds: float) -> EtcdUnavailableError:
        """The error of a stream that was silent for too long; the next call tries another endpoint."""
        self._connection.leave(self.endpoint)
        return EtcdUnavailableError(f"etcd at {self.endpoint} was silent for {seconds:g} s")

    def _failed(self, error: grpc.aio.AioRpcError) -> EtcdError:
        self._connection.noticed(error, self.endpoint)
        return translated(error, self.endpoint)

    def _over(self) -> EtcdUnavailableError:
        self._connection.leave(self.endpoint)
        return EtcdUnavailableError(f"etcd at {self.endpoint} ended the stream")


def split_endpoints(text: str) -> list[str]:
    """The endpoints in "host:port,host:port"; empty when there is none."""
    return [part.strip() for part in text.split(",") if part.strip()]


class Connection:
    """A cluster of endpoints HOST:PORT. Connects on the first call; an endpoint that fails is left for the next one."""

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        user: str,
        password: str,
        tls: TlsFiles | Material | None,
        timeout_s: float,
    ) -> None:
        self._endpoints = [_host_and_port(name, is_secure=tls is not None) for name in endpoints if name]
        if not self._endpoints:
            raise ValueError("etcd: expected at least one endpoint HOST:PORT")
        self._user, self._password = user, password
        self._credentials = _credentials(tls) if tls else None
        self.timeout_s = timeout_s
        self._current = 0
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._leaving: set[asyncio.Task[None]] = set()  # channels with a certificate that was replaced
        self._token: str | None = None  # None: to log in; "": etcd asks for none
        self._logging_in = asyncio.Lock()

    @property
    def endpoint(self) -> str:
        """The endpoint that the next call goes to."""
        return self._endpoints[self._current]

    async def call(self, method: Method[RequestT, ResponseT], request: RequestT) -> ResponseT:
        """Answer of the first endpoint that gives one, within timeout_s for all of them together. Raises EtcdError."""
        deadline = time.monotonic() + self.timeout_s
        for left in range(len(self._endpoints), 0, -1):
            endpoint = self.endpoint
            try:
                return await self._call_as_user(endpoint, method, request, (deadline - time.monotonic()) / left)
            except grpc.aio.AioRpcError as error:
                self.noticed(error, endpoint)
                may_go_on = may_answer_elsewhere(error) and (method.repeatable or was_never_sent(error))
                if left == 1 or not may_go_on:
                    raise translated(error, endpoint) from None
        raise AssertionError("unreachable")

    async def open(self, method: Method[RequestT, ResponseT], metadata: Metadata = ()) -> Stream[RequestT, ResponseT]:
        """A bidirectional call. The caller cancels it, and bounds its own waiting."""
        endpoint = self.endpoint
        try:
            metadata += await self._login_metadata(endpoint, self.timeout_s)
        except grpc.aio.AioRpcError as error:
            self.noticed(error, endpoint)
            raise translated(error, endpoint) from None
        channel: Any = self._channel(endpoint)
        open_call = channel.stream_stream(
            method.path, request_serializer=_serialize, response_deserializer=method.response.FromString
        )
        return Stream(open_call(metadata=metadata), endpoint, self)

    def leave(self, endpoint: str) -> None:
        """Go on with the next endpoint, if that has not happened already."""
        if endpoint == self.endpoint:
            self._current = (self._current + 1) % len(self._endpoints)

    def noticed(self, error: grpc.aio.AioRpcError, endpoint: str) -> None:
        """Learn from a failed call: leave an endpoint that does not answer, forget a token that no longer counts."""
        if may_answer_elsewhere(error):
            self.leave(endpoint)
        elif is_stale_token(error):
            self.forget_token()

    def forget_token(self) -> None:
        """Log in again before the next call."""
        self._token = None

    def renew(self, tls: Material) -> None:
        """Use other certificates from the next call on; calls in flight may take timeout_s, streams are opened anew."""
        self._credentials = _credentials(tls)
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            task = asyncio.get_running_loop().create_task(channel.close(self.timeout_s + 1), name="etcd-leave")
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def close(self) -> None:
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            await channel.close(None)
        for task in self._leaving:
            task.cancel()

    async def _call_as_user(
        self, endpoint: str, method: Method[RequestT, ResponseT], request: RequestT, timeout_s: float
    ) -> ResponseT:
        """One try, and one more after a new log-in if the token was refused."""
        metadata = await self._login_metadata(endpoint, timeout_s)
        try:
            return await self._send(endpoint, method, request, timeout_s, metadata)
        except grpc.aio.AioRpcError as error:
            if not (self._user and is_stale_token(error)):
                raise
        if metadata == self._metadata():  # else another call has logged in meanwhile
            self.forget_token()
        metadata = await self._login_metadata(endpoint, timeout_s)
        return await self._send(endpoint, method, request, timeout_s, metadata)

    async def _send(
        self,
        endpoint: str,
        method: Method[RequestT, ResponseT],
        request: RequestT,
        timeout_s: float,
        metadata: Metadata = (),
    ) -> ResponseT:
        send = self._channel(endpoint).unary_unary(
            method.path, request_serializer=_serialize, response_deserializer=method.response.FromString
        )
        response: ResponseT = await send(request, timeout=timeout_s, metadata=metadata)
        return response

    async def _login_metadata(self, endpoint: str, timeout_s: float) -> Metadata:
        """The token as metadata; logs in first where there is a user and no token yet."""
        if not self._user:
            return ()
        async with self._logging_in:
            if self._token is None:
                self._token = await self._log_in(endpoint, timeout_s)
            return self._metadata()

    async def _log_in(self, endpoint: str, timeout_s: float) -> str:
        request = rpc.AuthenticateRequest(name=self._user, password=self._password)
        try:
            return (await self._send(endpoint, _AUTHENTICATE, request, timeout_s)).token
        except grpc.aio.AioRpcError as error:
            if "authentication is not enabled" in (error.details() or ""):
                return ""
            raise

    def _metadata(self) -> Metadata:
        return (("token", self._token),) if self._token else ()

    def _channel(self, endpoint: str) -> grpc.aio.Channel:
        channel = self._channels.get(endpoint)
        if channel is None:
            if self._credentials:
                channel = grpc.aio.secure_channel(endpoint, self._credentials, options=_OPTIONS)
            else:
                channel = grpc.aio.insecure_channel(endpoint, options=_OPTIONS)
            self._channels[endpoint] = channel
        return channel


def _host_and_port(endpoint: str, *, is_secure: bool) -> str:
    """Raises ValueError for https:// without certificates to believe it by: it would be dialled in plaintext."""
    name = endpoint.strip()
    if name.startswith("https://") and not is_secure:
        raise ValueError(f"etcd: {name} asks for TLS: name the authorities of its certificate (ETCD_TLS_CA)")
    if name.startswith("http://") and is_secure:
        raise ValueError(f"etcd: {name} asks for plaintext, and ETCD_TLS_CA for TLS: take one of them away")
    return name.removeprefix("http://").removeprefix("https://")


def _credentials(tls: TlsFiles | Material) -> grpc.ChannelCredentials:
    if isinstance(tls, Material):
        return grpc.ssl_channel_credentials(tls.ca, tls.key or None, tls.certificate or None)
    key = tls.key.read_bytes() if tls.key else None
    chain = tls.cert.read_bytes() if tls.cert else None
    return grpc.ssl_channel_credentials(tls.ca.read_bytes(), key, chain)


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()
