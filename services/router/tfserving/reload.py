"""HandleReloadConfigRequest: TensorFlow Serving's list of models as desired state of models that operators know."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import structlog

from services.core.errors import (
    DeadlineExceededError,
    InvalidRequestError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    UnimplementedError,
)
from services.core.imported import Imported
from services.core.model_spec import ModelSpec
from services.core.names import version_order
from services.core.route_spec import RouteSpec
from services.core.spec import BadValueError
from services.core.tf_serving_config import models_of
from services.router.management.offer import Offer
from services.router.state import State
from turnout.tfserving import model_service_pb2 as pb

log = structlog.get_logger()
MayManage = Callable[[str], object]  # a model; raises PermissionDeniedError


class Change(NamedTuple):
    """What a list asks for beyond what is."""

    loads: Mapping[str, Mapping[str, Any]]  # model -> fields of its spec
    unloads: tuple[str, ...]
    labels: Mapping[str, Mapping[str, str]]  # model -> label -> version


class Reload:
    """Models that are missing from a list are unloaded. What it names must be in models/ already, at its base_path."""

    def __init__(self, offer: Offer, state: State) -> None:
        self._offer = offer
        self._state = state
        self._one = asyncio.Lock()  # two lists at once would make a third

    async def __call__(self, request: pb.ReloadConfigRequest, within_s: float | None, may_manage: MayManage) -> None:
        """Returns when every live pod has come to it. Raises ServingError; what was done until then stays."""
        self._offer.check_here()
        listed = _listed(request)
        try:
            async with asyncio.timeout(within_s), self._one:
                change = change_of(listed, self._state.desired.models)
                for model in (*change.loads, *change.unloads, *change.labels):
                    may_manage(model)
                await self._make(change)
        except TimeoutError:
            raise DeadlineExceededError("the deadline passed before every pod had come to it") from None
        log.info("models_listed", loaded=sorted(change.loads), unloaded=list(change.unloads))

    async def _make(self, change: Change) -> None:
        repository = self._offer.repository
        for model, fields in change.loads.items():
            await repository.load("", model, {"config": json.dumps(fields)}, None)
        for model, labels in change.labels.items():
            await self._label(model, labels)
        for model in change.unloads:
            await repository.unload("", model, {}, None)

    async def _label(self, model: str, labels: Mapping[str, str]) -> None:
        """Put labels into a model's route. Raises PreconditionError for a version that takes no requests."""
        ready = self._state.targets(model)
        for label, version in labels.items():
            if version not in ready:
                there = ", ".join(sorted(ready, key=version_order)) or "none"
                raise PreconditionError(f"model {model}: {label!r} is for version {version}; AVAILABLE are: {there}")
        routes = self._offer.routes
        try:
            stored = await routes.get(model)
            route, revision = RouteSpec.parse(stored.value), stored.revision
        except NotFoundError:
            spec = self._state.desired.models.get(model)
            stable = spec.default_version if spec and spec.default_version else max(ready, key=version_order)
            route, revision = RouteSpec(stable=stable), 0
        except BadValueError as error:
            raise PreconditionError(f"the route of model {model} is none, so it takes no labels: {error}") from None
        await routes.put(model, route.model_copy(update={"labels": dict(labels)}).dump(), revision)


def _listed(request: pb.ReloadConfigRequest) -> list[Imported]:
    if request.config.HasField("custom_model_config"):
        raise UnimplementedError("custom_model_config is not offered; give model_config_list")
    if not request.config.HasField("model_config_list"):
        raise InvalidRequestError("config has no model_config_list; an empty one unloads every model")
    try:
        listed = list(models_of(request.config))
    except BadValueError as error:
        raise InvalidRequestError(f"config: {error}") from None
    names = [each.model for each in listed]
    if len(set(names)) < len(names):
        raise InvalidRequestError(f"config: {next(name for name in names if names.count(name) > 1)} is listed twice")
    return listed


def change_of(listed: list[Imported], held: Mapping[str, ModelSpec]) -> Change:
    """What `listed` asks of the models in `held`. Raises PermissionDeniedError for what only operators may add."""
    loads = dict(_loads(listed, held))
    missing = held.keys() - {each.model for each in listed}
    unloads = tuple(sorted(model for model in missing if held[model].loaded))
    return Change(loads, unloads, {each.model: each.labels for each in listed if each.labels})


def _loads(listed: list[Imported], held: Mapping[str, ModelSpec]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for each in listed:
        spec = held.get(each.model)
        if spec is None:
            raise PermissionDeniedError(
                f"model {each.model} is not in models/: an operator adds it there, as by `turnout models import`"
            )
        _check_place(each, spec)
        policy = each.fields.get("version_policy")
        wanted = {} if policy is None else {"version_policy": policy}
        if not spec.loaded or not _says(spec, wanted):
            yield each.model, wanted


def _says(spec: ModelSpec, wanted: Mapping[str, Any]) -> bool:
    """Whether a spec has these fields already."""
    return all(getattr(spec, name) == getattr(ModelSpec.model_validate(wanted), name) for name in wanted)


def _check_place(listed: Imported, spec: ModelSpec) -> None:
    """Raise PermissionDeniedError for a base_path that is not where the model lies: that is for operators to say."""
    folder = listed.fields.get("folder", listed.model)
    is_there = folder == (spec.folder or listed.model)
    if spec.repository is not None:
        given = str(listed.fields["repository"])
        is_there &= given.rstrip("/") in {
            spec.repository.rstrip("/"),
            spec.repository.removeprefix("file://").rstrip("/"),
        }
    if not is_there:
        raise PermissionDeniedError(
            f"model {listed.model} does not lie at that base_path, and is not moved over the network:"
            " an operator writes its repository and folder to models/ in etcd"
        )
