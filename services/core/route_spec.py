"""routes/MODEL in etcd: which versions get which share of traffic."""

from datetime import datetime
from typing import Self

from pydantic import Field, field_validator, model_validator

from services.core.names import Version, version_order
from services.core.spec import Spec
from services.core.split import POINTS, Ranges, Share, default_start, points_of_percent


class Canary(Spec):
    """A share of the traffic: `percent` of all keys, clockwise from `at` (percent of the circle)."""

    version: Version
    percent: float
    at: float

    @field_validator("percent", "at")
    @classmethod
    def _in_points(cls, value: float) -> float:
        points_of_percent(value)
        return value


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
    shadow: dict[Version, float] = {}  # percent of requests that are copied to a candidate
    labels: dict[str, Version] = {}
    pins: dict[str, Version] = {}  # routing key -> version
    match: tuple[Match, ...] = ()
    fallback: Fallback | None = None
    # Where the routing key comes from when x-routing-key is absent: NAME (request parameter), header:NAME, input:NAME.
    sticky_by: str | None = Field(default=None, min_length=1)
    salt: str | None = None  # None = the model's name
    until: datetime | None = None
    author: str = ""
    reason: str = ""

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        if not isinstance(value, dict) or not isinstance(value.get("canary"), dict):
            return value
        short = value["canary"]
        try:
            versions = sorted(short, key=version_order)
        except ValueError as error:
            raise ValueError("canary: versions are decimal strings") from error
        listed = [
            {"version": version, "percent": short[version], "at": default_start(index) * 100 / POINTS}
            for index, version in enumerate(versions)
        ]
        return {**value, "canary": listed}

    @field_validator("shadow")
    @classmethod
    def _shadow_percents(cls, value: dict[str, float]) -> dict[str, float]:
        for percent in value.values():
            points_of_percent(percent)
        return value

    @model_validator(mode="after")
    def _fits(self) -> Self:
        versions = [canary.version for canary in self.canary]
        if len(set(versions)) != len(versions):
            raise ValueError("canary: a version is named twice")
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
