"""routes/MODEL in etcd: which versions get which share of traffic."""

from collections.abc import Set as AbstractSet
from typing import Annotated, Self

from pydantic import AfterValidator, AwareDatetime, Field, field_validator, model_validator

from services.core.names import KeySource, Label, Version, checked_version, version_order
from services.core.spec import BadValueError, Spec
from services.core.split import POINTS, Ranges, Share, default_start, points_of_percent


def _in_points(value: float) -> float:
    points_of_percent(value)
    return value


Percent = Annotated[float, AfterValidator(_in_points)]


class Canary(Spec):
    """A share of the traffic: `percent` of all keys, clockwise from `at` (percent of the circle)."""

    version: Version
    percent: Percent
    at: Percent


class Match(Spec):
    """Requests whose header (or gRPC metadata) equals a value go to one version."""

    header: str = Field(pattern=r"^[a-z0-9_.-]+$")
    equals: str
    version: Version


class Fallback(Spec):
    """What answers when stable has no ready endpoint."""

    version: Version


class RouteSpec(Spec):
    """One model's route. `canary` may be written short: {"2": 10} = version 2 gets 10%."""

    stable: Version
    canary: tuple[Canary, ...] = ()
    shadow: dict[Version, Percent] = {}  # percent of requests that are copied to a candidate
    labels: dict[Label, Version] = {}
    pins: dict[str, Version] = {}  # routing key -> version
    match: tuple[Match, ...] = ()
    fallback: Fallback | None = None
    sticky_by: KeySource | None = None  # where the routing key comes from when x-routing-key is absent
    salt: str | None = None  # None = the model's name
    until: AwareDatetime | None = None
    author: str = ""
    reason: str = ""

    @field_validator("canary", mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        if isinstance(value, list):
            return tuple(value)
        if not isinstance(value, dict):
            return value
        versions = sorted(map(checked_version, value), key=version_order)
        return tuple(
            {"version": version, "percent": value[version], "at": default_start(index) * 100 / POINTS}
            for index, version in enumerate(versions)
        )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        versions = [canary.version for canary in self.canary]
        for version in versions:
            if versions.count(version) > 1:
                raise ValueError(f"canary: version {version} is named twice")
        if self.stable in versions:
            raise ValueError(f"canary: version {self.stable} is stable already")
        self.ranges()
        return self

    def ranges(self) -> Ranges:
        """The circle as this route cuts it. Raises ValueError when percents sum to over 100."""
        return Ranges(
            [
                Share(canary.version, points_of_percent(canary.at) % POINTS, points_of_percent(canary.percent))
                for canary in self.canary
            ]
        )

    def named_versions(self) -> set[str]:
        """Every version that a runtime must load for this route."""
        return {
            self.stable,
            *(canary.version for canary in self.canary),
            *self.shadow,
            *self.labels.values(),
            *self.pins.values(),
            *(match.version for match in self.match),
            *([self.fallback.version] if self.fallback else []),
        }


def check_known(model: str, route: RouteSpec, known: AbstractSet[str]) -> None:
    """Raise BadValueError for a version that no pod knows; with none `known` at all, any may be right."""
    unknown = route.named_versions() - known
    if known and unknown:
        raise BadValueError(
            f"no pod knows version {', '.join(sorted(unknown, key=version_order))} of model {model}; "
            f"known are {', '.join(sorted(known, key=version_order))}"
        )
