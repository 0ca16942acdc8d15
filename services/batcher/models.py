"""models/ in etcd as this batcher takes it: the last good value of each, and what was refused and why."""

from collections.abc import Callable

import structlog

from services.chassis.etcd import Change
from services.core import keys
from services.core.model_spec import ModelSpec
from services.core.names import checked_model_name
from services.core.registry import ConfigStatus

log = structlog.get_logger()
_DEFAULT = ModelSpec()


class Models:
    """Specs by model name; a bad value never takes effect."""

    def __init__(self, on_change: Callable[[ConfigStatus], None]) -> None:
        self._specs: dict[str, ModelSpec] = {}
        self._on_change = on_change
        self._accepted: dict[str, int] = {}
        self._refused: dict[str, str] = {}

    def spec(self, model: str, version: str) -> ModelSpec:
        """What holds for a version; the defaults where nothing is known of the model."""
        return self._specs.get(model, _DEFAULT).for_version(version)

    def apply(self, changes: list[Change]) -> None:
        """Take changes of models/ in."""
        revision = 0
        for key, value, changed_at in changes:
            revision = max(revision, changed_at)
            name = key.removeprefix(keys.MODELS)
            if value is None:
                self._specs.pop(name, None)
                self._accepted.pop(key, None)
                self._refused.pop(key, None)
            else:
                self._take(key, name, value, changed_at)
        self._on_change(ConfigStatus(revision=revision, accepted=self._accepted, refused=self._refused))

    def _take(self, key: str, name: str, value: bytes, revision: int) -> None:
        try:
            self._specs[checked_model_name(name)] = ModelSpec.parse(value)
        except ValueError as error:  # a BadValueError, or a name that is none
            self._refused[key] = str(error)
            log.warning("config_refused", key=key, revision=revision, reason=str(error))
        else:
            self._refused.pop(key, None)
            self._accepted[key] = revision
