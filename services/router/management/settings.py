"""Trace and log settings of the fleet in Triton's words, whichever protocol asks for them."""

from collections.abc import Callable, Collection, Mapping

from services.chassis.etcd import EtcdClient
from services.core.errors import NotFoundError
from services.core.settings_spec import LOGS, TRACES, LogLevel, LogSettings, TraceSetting, TraceSettings
from services.fleet.settings import SettingsStore
from services.router.management import log_words, trace_words


class Settings:
    """`models`: those that there are. `own_ratio`, `own_level`: what this router was started with."""

    def __init__(
        self, client: EtcdClient, models: Callable[[], Collection[str]], *, own_ratio: float, own_level: LogLevel
    ) -> None:
        self._store = SettingsStore(client)
        self._models = models
        self._own_ratio = own_ratio
        self._own_level = own_level

    async def traces(self, model: str, given: Mapping[str, trace_words.Values]) -> dict[str, list[str]]:
        """The trace settings of a model, or of all (""), after what is given. Raises ServingError."""
        if model and model not in self._models():
            raise NotFoundError(f"model {model[:128]!r} is unknown")
        if not given:
            settings = await self._store.get(TRACES, TraceSettings)
        else:
            settings = await self._store.change(TRACES, TraceSettings, lambda before: _changed(before, model, given))
        found = settings.of(model)
        enabled = True if found.enabled is None else found.enabled
        ratio = self._own_ratio if found.ratio is None else found.ratio
        return trace_words.in_tritons_words(TraceSetting(enabled=enabled, ratio=ratio))

    async def logs(self, given: Mapping[str, log_words.Value | None]) -> dict[str, log_words.Value]:
        """The log settings after what is given. Raises ServingError."""
        if not given:
            settings = await self._store.get(LOGS, LogSettings)
        else:
            settings = await self._store.change(
                LOGS,
                LogSettings,
                lambda before: LogSettings(level=log_words.changed(before.level or self._own_level, given)),
            )
        return log_words.in_tritons_words(settings.level or self._own_level)


def _changed(before: TraceSettings, model: str, given: Mapping[str, trace_words.Values]) -> TraceSettings:
    if not model:
        wide = trace_words.changed(TraceSetting(enabled=before.enabled, ratio=before.ratio), given)
        return before.model_copy(update=wide.model_dump())
    own = trace_words.changed(before.models.get(model, TraceSetting()), given)
    models = {name: each for name, each in before.models.items() if name != model}
    if own != TraceSetting():
        models[model] = own
    return before.model_copy(update={"models": models})
