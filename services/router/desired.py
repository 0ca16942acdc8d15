"""What operators have put into etcd, judged: the last good value of every key, and why another was refused."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from services.core import keys
from services.core.caller_spec import CallerSpec
from services.core.model_spec import ModelSpec
from services.core.names import checked_model_name
from services.core.registry import Inventory
from services.core.route_spec import RouteSpec, check_known
from services.core.settings_spec import LOGS, SETTINGS, TRACES, LogSettings, TraceSettings
from services.core.spec import BadValueError, Spec
from services.router.access.callers import taken


class Raw(NamedTuple):
    """A value as it stands in etcd."""

    value: bytes
    revision: int


class Desired:
    """Feeds on raw keys; holds the typed values that are in effect. Pure: no I/O, no clock."""

    def __init__(self) -> None:
        self.models: dict[str, ModelSpec] = {}
        self.routes: dict[str, RouteSpec] = {}
        self.callers: dict[str, CallerSpec] = {}
        self.settings: dict[str, Spec] = {}
        self.inventory: dict[str, Inventory] = {}  # by runtime instance
        self.accepted: dict[str, int] = {}  # key -> mod revision in effect
        self.refused: dict[str, str] = {}  # key -> reason
        self._raw: dict[str, Raw] = {}

    def apply(self, changes: Iterable[tuple[str, bytes | None, int]]) -> None:
        """Take (key, value or None, revision) changes; judge what they touch, and again what was refused."""
        touched: set[str] = set()
        for key, value, revision in changes:
            if key.startswith(keys.STATUS + "runtime/"):
                self._take_inventory(key, value)
            elif key.startswith((keys.MODELS, keys.ROUTES, keys.CALLERS, keys.SETTINGS)):
                touched.add(key)
                if value is None:
                    self._drop(key)
                else:
                    self._raw[key] = Raw(value, revision)
        for key in sorted(touched | set(self.refused)):  # models/ before routes/
            if key in self._raw:
                self._judge(key)

    def known_versions(self, model: str) -> set[str]:
        """Versions of a model in any live pod's inventory."""
        return {version for inventory in self.inventory.values() for version in inventory.models.get(model, {})}

    def traces(self) -> TraceSettings:
        """Which requests are kept as traces, as far as anybody has said."""
        found = self.settings.get(TRACES)
        return found if isinstance(found, TraceSettings) else TraceSettings()

    def logs(self) -> LogSettings:
        """What routers are to say of themselves, as far as anybody has said."""
        found = self.settings.get(LOGS)
        return found if isinstance(found, LogSettings) else LogSettings()

    def refused_at(self) -> dict[str, int]:
        """Refused key -> revision of the value that was refused."""
        return {key: self._raw[key].revision for key in self.refused if key in self._raw}

    def missing(self) -> list[tuple[str, int]]:
        """(key, revision) of refused keys that have no earlier good value in effect."""
        return [(key, self._raw[key].revision) for key in self.refused if key not in self.accepted and key in self._raw]

    def accept_earlier(self, key: str, value: bytes, revision: int) -> bool:
        """Put an earlier value of a refused key into effect, if it is good."""
        return self._try(key, value, revision) is None

    def _judge(self, key: str) -> None:
        raw = self._raw[key]
        reason = self._try(key, raw.value, raw.revision)
        if reason is None:
            self.refused.pop(key, None)
        else:
            self.refused[key] = reason

    def _try(self, key: str, value: bytes, revision: int) -> str | None:
        """Put a value into effect, or say why not."""
        folder, _, name = key.partition("/")
        try:
            checked_model_name(name)
            json.loads(value)
            if folder == "models":
                self.models[name] = ModelSpec.parse(value)
            elif folder == "callers":
                caller = CallerSpec.parse(value)
                if why := taken(name, caller, self.callers):
                    return why
                self.callers[name] = caller
            elif folder == "settings":
                self.settings[name] = setting_kind(name).parse(value)
            else:
                route = RouteSpec.parse(value)
                check_known(name, route, self.known_versions(name))
                self.routes[name] = route
        except json.JSONDecodeError as error:
            return f"not JSON: {error}"
        except (ValueError, RecursionError) as error:  # BadValueError; not UTF-8; a number of thousands of digits
            return str(error)
        self.accepted[key] = revision
        return None

    def _drop(self, key: str) -> None:
        folder, _, name = key.partition("/")
        values: Mapping[str, dict[str, Any]] = {
            "models": self.models,
            "routes": self.routes,
            "callers": self.callers,
            "settings": self.settings,
        }
        values[folder].pop(name, None)
        for where in (self._raw, self.accepted, self.refused):
            where.pop(key, None)

    def _take_inventory(self, key: str, value: bytes | None) -> None:
        instance, _, what = key.removeprefix(keys.STATUS + "runtime/").rpartition("/")
        if what != "inventory":
            return
        self.inventory.pop(instance, None)
        if value is not None:
            try:
                self.inventory[instance] = Inventory.parse(value)
            except BadValueError:
                return  # a pod of another release: its versions are judged by what it serves


def setting_kind(name: str) -> type[Spec]:
    """What settings/NAME holds. Raises BadValueError."""
    kind = SETTINGS.get(name)
    if kind is None:
        raise BadValueError(f"settings/{name} is unknown; there are {', '.join(SETTINGS)}")
    return kind
