"""API keys: tk_ID.SECRET. What is kept of one is its ID and an HMAC; the secret is shown once, to who made it."""

import hmac
import re
from base64 import b32encode, urlsafe_b64encode
from dataclasses import dataclass, field
from hashlib import sha256

RANDOM_BYTES = 42  # that make one key: 10 of its ID, 32 of its secret
KEY_ID_PATTERN = r"[a-z2-7]{16}"
_ID_BYTES = 10
_KEY = re.compile(rf"tk_({KEY_ID_PATTERN})\.([A-Za-z0-9_-]{{43}})")
_PURPOSE = b"turnout api key "


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as its caller sends it; what prints it prints no secret."""

    id: str
    secret: str = field(repr=False)

    def text(self) -> str:
        """The whole key; the only way to see its secret."""
        return f"tk_{self.id}.{self.secret}"


def parse(text: str) -> ApiKey | None:
    """The key in `text`; None when it is none."""
    found = _KEY.fullmatch(text)
    return ApiKey(found[1], found[2]) if found else None


def make(random: bytes) -> ApiKey:
    """A new key out of RANDOM_BYTES that nobody can guess."""
    if len(random) != RANDOM_BYTES:
        raise ValueError(f"a key is made of {RANDOM_BYTES} random bytes, not {len(random)}")
    identity = b32encode(random[:_ID_BYTES]).decode().lower()
    return ApiKey(identity, urlsafe_b64encode(random[_ID_BYTES:]).decode().rstrip("="))


def digest(key: ApiKey) -> str:
    """What is stored: HMAC-SHA-256 of the ID under the secret, in hex.

    The secret has 256 random bits: nothing leads from this back to it, and no slow hash is needed.
    """
    return hmac.new(key.secret.encode(), _PURPOSE + key.id.encode(), sha256).hexdigest()


def matches(key: ApiKey, stored: str) -> bool:
    """Whether `stored` is this key's digest, in a time that does not tell how much of it is."""
    return hmac.compare_digest(digest(key), stored)
