"""JWTs of one issuer, verified: RS256 and ES256 only, each by a key of its own kind; the time is handed in."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple, Protocol

import jwt

from services.core.errors import ServingError, UnauthenticatedError, UnavailableError
from services.router.access import reasons

_SOON_S = 1.0


class BadTokenError(Exception):
    """Credentials that prove nothing.

    `is_final` unless the same ones may be good in a moment; `is_guess` unless that is our own fault.
    """

    def __init__(self, message: str, reason: str, *, is_final: bool = True, is_guess: bool = True) -> None:
        super().__init__(message)
        self.reason = reason
        self.is_final = is_final
        self.is_guess = is_guess

    def refusal(self) -> ServingError:
        """What the caller reads."""
        if self.is_final:
            return UnauthenticatedError(str(self))
        return UnavailableError(str(self), retry_after_s=_SOON_S)


class SigningKey(NamedTuple):
    """A public key, and the one algorithm that it may verify."""

    algorithm: str
    key: Any


class SigningKeys(Protocol):
    """Where an issuer's keys come from."""

    def find(self, key_id: str | None) -> SigningKey:
        """The key of that id; the only one there is, without an id. Raises BadTokenError."""


class GoodToken(NamedTuple):
    """What a token says, once it is known to be the issuer's."""

    subject: str
    claims: Mapping[str, Any]
    left_s: float  # until it expires


class Tokens:
    """Verifies the tokens of one issuer for one audience."""

    def __init__(self, keys: SigningKeys, issuer: str, audience: str, leeway_s: float) -> None:
        self._keys = keys
        self._issuer = issuer
        self._audience = audience
        self._leeway_s = leeway_s

    def verify(self, text: str, now: datetime) -> GoodToken:
        """What the token says. Raises BadTokenError."""
        try:
            header = jwt.get_unverified_header(text)
        except jwt.PyJWTError:
            raise BadTokenError("the credentials are neither an API key nor a JWT", reasons.BAD) from None
        named = header.get("kid")
        key = self._keys.find(named if isinstance(named, str) else None)
        if header.get("alg") != key.algorithm:
            raise BadTokenError(
                f"the token is signed with {str(header.get('alg'))[:16]}; its key takes {key.algorithm} only",
                reasons.BAD,
            )
        claims = self._decoded(text, key)
        subject = claims.get("sub")
        left_s = self._left_s(claims, now.timestamp())
        return GoodToken(subject if isinstance(subject, str) else "", claims, left_s)

    def _decoded(self, text: str, key: SigningKey) -> Mapping[str, Any]:
        # Its times are checked by _left_s, against the clock that is handed in.
        options: Any = {"require": ["exp"], "verify_exp": False, "verify_nbf": False, "verify_iat": False}
        try:
            return jwt.decode(
                text,
                key.key,
                algorithms=[key.algorithm],
                issuer=self._issuer,
                audience=self._audience,
                options=options,
            )
        except jwt.InvalidAudienceError:
            raise BadTokenError(f"the token is for another audience than {self._audience}", reasons.BAD) from None
        except jwt.InvalidIssuerError:
            raise BadTokenError(f"the token is of another issuer than {self._issuer}", reasons.BAD) from None
        except jwt.InvalidSignatureError:
            raise BadTokenError("the token's signature is wrong", reasons.BAD) from None
        except jwt.MissingRequiredClaimError as error:
            raise BadTokenError(f"the token has no {error.claim}", reasons.BAD) from None
        except (jwt.PyJWTError, ValueError, TypeError):
            raise BadTokenError("the token cannot be read", reasons.BAD) from None

    def _left_s(self, claims: Mapping[str, Any], now: float) -> float:
        """Seconds until the token expires. Raises BadTokenError for one that has, or is not valid yet."""
        expires = _moment(claims, "exp")
        left_s = expires + self._leeway_s - now
        if left_s <= 0:
            raise BadTokenError(f"the token expired {now - expires:.0f} s ago", reasons.EXPIRED)
        for name in ("nbf", "iat"):
            if name in claims and (early_s := _moment(claims, name) - now) > self._leeway_s:
                raise BadTokenError(f"the token is valid in {early_s:.0f} s only, by its {name}", reasons.EXPIRED)
        return left_s


def _moment(claims: Mapping[str, Any], name: str) -> float:
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e12:
        raise BadTokenError(f"the token's {name} is no time in seconds", reasons.BAD)
    return float(value)
