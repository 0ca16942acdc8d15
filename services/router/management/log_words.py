"""Triton's log settings <-> settings/logs; pure.

Its switches are one level here: log_error only is error, with log_warning warning, with log_info info, with a
log_verbose_level above 0 debug; with none of them, critical.
"""

from collections.abc import Mapping

from services.core.errors import InvalidRequestError
from services.core.settings_spec import LogLevel

VERBOSE, FILE, FORMAT = "log_verbose_level", "log_file", "log_format"
_SWITCHES = ("log_error", "log_warning", "log_info")  # each of which needs those before it
_BY_SWITCHES: tuple[LogLevel, ...] = ("critical", "error", "warning", "info")
_OUR_FORMAT = "ISO8601"
_MOST_VERBOSE = 1 << 32

Value = bool | int | str


def in_tritons_words(level: LogLevel) -> dict[str, Value]:
    """What holds, every part of it said."""
    on = len(_SWITCHES) if level == "debug" else _BY_SWITCHES.index(level)
    switches = {name: index < on for index, name in enumerate(_SWITCHES)}
    return {FILE: "", **switches, VERBOSE: int(level == "debug"), FORMAT: _OUR_FORMAT}


def changed(before: LogLevel, given: Mapping[str, Value | None]) -> LogLevel:
    """The level after what is given. Raises InvalidRequestError for what cannot be set, by its name."""
    words = in_tritons_words(before)
    for name, value in given.items():
        if name in _SWITCHES:
            words[name] = _switch(name, value)
        elif name == VERBOSE:
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST_VERBOSE:
                raise InvalidRequestError(f"{VERBOSE} is {value!r}; it takes a whole number, 0 = off")
            words[VERBOSE] = value
        elif name == FILE:
            if value != "":
                raise InvalidRequestError(f"{FILE} cannot be set: each service logs to its standard error")
        elif name == FORMAT:
            if value != _OUR_FORMAT:
                raise InvalidRequestError(f"{FORMAT} is {value!r}: times are written as {_OUR_FORMAT} only")
        else:
            known = ", ".join((*_SWITCHES, VERBOSE))
            raise InvalidRequestError(f"log setting {name[:64]!r} is unknown; there are {known}")
    return _level(words)


def _level(words: Mapping[str, Value]) -> LogLevel:
    on = [name for name in _SWITCHES if words[name]]
    if list(_SWITCHES[: len(on)]) != on:
        missing = next(name for name in _SWITCHES if not words[name])
        raise InvalidRequestError(f"{on[-1]} is on and {missing} is off: the levels build on each other, set both")
    if words[VERBOSE]:
        if len(on) < len(_SWITCHES):
            raise InvalidRequestError(f"{VERBOSE} is on and {_SWITCHES[-1]} is off: set both")
        return "debug"
    return _BY_SWITCHES[len(on)]


def _switch(name: str, value: Value | None) -> bool:
    if not isinstance(value, bool):
        raise InvalidRequestError(f"{name} is {value!r}: true or false")
    return value
