"""What operators want, as etcd says it: the last good value of every key, and why others were refused."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from services.chassis.etcd import Change
from services.core import keys
from services.core.model_spec import ModelSpec
from services.core.names import checked_model_name
from services.core.route_spec import RouteSpec


class Refused(NamedTuple):
    key: str
    revision: int
    reason: str
    has_last_good: bool


class Desired:
    """models/ and routes/ as they hold for this pod."""

    def __init__(self) -> None:
        self.specs: dict[str, ModelSpec] = {}
        self.routes: dict[str, RouteSpec] = {}
        self.accepted: dict[str, int] = {}
        self.refused: dict[str, str] = {}
        self.revision = 0

    def apply(self, changes: Iterable[Change]) -> list[Refused]:
        """Take changes in; the values that do not take effect."""
        refused = []
        for change in changes:
            self.revision = max(self.revision, change.revision)
            if change.value is None:
                self._remove(change.key)
                continue
            try:
                self._accept(change.key, change.value, change.revision)
            except ValueError as error:
                self.refused[change.key] = str(error)
                refused.append(Refused(change.key, change.revision, str(error), change.key in self.accepted))
        return refused

    def restore(self, key: str, value: bytes, revision: int) -> bool:
        """Take an earlier revision of a refused key that has no last good value; whether it holds now."""
        if key in self.accepted or key not in self.refused:
            return True
        reason = self.refused[key]
        try:
            self._accept(key, value, revision)
        except ValueError:
            return False
        self.refused[key] = reason
        return True

    def of_pool(self, pool: str) -> Mapping[str, ModelSpec]:
        """The models that pods of `pool` load."""
        return {model: spec for model, spec in self.specs.items() if spec.placement.pool == pool}

    def _accept(self, key: str, value: bytes, revision: int) -> None:
        """Raises ValueError: a BadValueError, or for a name that is none."""
        model = checked_model_name(key.removeprefix(keys.MODELS if key.startswith(keys.MODELS) else keys.ROUTES))
        if key.startswith(keys.MODELS):
            self.specs[model] = ModelSpec.parse(value)
        else:
            self.routes[model] = RouteSpec.parse(value)
        self.accepted[key] = revision
        self.refused.pop(key, None)

    def _remove(self, key: str) -> None:
        self.accepted.pop(key, None)
        self.refused.pop(key, None)
        if key.startswith(keys.MODELS):
            self.specs.pop(key.removeprefix(keys.MODELS), None)
        else:
            self.routes.pop(key.removeprefix(keys.ROUTES), None)
