import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from services.router.access.jwks import BadKeysError, Jwks, parse_keys
from services.router.access.tokens import BadTokenError, GoodToken, SigningKey, Tokens
from tests.support.credentials import AUDIENCE, ISSUER, ec_key, published, signed

NOW = 1_800_000_000.0
EC, RSA = ec_key(), rsa.generate_private_key(public_exponent=65537, key_size=2048)
KEYS = {"e": EC, "r": RSA}


class Published:
    """SigningKeys of a set that is there."""

    def __init__(self, keys: dict[str, Any]) -> None:
        self._keys = parse_keys(published(keys))

    def find(self, key_id: str | None) -> SigningKey:
        return self._keys[key_id or "e"]


def verify(text: str, at: float = NOW) -> GoodToken:
    return Tokens(Published(KEYS), ISSUER, AUDIENCE, leeway_s=30).verify(text, datetime.fromtimestamp(at, UTC))


def token(key: Any = EC, key_id: str = "e", algorithm: str = "ES256", **claims: Any) -> str:
    return signed(key, key_id, algorithm=algorithm, now=NOW, **claims)


def test_tokens_of_both_kinds_are_read() -> None:
    for text in (token(), token(RSA, "r", "RS256")):
        good = verify(text)

        assert (good.subject, good.left_s) == ("shop", 630)
    assert verify(token(aud=["other", AUDIENCE])).subject == "shop"
    assert verify(token(sub=None, groups=["a"])).claims["groups"] == ["a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (token(exp=NOW - 31), "the token expired 31 s ago"),
        (token(nbf=NOW + 31), "the token is valid in 31 s only, by its nbf"),
        (token(iat=NOW + 1000), "the token is valid in 1000 s only, by its iat"),
        (token(exp=None), "the token has no exp"),
        (token(aud=None), "the token has no aud"),
        (token(iss=None), "the token has no iss"),
        (token(aud="other"), "the token is for another audience than turnout"),
        (token(iss="https://evil.example"), "the token is of another issuer than https://issuer.example"),
        (token(exp="soon"), "cannot be read|no time in seconds"),
        (token(exp=1e300), "no time in seconds"),
        (token(ec_key()), "the token's signature is wrong"),
        (token(RSA, "e", "RS256"), "the token is signed with RS256; its key takes ES256 only"),
        (token(EC, "r"), "the token is signed with ES256; its key takes RS256 only"),
        (token(RSA, "r", "RS512"), "the token is signed with RS512; its key takes RS256 only"),
        ("a.b.c", "neither an API key nor a JWT"),
        ("", "neither an API key nor a JWT"),
        ("x" * 5000, "neither an API key nor a JWT"),
    ],
)
def test_what_proves_nothing_is_refused_and_said(text: str, message: str) -> None:
    with pytest.raises(BadTokenError, match=message) as raised:
        verify(text)

    assert raised.value.is_final


def part(value: Any) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def test_no_algorithm_and_a_public_key_as_a_secret_are_refused() -> None:
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "shop", "exp": NOW + 600}
    public = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    forged = f"{part({'alg': 'HS256', 'kid': 'r'})}.{part(claims)}"
    mac = hmac.new(public, forged.encode(), hashlib.sha256).digest()
    texts = [
        f"{part({'alg': 'none', 'kid': 'e'})}.{part(claims)}.",
        f"{part({'alg': 'None'})}.{part(claims)}.",
        f"{forged}.{part(mac)}",
        f"{part({'kid': 'e'})}.{part(claims)}.{part(b'x')}",
        f"{part({'alg': 'ES256', 'kid': 'e', 'crit': ['b64'], 'b64': False})}.{part(claims)}.{part(bytes(64))}",
        f"{part({'alg': 'ES256', 'kid': 'e'})}.{part(claims)}.{part(bytes(64))}",
        f"{part({'alg': 'ES256', 'kid': 'e', 'jwk': {'kty': 'oct', 'k': 'AA'}})}.{part(claims)}.{part(bytes(64))}",
        f"{part([1])}.{part(claims)}.x",
    ]

    for text in texts:
        with pytest.raises(BadTokenError):
            verify(text)


def test_clocks_may_differ_by_the_leeway() -> None:
    assert verify(token(exp=NOW - 29)).left_s == pytest.approx(1)
    assert verify(token(nbf=NOW + 29, iat=NOW + 29)).left_s == 630


def test_of_a_set_only_what_verifies_is_taken() -> None:
    weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)  # noqa: S505 - it is refused
    other_curve = ec.generate_private_key(ec.SECP384R1())
    found = json.loads(published({**KEYS, "weak": weak, "p384": other_curve}))
    found["keys"] += [
        {"kty": "oct", "k": "AAAA", "kid": "secret"},
        {"kty": "EC", "kid": "half"},
        {**found["keys"][0], "kid": "enc", "use": "enc"},
        {**found["keys"][0], "kid": "es512", "alg": "ES512"},
    ]

    assert {name: key.algorithm for name, key in parse_keys(json.dumps(found).encode()).items()} == {
        "e": "ES256",
        "r": "RS256",
    }


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b'{"keys": 3}', b'{"keys": [3]}', b'{"keys": []}', b"[" * 100_000])
def test_what_is_no_set_of_keys_is_refused(raw: bytes) -> None:
    with pytest.raises(BadKeysError):
        parse_keys(raw)


async def test_keys_follow_their_file_and_the_last_good_ones_stay(tmp_path: Any) -> None:
    file = tmp_path / "keys.json"
    keys, changes = Jwks(str(file)), []
    keys.on_change = lambda: changes.append(1)

    def key_fault(key_id: str | None) -> BadTokenError:
        with pytest.raises(BadTokenError) as raised:
            keys.find(key_id)
        return raised.value

    await keys.look()
    assert (key_fault("e").is_final, key_fault("e").is_guess) == (False, False)

    file.write_bytes(published({"e": EC}))
    await keys.look()
    await keys.look()
    assert (keys.find("e").algorithm, keys.find(None).algorithm, len(changes)) == ("ES256", "ES256", 1)
    new = key_fault("new")
    assert (new.is_final, new.is_guess) == (False, True)
    await keys.look()
    assert key_fault("new").is_final

    for bad in (b"oops", b" " * ((1 << 20) + 1)):
        file.write_bytes(bad)
        await keys.look()
        assert keys.find("e").algorithm == "ES256"

    file.write_bytes(published(KEYS))
    await keys.look()
    assert (keys.find("r").algorithm, len(changes)) == ("RS256", 2)
    assert "names no key" in str(key_fault(None))
