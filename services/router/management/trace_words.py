"""Triton's trace settings <-> settings/traces; pure.

trace_level TIMESTAMPS or OFF is `enabled`, trace_rate N (of N requests one is kept) is `ratio` 1/N. Slow and failed
requests are kept besides, unless the level is OFF. Spans always go to the collector of setting OTLP_ENDPOINT.
"""

import math
from collections.abc import Mapping, Sequence

from services.core.errors import InvalidRequestError
from services.core.settings_spec import TraceSetting

LEVEL, RATE, COUNT, MODE, RATIO = "trace_level", "trace_rate", "trace_count", "trace_mode", "trace_ratio"
_ON, _OFF, _NO_LIMIT, _OUR_MODE = "TIMESTAMPS", "OFF", "-1", "opentelemetry"
_FILES = {"trace_file", "log_frequency"}  # of a mode that writes files

Values = Sequence[str]  # of one setting; none = it falls back to the wider setting


def in_tritons_words(setting: TraceSetting) -> dict[str, list[str]]:
    """What holds, every part of it said."""
    ratio = setting.ratio or 0.0
    return {
        LEVEL: [_ON if setting.enabled else _OFF],
        RATE: [str(round(1 / ratio)) if ratio else "0"],
        COUNT: [_NO_LIMIT],
        MODE: [_OUR_MODE],
        RATIO: [f"{ratio:g}"],
    }


def changed(before: TraceSetting, given: Mapping[str, Values]) -> TraceSetting:
    """`before` with what is given. Raises InvalidRequestError for what cannot be set, by its name."""
    if RATE in given and RATIO in given:
        raise InvalidRequestError(f"{RATE} and {RATIO} are the same setting: give one of them")
    fields = before.model_dump()
    for name, values in given.items():
        if name == LEVEL:
            fields["enabled"] = _enabled(values)
        elif name in (RATE, RATIO):
            fields["ratio"] = _ratio(name, values)
        elif name == COUNT:
            _expect(name, values, _NO_LIMIT, "how many requests are kept has no limit of its own")
        elif name == MODE:
            _expect(name, values, _OUR_MODE, "the mode cannot be changed")
        elif name in _FILES:
            raise InvalidRequestError(f"{name} cannot be set: spans go to an OpenTelemetry collector, not to a file")
        else:
            known = f"{LEVEL}, {RATE}, {COUNT}, {RATIO}"
            raise InvalidRequestError(f"trace setting {name[:64]!r} is unknown; there are {known}")
    return before.model_validate(fields)


def _enabled(values: Values) -> bool | None:
    if not values:
        return None
    if list(values) not in ([_ON], [_OFF]):
        raise InvalidRequestError(f"{LEVEL} is {_shown(values)}: {_ON} or {_OFF}; tensors are not traced, but recorded")
    return values[0] == _ON


def _ratio(name: str, values: Values) -> float | None:
    if not values:
        return None
    ratio = _number(name, values[0]) if len(values) == 1 else math.nan
    if not 0 <= ratio <= 1:
        takes = "a number, 0 to 1" if name == RATIO else "a whole number: of so many requests one is kept, 0 = none"
        raise InvalidRequestError(f"{name} is {_shown(values)}; it takes {takes}")
    return ratio


def _number(name: str, text: str) -> float:
    """The ratio that `text` means; NaN for what means none."""
    try:
        if name == RATIO:
            return float(text)
        rate = int(text)
    except ValueError:
        return math.nan
    return 1 / rate if rate else 0.0


def _expect(name: str, values: Values, only: str, why: str) -> None:
    if values and list(values) != [only]:
        raise InvalidRequestError(f"{name} is {_shown(values)}: {why}, so it takes {only}")


def _shown(values: Values) -> str:
    return ", ".join(values)[:64] or "empty"
