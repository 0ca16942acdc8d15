"""The Open Inference Protocol's model repository, trace and log extensions: translation only."""

import math
from collections.abc import Mapping
from typing import Any

import grpc

from inference import grpc_service_pb2 as pb
from services.core.errors import InvalidRequestError
from services.router.access.interceptor import caller_of
from services.router.management.offer import Offer

_MARGIN_S = 0.5  # of a caller's deadline, for the answer


class ManagementMethods:
    """Part of the servicer; `_offer` is what its listener offers."""

    _offer: Offer

    async def RepositoryIndex(
        self, request: pb.RepositoryIndexRequest, context: grpc.aio.ServicerContext
    ) -> pb.RepositoryIndexResponse:
        access = self._offer.access
        caller = caller_of(access, context)
        rows = await self._offer.repository.index(request.repository_name, ready=request.ready)
        rows = [row for row in rows if access.may(caller, "predict", row.model)]
        model = pb.RepositoryIndexResponse.ModelIndex
        return pb.RepositoryIndexResponse(
            models=[model(name=row.model, version=row.version, state=row.state, reason=row.reason) for row in rows]
        )

    async def RepositoryModelLoad(
        self, request: pb.RepositoryModelLoadRequest, context: grpc.aio.ServicerContext
    ) -> pb.RepositoryModelLoadResponse:
        self._offer.check_here()
        parameters = _parameters(request.parameters)
        await self._offer.repository.load(request.repository_name, request.model_name, parameters, _within_s(context))
        return pb.RepositoryModelLoadResponse()

    async def RepositoryModelUnload(
        self, request: pb.RepositoryModelUnloadRequest, context: grpc.aio.ServicerContext
    ) -> pb.RepositoryModelUnloadResponse:
        self._offer.check_here()
        parameters = _parameters(request.parameters)
        await self._offer.repository.unload(request.repository_name, request.model_name, parameters, _within_s(context))
        return pb.RepositoryModelUnloadResponse()

    async def TraceSetting(
        self, request: pb.TraceSettingRequest, context: grpc.aio.ServicerContext
    ) -> pb.TraceSettingResponse:
        self._offer.check_here()
        given = {name: list(setting.value) for name, setting in request.settings.items()}
        held = await self._offer.settings.traces(request.model_name, given)
        value = pb.TraceSettingResponse.SettingValue
        return pb.TraceSettingResponse(settings={name: value(value=words) for name, words in held.items()})

    async def LogSettings(
        self, request: pb.LogSettingsRequest, context: grpc.aio.ServicerContext
    ) -> pb.LogSettingsResponse:
        self._offer.check_here()
        held = await self._offer.settings.logs({name: _chosen(setting) for name, setting in request.settings.items()})
        return pb.LogSettingsResponse(settings={name: _log_value(value) for name, value in held.items()})


def _parameters(given: Mapping[str, pb.ModelRepositoryParameter]) -> dict[str, Any]:
    return {name: _chosen(value) for name, value in given.items()}


def _chosen(value: Any) -> Any:
    kind = value.WhichOneof("parameter_choice")
    return getattr(value, kind) if kind else None


def _log_value(value: bool | int | str) -> pb.LogSettingsResponse.SettingValue:  # noqa: FBT001 - one of three kinds
    kind = {bool: "bool_param", int: "uint32_param", str: "string_param"}[type(value)]
    return pb.LogSettingsResponse.SettingValue(**{kind: value})  # type: ignore[arg-type]


def _within_s(context: grpc.aio.ServicerContext) -> float | None:
    """Seconds that the caller leaves; None when it sets no deadline."""
    left: Any = context.time_remaining()
    if left is None or math.isinf(left) or left > 1e9:
        return None
    if left <= _MARGIN_S:
        raise InvalidRequestError(f"a deadline in {left:.1f} s is too soon for this call: give it some seconds")
    return float(left) - _MARGIN_S
