"""callers/CALLER in etcd: how a caller proves who it is, and what it may do, where, and how much of it."""

import json
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Annotated, Self

from pydantic import AfterValidator, AwareDatetime, Field, model_validator

from services.core.api_key import KEY_ID_PATTERN
from services.core.roles import Role
from services.core.spec import BadValueError, Spec

_PATTERN = re.compile(r"[A-Za-z0-9*?][A-Za-z0-9._*?-]{0,127}")
_SAN_KINDS = ("DNS", "URI", "email", "IP")


def _checked_pattern(text: str) -> str:
    if _PATTERN.fullmatch(text) is None:
        raise ValueError(
            f"{text[:64]!r} names no models: letters, digits, '.', '_', '-', and '*' or '?' for any others"
        )
    return text


def _checked_san(text: str) -> str:
    kind, colon, name = text.partition(":")
    if not colon or not name or kind not in _SAN_KINDS:
        raise ValueError(
            f"{text[:64]!r} is no alternative name: write KIND:NAME, with a KIND of {', '.join(_SAN_KINDS)}"
        )
    return text


Pattern = Annotated[str, AfterValidator(_checked_pattern)]  # a name, or one with * and ? as in a shell
_KEY_ID = re.compile(KEY_ID_PATTERN)


class KeyHash(Spec):
    """One API key, as far as anybody but its caller knows it."""

    hmac_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")  # of its ID under its secret
    created: AwareDatetime | None = None  # for people
    expires: AwareDatetime | None = None  # null = never
    note: str = Field(default="", max_length=256)  # for people


class Token(Spec):
    """Which JWTs of the issuer that routers trust are the caller's: all that is given must fit."""

    subject: str = ""  # its `sub`
    claims: dict[str, str] = {}  # claim -> its value, or one of its values where it is a list

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.subject and not self.claims:
            raise ValueError('give a subject or claims, such as {"subject": "shop"}')
        return self


class CertificateName(Spec):
    """Which client certificates are the caller's: exactly one of the two."""

    subject: str | None = Field(default=None, min_length=1)  # the whole of it, as RFC 4514 writes it: CN=shop,O=Acme
    san: Annotated[str, AfterValidator(_checked_san)] | None = None  # DNS:NAME, URI:NAME, email:NAME or IP:NAME

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.subject is None) == (self.san is None):
            raise ValueError('give exactly one of {"subject": "CN=shop"}, {"san": "DNS:shop.svc"}')
        return self


class CallerLimits(Spec):
    """What a caller may use of the whole fleet; each live router enforces its share."""

    requests_per_s: float | None = Field(default=None, gt=0, le=1e9)  # for inference; null = any number
    rows_per_s: float | None = Field(default=None, gt=0, le=1e12)  # null = any number
    burst_s: float = Field(default=1.0, ge=0.001, le=3600)  # of those rates that may come at once
    max_concurrency: int | None = Field(default=None, ge=1)  # requests in flight; null = any number
    max_priority: int | None = Field(default=None, ge=1)  # the highest it gets, 1 being the highest of all


class CallerSpec(Spec):
    """One caller: a service, a team, a person."""

    keys: dict[str, KeyHash] = Field(default={}, max_length=64)  # API keys by ID; several while one is replaced
    tokens: tuple[Token, ...] = Field(default=(), max_length=64)  # JWTs of the issuer that routers trust
    certificates: tuple[CertificateName, ...] = Field(default=(), max_length=64)  # shown to a listener with TLS
    roles: tuple[Role, ...] = ("predict",)  # predict, manage, read-metrics, internal: docs/access.md
    models: tuple[Pattern, ...] = Field(default=("*",), max_length=1024)  # that its roles are about: names or globs
    limits: CallerLimits = CallerLimits()  # of the whole fleet
    enabled: bool = True  # false: known, and refused
    note: str = Field(default="", max_length=1024)  # for people

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        """As of every spec; what stands where an ID of a key should be is never shown: it may be a whole key."""
        if not all(map(_KEY_ID.fullmatch, _keys_in(raw))):
            raise BadValueError("keys: an ID is the 16 letters and digits between tk_ and the dot, and nothing else")
        return super().parse(raw)

    def covers(self, model: str) -> bool:
        """Whether the roles of this caller are about `model`."""
        return fits(self.models, model)

    def covers_all(self) -> bool:
        """Whether they are about every model there may be, and so about the fleet itself."""
        return "*" in self.models


def _keys_in(raw: bytes) -> Iterable[str]:
    """What stands as IDs of keys in a value; nothing where it is no such value, which is found out soon."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return ()
    keys = value.get("keys") if isinstance(value, dict) else None
    return keys if isinstance(keys, dict) else ()


def fits(patterns: tuple[str, ...], name: str) -> bool:
    return any(pattern in ("*", name) or fnmatchcase(name, pattern) for pattern in patterns)
