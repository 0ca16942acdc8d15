"""Which versions of a model this pod should hold, and which it may let go; pure."""

from collections.abc import Collection, Mapping, Sequence
from enum import Enum

from services.core.model_spec import ModelSpec
from services.core.names import ModelVersion
from services.core.route_spec import RouteSpec


class Progress(Enum):
    """How far a wanted version has come in this pod."""

    PENDING = "pending"  # not there yet, but may come
    READY = "ready"
    FAILED = "failed"


def stable_of(spec: ModelSpec, route: RouteSpec | None) -> str | None:
    """The version that serves whatever nothing else claims."""
    return route.stable if route else spec.default_version


def named_versions(spec: ModelSpec, route: RouteSpec | None) -> set[str]:
    """Versions that a route names, and the model's default."""
    named = route.named_versions() if route else set()
    return named | ({spec.default_version} if spec.default_version else set())


def asked_for(spec: ModelSpec, route: RouteSpec | None, available: Collection[str]) -> set[str]:
    """Version policy over what is available, and every version that a route names or the model defaults to."""
    if not spec.loaded:
        return set()
    return spec.version_policy.choose(list(available)) | named_versions(spec, route)


def kept(spec: ModelSpec, asked: Collection[str], previous: Sequence[str]) -> list[str]:
    """The versions kept warm though nobody asks for them any more: the last `keep_previous` let go, latest first."""
    keep = spec.keep_previous if spec.loaded else 0
    return [version for version in previous if version not in asked][:keep]


def wanted(
    specs: Mapping[str, ModelSpec],
    routes: Mapping[str, RouteSpec],
    available: Mapping[str, Collection[str]],
    previous: Mapping[str, Sequence[str]],
    pool: str,
) -> set[ModelVersion]:
    """Every version that a pod of `pool` should hold."""
    found: set[ModelVersion] = set()
    for model, spec in specs.items():
        if spec.placement.pool != pool:
            continue
        asked = asked_for(spec, routes.get(model), available.get(model, ()))
        found |= {ModelVersion(model, version) for version in asked}
        found |= {ModelVersion(model, version) for version in kept(spec, asked, previous.get(model, ()))}
    return found


def remember(previous: Sequence[str], asked_before: Collection[str], asked: Collection[str]) -> list[str]:
    """`previous` after a change of what is asked for: versions just dropped come first, those asked for again leave."""
    dropped = sorted(set(asked_before) - set(asked), key=int, reverse=True)
    rest = [version for version in previous if version not in asked and version not in dropped]
    return [*dropped, *rest][:16]


def may_release(stable: str | None, progress: Mapping[str, Progress]) -> bool:
    """Whether versions of a model that are no longer wanted may go: not before what replaces them is ready.

    `progress` is of the wanted versions. A failed one holds nothing up, except the stable one; without a stable one any
    ready one will do.
    """
    if any(state is Progress.PENDING for state in progress.values()):
        return False
    ready = {version for version, state in progress.items() if state is Progress.READY}
    return stable in ready if stable else bool(ready) or not progress
