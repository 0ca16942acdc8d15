"""A caller, made or changed as an operator asked; pure: keys and the time are handed in."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from services.cli.errors import CliError
from services.core import api_key
from services.core.api_key import ApiKey
from services.core.caller_spec import CallerSpec, KeyHash
from services.core.spec import BadValueError


@dataclass(frozen=True, slots=True)
class NewCaller:
    """What `turnout callers add` was told; empty = the default of callers/CALLER."""

    roles: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()  # of JWTs
    certificates: tuple[str, ...] = ()  # CN=… or KIND:NAME
    requests_per_s: float | None = None
    rows_per_s: float | None = None
    max_concurrency: int | None = None
    max_priority: int | None = None
    note: str = ""


def made(wanted: NewCaller) -> CallerSpec:
    """The caller, without a key. Raises CliError for what is none."""
    limits = {
        "requests_per_s": wanted.requests_per_s,
        "rows_per_s": wanted.rows_per_s,
        "max_concurrency": wanted.max_concurrency,
        "max_priority": wanted.max_priority,
    }
    fields: dict[str, Any] = {
        "roles": wanted.roles,
        "models": wanted.models,
        "tokens": [{"subject": subject} for subject in wanted.subjects],
        "certificates": [{"subject" if "=" in name else "san": name} for name in wanted.certificates],
        "limits": {name: value for name, value in limits.items() if value is not None},
        "note": wanted.note,
    }
    return _parsed({name: value for name, value in fields.items() if value})


def with_key(caller: CallerSpec, key: ApiKey, now: datetime, expires: datetime | None, note: str = "") -> CallerSpec:
    """The caller with one more key; those of before stay."""
    stored = KeyHash(hmac_sha256=api_key.digest(key), created=now, expires=expires, note=note)
    return caller.model_copy(update={"keys": {**caller.keys, key.id: stored}})


def without_keys(name: str, caller: CallerSpec, key_ids: Sequence[str]) -> CallerSpec:
    """The caller without these keys, given by ID or whole. Raises CliError for one that it has not."""
    gone = {key_id_of(each) for each in key_ids}
    if unknown := gone - caller.keys.keys():
        has = ", ".join(sorted(caller.keys)) or "none"
        raise CliError(f"{name} has no key {min(unknown)}; it has {has}")
    kept = {key_id: key for key_id, key in caller.keys.items() if key_id not in gone}
    return caller.model_copy(update={"keys": kept})


def key_id_of(text: str) -> str:
    """The ID in `text`: of a whole key, too, whose secret is never said again."""
    key = api_key.parse(text)
    return key.id if key else text.removeprefix("tk_").partition(".")[0]


def in_words(caller: CallerSpec) -> str:
    """What a caller may, in one line."""
    limits = caller.limits.model_dump(exclude_defaults=True)
    parts = [f"{', '.join(caller.roles) or 'nothing'} on {', '.join(caller.models) or 'no model'}"]
    parts += [f"{name} {value:g}" for name, value in limits.items()]
    parts += [] if caller.enabled else ["disabled"]
    return "; ".join(parts)


def _parsed(fields: dict[str, Any]) -> CallerSpec:
    try:
        return CallerSpec.parse(orjson.dumps(fields))
    except BadValueError as error:
        raise CliError(f"that is no caller: {error}", code=2) from None
