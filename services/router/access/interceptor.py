"""The gate of every gRPC method but the hot one: which role each needs, and of which model."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

import grpc
import grpc.aio

from services.chassis.front import certificate_of
from services.chassis.grpc_server import Call, Stream, answers_of, around
from services.core.roles import Role
from services.router.access.caller import Caller
from services.router.access.gate import Access


class Rule(NamedTuple):
    """What a method needs; `model` is where its request names one: a field, or a field of a field."""

    role: Role | None  # None = nothing, not even a name
    model: str = ""
    in_part: bool = False  # of many models, each of which the handler asks for


_OPEN = Rule(None)
_DISPATCHED = Rule(None)  # its requests are flights, each of which the dispatcher has admitted
_OIP, _PREDICT, _MODELS = (
    "/inference.GRPCInferenceService/",
    "/tensorflow.serving.PredictionService/",
    "/tensorflow.serving.ModelService/",
)
RULES: dict[str, Rule] = {
    **{f"{_OIP}{name}": _OPEN for name in ("ServerLive", "ServerReady", "ServerMetadata", "ModelReady")},
    **{f"{_OIP}{name}": _DISPATCHED for name in ("ModelInfer", "ModelStreamInfer")},
    f"{_OIP}ModelMetadata": Rule("predict", "name"),
    f"{_OIP}ModelConfig": Rule("predict", "name"),
    f"{_OIP}ModelStatistics": Rule("read-metrics", "name"),
    f"{_OIP}RepositoryIndex": Rule("predict"),
    f"{_OIP}RepositoryModelLoad": Rule("manage", "model_name"),
    f"{_OIP}RepositoryModelUnload": Rule("manage", "model_name"),
    f"{_OIP}TraceSetting": Rule("manage", "model_name"),
    f"{_OIP}LogSettings": Rule("manage"),
    **{
        f"{_OIP}{kind}SharedMemory{what}": Rule("predict")
        for kind in ("System", "Cuda")
        for what in ("Status", "Register", "Unregister")
    },
    **{f"{_PREDICT}{name}": _DISPATCHED for name in ("Predict", "Classify", "Regress", "MultiInference")},
    f"{_PREDICT}GetModelMetadata": Rule("predict", "model_spec.name"),
    f"{_MODELS}GetModelStatus": Rule("predict", "model_spec.name"),
    f"{_MODELS}HandleReloadConfigRequest": Rule("manage", in_part=True),
}
_PUBLIC = ("/grpc.health.v1.Health/", "/grpc.reflection.")
_OTHER = Rule("manage")  # a method that nobody thought of


def rule_of(method: str) -> Rule:
    """What the method with that path needs."""
    return _OPEN if method.startswith(_PUBLIC) else RULES.get(method, _OTHER)


class AccessInterceptor(grpc.aio.ServerInterceptor):
    """Asks the gate before a handler runs; goes behind the interceptor that turns errors into statuses."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler:
        handler: Any = await continuation(handler_call_details)
        rule = rule_of(handler_call_details.method)
        if handler is None or rule.role is None:
            return handler  # type: ignore[no-any-return]
        return around(handler, partial(self._call, rule=rule), partial(self._stream, rule=rule))

    def _call(self, handle: Call, rule: Rule) -> Call:
        async def guarded(request: Any, context: grpc.aio.ServicerContext) -> Any:
            self._ask(rule, request, context)
            return await handle(request, context)

        return guarded

    def _stream(self, handle: Callable[..., Any], rule: Rule) -> Stream:
        async def guarded(request: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
            self._ask(rule, request, context)
            async for answer in answers_of(handle, request, context):
                yield answer

        return guarded

    def _ask(self, rule: Rule, request: Any, context: grpc.aio.ServicerContext) -> None:
        model: Any = request if rule.model else ""
        for part in rule.model.split(".") if rule.model else ():
            model = getattr(model, part, "")
        role = rule.role or "manage"
        certificate = certificate_of(context)
        self._access.require(role, model, headers_of(context), context.peer(), certificate, in_part=rule.in_part)


def headers_of(context: grpc.aio.ServicerContext) -> dict[str, str | bytes]:
    """The metadata of a call as a flight has its headers."""
    metadata: Any = context.invocation_metadata() or ()
    return dict(metadata)


def caller_of(access: Access, context: grpc.aio.ServicerContext) -> Caller | None:
    """Who calls, for methods whose requests are flights. Raises UnauthenticatedError for credentials that are wrong."""
    return access.identify(headers_of(context), context.peer(), certificate_of(context))
