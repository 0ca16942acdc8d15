"""The public keys of an issuer of JWTs: a JWK set in a file or at a URL, read again and again, never on the loop."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import HTTPRedirectHandler, build_opener

import jwt
import structlog
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from services.router.access import reasons
from services.router.access.tokens import BadTokenError, SigningKey

log = structlog.get_logger()
_FILE_EVERY_S, _URL_EVERY_S = 2.0, 300.0
_FILE_PAUSE_S, _URL_PAUSE_S = 0.2, 5.0  # between two looks, whoever asks
_TIMEOUT_S = 5.0
_SEEK_AGAIN_S, _MOST_SOUGHT = 60.0, 256
_MOST_BYTES = 1 << 20
_LEAST_RSA_BITS = 2048


class BadKeysError(ValueError):
    """A JWK set that holds no key for us."""


class Jwks:
    """SigningKeys that follow their source; the last good ones stay when it fails."""

    on_change: Callable[[], None]  # set before it runs

    def __init__(self, source: str) -> None:
        self._source = source
        self._is_url = "://" in source
        self._keys: dict[str, SigningKey] = {}
        self._raw = b""
        self._fault = "they were not read yet"
        self._wanted = asyncio.Event()
        self._looked_s = -float("inf")  # monotonic, when the last look that is over began
        self._sought: dict[str, float] = {}  # ids that tokens named and nobody knew, and when

    async def run(self) -> None:
        """Follow the source, for ever."""
        every_s, pause_s = (_URL_EVERY_S, _URL_PAUSE_S) if self._is_url else (_FILE_EVERY_S, _FILE_PAUSE_S)
        while True:
            await self.look()
            await asyncio.sleep(pause_s)
            try:
                async with asyncio.timeout(every_s if self._keys else pause_s):
                    await self._wanted.wait()
            except TimeoutError:
                continue

    async def look(self) -> None:
        """Read the source once."""
        self._wanted.clear()
        began_s = time.monotonic()
        try:
            raw = await asyncio.to_thread(_fetched if self._is_url else _read, self._source)
            if raw != self._raw:
                self._keys = parse_keys(raw)
                self._raw = raw
                log.info("signing_keys_read", keys=len(self._keys))
                self.on_change()
            self._fault = ""
        except (OSError, ValueError) as error:
            if self._fault != str(error):
                log.warning("signing_keys_failed", source=self._source, reason=str(error)[:200])
            self._fault = str(error)
        self._looked_s = began_s

    def find(self, key_id: str | None) -> SigningKey:
        keys = self._keys
        if not keys:
            self._wanted.set()
            fault = "the issuer's keys could not be read yet: try again"
            raise BadTokenError(fault, reasons.KEYS, is_final=False, is_guess=False)
        if key_id is None:
            if len(keys) == 1:
                return next(iter(keys.values()))
            raise BadTokenError(f"the token names no key (kid), and its issuer has {len(keys)}", reasons.BAD)
        key = keys.get(key_id)
        if key is not None:
            return key
        if self._seek(key_id, time.monotonic()):
            raise BadTokenError("the token's key is not known yet: try again", reasons.KEYS, is_final=False)
        raise BadTokenError("the token is signed by a key that its issuer does not have", reasons.BAD)

    def _seek(self, key_id: str, now_s: float) -> bool:
        """Have a new key looked for; False when that was done a moment ago, in vain."""
        sought_s = self._sought.get(key_id, -_SEEK_AGAIN_S)
        if now_s - sought_s >= _SEEK_AGAIN_S:
            if len(self._sought) >= _MOST_SOUGHT:
                self._sought.clear()
            self._sought[key_id] = sought_s = now_s
        if self._looked_s > sought_s:
            return False
        self._wanted.set()
        return True


def parse_keys(raw: bytes) -> dict[str, SigningKey]:
    """The keys of a JWK set that sign with RS256 or ES256, by id. Raises BadKeysError when there is none."""
    try:
        listed = json.loads(raw)["keys"]
        found = {str(each.get("kid", "")): key for each in listed if (key := _key(each)) is not None}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BadKeysError('it is no JWK set, which looks like {"keys": [...]}') from None
    if not found:
        raise BadKeysError(f"none of its {len(listed)} keys verifies RS256 (RSA, 2048 bits or more) or ES256 (P-256)")
    return found


def _key(value: dict[str, Any]) -> SigningKey | None:
    """One public key; None for one of another kind or use."""
    if value.get("use", "sig") != "sig":
        return None
    algorithm = {"RSA": "RS256", "EC": "ES256"}.get(value.get("kty", ""))
    if algorithm is None or value.get("alg", algorithm) != algorithm:
        return None
    try:
        key = jwt.PyJWK({**value, "alg": algorithm}).key
    except (jwt.PyJWTError, ValueError):
        return None
    if isinstance(key, RSAPublicKey) and key.key_size >= _LEAST_RSA_BITS:
        return SigningKey(algorithm, key)
    if isinstance(key, EllipticCurvePublicKey) and key.curve.name == "secp256r1":
        return SigningKey(algorithm, key)
    return None


def _read(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return _bounded(file.read(_MOST_BYTES + 1))


class _NoRedirects(HTTPRedirectHandler):
    """A source that sends us elsewhere is not the one that was configured."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _fetched(url: str) -> bytes:
    with build_opener(_NoRedirects).open(url, timeout=_TIMEOUT_S) as answer:
        return _bounded(answer.read(_MOST_BYTES + 1))


def _bounded(raw: bytes) -> bytes:
    if len(raw) > _MOST_BYTES:
        raise BadKeysError(f"it has more than {_MOST_BYTES} bytes")
    return raw
