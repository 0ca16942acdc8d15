"""Which version serves a request: explicit, pin, match, split. Pure; the same decision on every router."""

import random
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from services.core.errors import NotFoundError, UnavailableError
from services.core.names import is_version
from services.core.route_spec import RouteSpec
from services.core.split import POINTS, Ranges, point_of

STABLE, CANARY, PIN, MATCH, EXPLICIT, FALLBACK = "stable", "canary", "pin", "match", "explicit", "fallback"


class Choice(NamedTuple):
    version: str
    arm: str


class Chooser:
    """One model's route, compiled against the versions that have a ready endpoint."""

    def __init__(
        self, model: str, route: RouteSpec | None, default: str | None, known: AbstractSet[str], ready: AbstractSet[str]
    ) -> None:
        """`known`: versions in any live pod's inventory; `default`: serves without a route."""
        self._model = model
        self._known = known
        self._ready = ready
        self._stable = route.stable if route else default
        self._fallback = route.fallback.version if route and route.fallback else None
        self._salt = route.salt if route and route.salt is not None else model
        self._labels: Mapping[str, str] = route.labels if route else {}
        self._pins = {key.encode(): version for key, version in route.pins.items()} if route else {}
        self._matches = tuple((m.header, m.equals, m.version) for m in route.match) if route else ()
        ranges = route.ranges() if route else Ranges(())
        self._ranges = ranges if ranges.arcs() else None
        self.unready = {v for _, _, v in ranges.arcs()} - ready  # their share falls to stable
        self.sticky_by = route.sticky_by if route else None
        is_plain = not (self._pins or self._matches or self._ranges)
        self._only = Choice(self._stable, STABLE) if is_plain and self._stable and self._stable in ready else None

    def choose(self, explicit: str, key: bytes, headers: Mapping[str, str | bytes]) -> Choice:
        """The version for a request. Raises NotFoundError or UnavailableError, with names."""
        if explicit:
            return Choice(self._must_be_ready(self.named(explicit), "asked for"), EXPLICIT)
        if self._only is not None:
            return self._only
        if key and self._pins and (pinned := self._pins.get(key)) is not None:
            return Choice(self._must_be_ready(pinned, "pinned"), PIN)
        for header, equals, version in self._matches:
            if headers.get(header) == equals:
                return Choice(self._must_be_ready(version, f"matched by {header}"), MATCH)
        if self._ranges is not None:
            point = point_of(self._salt, key) if key else random.randrange(POINTS)  # noqa: S311
            canary = self._ranges.version_at(point)
            if canary is not None and canary in self._ready:
                return Choice(canary, CANARY)
        return self.stable()

    def stable(self) -> Choice:
        """The stable version, else the fallback. Raises UnavailableError when neither is ready: never the canary."""
        stable = self._stable
        if stable is not None and stable in self._ready:
            return Choice(stable, STABLE)
        if self._fallback is not None and self._fallback in self._ready:
            return Choice(self._fallback, FALLBACK)
        if stable is None:
            raise UnavailableError(f"model {self._model} has no route, no default_version and no ready version yet")
        raise UnavailableError(
            f"model {self._model}: stable version {stable} has no ready replica; {self._ready_text()}"
        )

    def headers(self) -> set[str]:
        """Those by which versions are chosen."""
        return {header for header, _, _ in self._matches}

    def has_stable(self) -> bool:
        return self._stable in self._ready

    def named(self, name: str) -> str:
        """The version of that number or label. Raises NotFoundError when no pod has it."""
        version = self._labels.get(name)
        if version is None:
            if not is_version(name):
                labels = ", ".join(sorted(self._labels)) or "none"
                raise NotFoundError(f"model {self._model} has no version or label {name!r}; its labels are {labels}")
            version = name
        if version not in self._ready and version not in self._known:
            known = ", ".join(sorted(self._known | self._ready, key=int)) or "none yet"
            raise NotFoundError(f"model {self._model} has no version {version}; its versions are {known}")
        return version

    def versions(self) -> AbstractSet[str]:
        """All that a pod has, or serves."""
        return self._known | self._ready

    def _must_be_ready(self, version: str, why: str) -> str:
        if version in self._ready:
            return version
        raise UnavailableError(
            f"model {self._model}: version {version} ({why}) has no ready replica; {self._ready_text()}"
        )

    def _ready_text(self) -> str:
        return f"ready are: {', '.join(sorted(self._ready, key=int)) or 'none'}"
