"""The router as its callers see it: gRPC with our own stubs, or REST."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Self

import aiohttp
import grpc
import grpc.aio
import numpy as np
from numpy.typing import NDArray

from inference import grpc_service_pb2 as pb
from inference.grpc_service_pb2_grpc import GRPCInferenceServiceStub
from services.cli.errors import CliError
from services.cli.security import caller
from services.core import arrays
from services.core.signature import TensorSpec
from services.core.tensor import BYTES

_TLS = re.compile(r"ssl|tls|certificate|handshake", re.IGNORECASE)
_HUNG_UP = re.compile(r"socket closed|server disconnected|connection reset", re.IGNORECASE)
Parameter = bool | int | float | str
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),
]


class RefusedError(CliError):
    """What the router answered instead of a prediction."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. `key` is the routing key; `timings` asks the router where the time went."""

    model: str
    inputs: Mapping[str, NDArray]
    parameters: Mapping[str, Parameter]
    version: str = ""
    key: str = ""
    timings: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """One prediction. `stages_ms` is in the router's order, ending with `total`."""

    version: str
    arm: str
    outputs: dict[str, NDArray]
    stages_ms: dict[str, float]
    latency_ms: float  # as this process saw it


class GrpcClient:
    """A context; calls raise RefusedError."""

    def __init__(self, address: str, timeout_s: float = 30.0) -> None:
        self._address = address
        self._timeout_s = timeout_s
        who = caller()
        self._metadata = tuple(who.headers.items())
        self._channel = who.channel(address, _OPTIONS)
        self._stub: Any = GRPCInferenceServiceStub(self._channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close(None)

    async def infer(self, ask: Ask) -> Answer:
        metadata = (*_metadata(ask), *self._metadata)
        call = self._stub.ModelInfer(to_request(ask), metadata=metadata, timeout=self._timeout_s)
        began = perf_counter()
        response = await self._result(call)
        latency_ms = (perf_counter() - began) * 1e3
        trailing = {str(name): _text(value) for name, value in await call.trailing_metadata() or ()}
        return Answer(
            response.model_version,
            trailing.get("turnout-arm", ""),
            outputs_of(response),
            parse_timing(trailing.get("turnout-timing", "")),
            latency_ms,
        )

    async def inputs_of(self, model: str, version: str) -> list[TensorSpec]:
        """What a caller must send."""
        return (await self.signature_of(model, version))[0]

    async def signature_of(self, model: str, version: str) -> tuple[list[TensorSpec], list[TensorSpec]]:
        """What a caller must send, and what it gets."""
        request = pb.ModelMetadataRequest(name=model, version=version)
        call = self._stub.ModelMetadata(request, metadata=self._metadata, timeout=self._timeout_s)
        response = await self._result(call)
        both = (response.inputs, response.outputs)
        inputs, outputs = ([TensorSpec(each.name, each.datatype, tuple(each.shape)) for each in side] for side in both)
        return inputs, outputs

    async def is_ready(self, model: str, version: str = "") -> bool:
        request = pb.ModelReadyRequest(name=model, version=version)
        try:
            return bool((await self._stub.ModelReady(request, metadata=self._metadata, timeout=self._timeout_s)).ready)
        except grpc.aio.AioRpcError:
            return False

    async def _result(self, call: Any) -> Any:
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            raise self._refused(error) from None

    def _refused(self, error: grpc.aio.AioRpcError) -> CliError:
        details = error.details() or "no details"
        if error.code() is grpc.StatusCode.UNAVAILABLE and "failed to connect" in details:
            return unreachable(self._address, details)
        return RefusedError(error.code().name, details)


class RestClient:
    """A context; calls raise RefusedError."""

    def __init__(self, address: str, timeout_s: float = 30.0) -> None:
        self._address = address
        who = caller()
        self._session = aiohttp.ClientSession(
            base_url=f"{who.scheme}://{address}",
            connector=aiohttp.TCPConnector(ssl=who.context()),
            headers=who.headers,
            timeout=aiohttp.ClientTimeout(total=timeout_s),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def infer(self, ask: Ask) -> Answer:
        headers = {"x-routing-key": ask.key} if ask.key else {}
        if ask.timings:
            headers["turnout-timing"] = "1"
        began = perf_counter()
        answer, given = await self._call("POST", f"{_path(ask.model, ask.version)}/infer", to_json(ask), headers)
        latency_ms = (perf_counter() - began) * 1e3
        return Answer(
            str(answer.get("model_version", "")),
            given.get("turnout-arm", ""),
            {str(output["name"]): _from_json(output) for output in answer.get("outputs", ())},
            parse_timing(given.get("server-timing", "")),
            latency_ms,
        )

    async def inputs_of(self, model: str, version: str) -> list[TensorSpec]:
        """What a caller must send."""
        answer, _ = await self._call("GET", _path(model, version), None, {})
        return [TensorSpec(each["name"], each["datatype"], tuple(each["shape"])) for each in answer.get("inputs", ())]

    async def _call(
        self, method: str, path: str, body: Any, headers: Mapping[str, str]
    ) -> tuple[dict[str, Any], Mapping[str, str]]:
        try:
            async with self._session.request(method, path, json=body, headers=headers) as response:
                answer = await response.json(content_type=None)
                if response.status != 200:
                    raise RefusedError(str(response.status), str((answer or {}).get("error", "no details")))
                return answer, response.headers
        except (aiohttp.ClientConnectionError, TimeoutError) as error:
            raise unreachable(self._address, str(error)) from None
        except (aiohttp.ClientError, ValueError, AttributeError) as error:
            raise CliError(f"the router at {self._address} answered something else than JSON: {error}") from None


def to_request(ask: Ask) -> pb.ModelInferRequest:
    """Raises CliError for an array that no tensor holds."""
    request = pb.ModelInferRequest(model_name=ask.model, model_version=ask.version)
    for name, value in ask.parameters.items():
        _set(request.parameters[name], value)
    for name, array in ask.inputs.items():
        try:
            datatype, data = arrays.encode(array)
        except ValueError as error:
            raise CliError(f"input {name}: {error}") from None
        request.inputs.add(name=name, datatype=datatype, shape=array.shape)
        request.raw_input_contents.append(data)
    return request


def to_json(ask: Ask) -> dict[str, Any]:
    """The body of a REST request."""
    inputs = []
    for name, array in ask.inputs.items():
        datatype = arrays.DATATYPE_OF.get(array.dtype, BYTES)
        inputs.append({"name": name, "datatype": datatype, "shape": list(array.shape), "data": array.ravel().tolist()})
    return {"inputs": inputs, "parameters": dict(ask.parameters)} if ask.parameters else {"inputs": inputs}


def outputs_of(response: pb.ModelInferResponse) -> dict[str, NDArray]:
    """Raises ValueError when data and shape do not agree."""
    pairs = zip(response.outputs, response.raw_output_contents, strict=True)
    return {output.name: arrays.decode(output.datatype, tuple(output.shape), data) for output, data in pairs}


def parse_timing(text: str) -> dict[str, float]:
    """Milliseconds by stage of a Server-Timing value: `parse;dur=0.012, auth;dur=0.001`. Other parts are ignored."""
    stages = {}
    for part in text.split(","):
        name, _, attributes = part.strip().partition(";")
        for attribute in attributes.split(";"):
            key, _, value = attribute.strip().partition("=")
            if key == "dur" and value.replace(".", "", 1).isdecimal():
                stages[name] = float(value)
    return stages


def unreachable(address: str, text: str) -> CliError:
    """Why there is no connection to a router, by the text of the failure."""
    if _TLS.search(text):
        reason = text.rpartition("last error: ")[2].removeprefix("UNAVAILABLE: ")
        return CliError(f"the router at {address} and this command do not agree on TLS: {reason}")
    if _HUNG_UP.search(text):
        return CliError(f"what listens at {address} hung up: if it speaks TLS, say `turnout --tls-ca FILE`")
    return CliError(f"no router answers at {address}: is a mesh running (`turnout up`)?")


def _metadata(ask: Ask) -> Sequence[tuple[str, str]]:
    metadata = [("turnout-timing", "1")] if ask.timings else []
    return [*metadata, ("x-routing-key", ask.key)] if ask.key else metadata


def _set(parameter: pb.InferParameter, value: Parameter) -> None:
    match value:
        case bool():
            parameter.bool_param = value
        case int():
            parameter.int64_param = value
        case float():
            parameter.double_param = value
        case str():
            parameter.string_param = value


def _path(model: str, version: str) -> str:
    return f"/v2/models/{model}/versions/{version}" if version else f"/v2/models/{model}"


def _from_json(output: Mapping[str, Any]) -> NDArray:
    dtype = arrays.NUMPY_DTYPE.get(str(output["datatype"]), np.dtype(object))
    return np.array(output["data"], dtype=dtype).reshape(output["shape"])


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
