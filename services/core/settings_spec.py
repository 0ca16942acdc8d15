"""settings/… in etcd: what holds for a whole fleet, and may change while it runs."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from services.core.names import ModelName
from services.core.spec import Spec

LogLevel = Literal["debug", "info", "warning", "error", "critical"]
TRACES, LOGS = "traces", "logs"  # the keys' names


class TraceSetting(Spec):
    """Which requests are kept as traces; null = as the wider setting says, at last the router's own."""

    enabled: bool | None = None  # false: none, not even slow and failed ones
    ratio: float | None = Field(default=None, ge=0, le=1)  # besides slow and failed ones


class TraceSettings(TraceSetting):
    """settings/traces: for every model, and for single ones."""

    models: dict[ModelName, TraceSetting] = {}

    def of(self, model: str) -> TraceSetting:
        """What holds for one model; "" = for those that say nothing of their own."""
        own = self.models.get(model, TraceSetting())
        return TraceSetting(
            enabled=self.enabled if own.enabled is None else own.enabled,
            ratio=self.ratio if own.ratio is None else own.ratio,
        )


class LogSettings(Spec):
    """settings/logs: what routers say of themselves; null = as each of them was started."""

    level: LogLevel | None = None


SETTINGS: Mapping[str, type[Spec]] = {TRACES: TraceSettings, LOGS: LogSettings}
