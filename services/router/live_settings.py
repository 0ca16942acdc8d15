"""settings/… in force: what changes there changes this process while it runs."""

import structlog

from services.chassis import logs
from services.core.settings_spec import LogLevel
from services.router.desired import Desired
from services.router.tracing import TraceKeeper

log = structlog.get_logger()


class LiveSettings:
    """Follows the settings that hold; `own_level` is this process's own where they say nothing."""

    def __init__(self, desired: Desired, keeper: TraceKeeper, own_level: LogLevel) -> None:
        self._desired = desired
        self._keeper = keeper
        self._own_level = self._level = own_level

    def follow(self) -> None:
        """Take what holds now; called whenever anything in etcd has changed."""
        self._keeper.follow(self._desired.traces())
        level = self._desired.logs().level or self._own_level
        if level != self._level:
            self._level = level
            logs.set_level(level)
            log.info("log_level_changed", to=level)
