"""What callers prove themselves with: API keys, and an issuer of JWTs that changes its keys."""

import json
import secrets
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from services.core import api_key
from services.core.api_key import RANDOM_BYTES, ApiKey

ISSUER, AUDIENCE = "https://issuer.example", "turnout"
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def new_key() -> ApiKey:
    return api_key.make(secrets.token_bytes(RANDOM_BYTES))


def stored(*keys: ApiKey, **fields: Any) -> dict[str, Any]:
    """`keys` of a value of callers/CALLER."""
    return {key.id: {"hmac_sha256": api_key.digest(key), **fields} for key in keys}


def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def published(keys: dict[str, PrivateKey]) -> bytes:
    """A JWK set of their public halves."""
    made = []
    for name, key in keys.items():
        kind: Any = (
            jwt.algorithms.ECAlgorithm if isinstance(key, ec.EllipticCurvePrivateKey) else jwt.algorithms.RSAAlgorithm
        )
        made.append({**kind.to_jwk(key.public_key(), as_dict=True), "kid": name, "use": "sig"})
    return json.dumps({"keys": made}).encode()


def signed(key: Any, key_id: str | None, *, algorithm: str = "ES256", now: float | None = None, **claims: Any) -> str:
    """A token of ISSUER for AUDIENCE, good for ten minutes; a claim that is None is left out."""
    at = time.time() if now is None else now
    body = {"iss": ISSUER, "aud": AUDIENCE, "sub": "shop", "exp": at + 600, **claims}
    headers = {"kid": key_id} if key_id is not None else {}
    kept = {name: value for name, value in body.items() if value is not None}
    return jwt.encode(kept, key, algorithm=algorithm, headers=headers)


class Issuer:
    """Publishes one key at a time, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._count = 0
        self.rotate()

    def rotate(self) -> None:
        """Sign with another key from now on; the one of before is not published any more."""
        self._count += 1
        self._key = ec_key()
        beside = self._path.with_suffix(".new")
        beside.write_bytes(published({self.key_id: self._key}))
        beside.replace(self._path)

    @property
    def key_id(self) -> str:
        return f"key-{self._count}"

    def token(self, **claims: Any) -> str:
        return signed(self._key, self.key_id, **claims)
