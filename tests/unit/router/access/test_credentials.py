from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import pytest

from services.core.api_key import ApiKey
from services.core.caller_spec import CallerSpec
from services.core.errors import QuotaError, UnauthenticatedError, UnavailableError
from services.router.access.caller import Caller
from services.router.access.callers import Callers
from services.router.access.credentials import Authenticator
from services.router.access.jwks import parse_keys
from services.router.access.tokens import BadTokenError, SigningKey, Tokens
from tests.support.credentials import AUDIENCE, ISSUER, ec_key, new_key, published, signed, stored

S = 1_000_000_000
NOW = datetime(2027, 1, 15, tzinfo=UTC)
SIGNER = ec_key()


@cache  # as one signature is never the same as another of the same
def token_of(**claims: Any) -> str:
    return signed(SIGNER, "e", now=NOW.timestamp(), **claims)


class Keys:
    """SigningKeys that can be counted, and be away."""

    def __init__(self) -> None:
        self._keys = parse_keys(published({"e": SIGNER}))
        self.asked = 0
        self.fault: BadTokenError | None = None

    def find(self, key_id: str | None) -> SigningKey:
        self.asked += 1
        if self.fault:
            raise self.fault
        return self._keys[key_id or "e"]


class Door:
    """An Authenticator, its callers and its clocks."""

    def __init__(self, *, tokens: bool = False, **callers: dict[str, Any]) -> None:
        self.callers = Callers()
        self.keys = Keys()
        self.refused: list[str] = []
        self.wall, self.now_ns = NOW, 1
        taken = Tokens(self.keys, ISSUER, AUDIENCE, 0) if tokens else None
        self.authenticator = Authenticator(
            self.callers, taken, lambda _, reason: self.refused.append(reason), lambda: self.wall
        )
        self.follow(**callers)

    def follow(self, **callers: dict[str, Any]) -> None:
        self.callers.follow({name: CallerSpec.model_validate(spec) for name, spec in callers.items()})
        self.authenticator.forget()

    def let(self, *, peer: str = "10.0.0.1:999", certificate: bytes = b"", **headers: str | bytes) -> Caller | None:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.authenticator.identify(sent, peer, certificate, self.now_ns)

    def key(self, key: ApiKey) -> str:
        caller = self.let(authorization=f"Bearer {key.text()}")
        return caller.name if caller else ""

    def token(self, **claims: Any) -> str:
        text = token_of(**claims)
        caller = self.let(authorization=f"Bearer {text}")
        return caller.name if caller else ""


def test_a_key_says_who_calls_in_either_header() -> None:
    key = new_key()
    door = Door(shop={"keys": stored(key)})

    callers = [
        door.let(authorization=f"Bearer {key.text()}"),
        door.let(authorization=f"bearer   {key.text()} "),
        door.let(x_api_key=key.text()),
        door.let(x_api_key=key.text().encode()),
    ]

    assert [caller.name if caller else "" for caller in callers] == ["shop"] * 4
    assert door.let() is None
    assert door.let(authorization="", x_api_key="") is None


def test_what_was_wrong_in_one_header_may_be_right_in_the_other() -> None:
    key = new_key()
    door = Door(shop={"keys": stored(key)})
    with pytest.raises(UnauthenticatedError, match="authorization is of a kind not known here"):
        door.let(authorization=key.text())

    caller = door.let(x_api_key=key.text())

    assert caller is not None
    assert caller.name == "shop"


def test_what_is_verified_while_callers_change_is_not_remembered() -> None:
    door = Door(tokens=True, shop={"tokens": [{"subject": "shop"}]})
    find = door.keys.find

    def slowly(key_id: str | None) -> SigningKey:
        door.authenticator.forget()  # as the loop does while a scrape is examined on its thread
        return find(key_id)

    door.keys.find = slowly  # type: ignore[method-assign]

    assert [door.token() for _ in range(2)] == ["shop"] * 2
    assert door.keys.asked == 2


def test_where_nobody_is_known_what_is_sent_says_nothing() -> None:
    door = Door()

    assert door.let(authorization="Bearer sk-whatever", x_api_key="x") is None
    door.follow(shop={})
    with pytest.raises(UnauthenticatedError, match=r"no API key, which looks like tk_ID\.SECRET"):
        door.let(authorization="Bearer sk-whatever")


def test_a_change_of_callers_holds_at_once() -> None:
    old, new = new_key(), new_key()
    door = Door(shop={"keys": stored(old)})
    with pytest.raises(UnauthenticatedError):
        door.key(new)
    assert door.key(old) == "shop"

    door.follow(shop={"keys": stored(new)})

    assert door.key(new) == "shop"
    with pytest.raises(UnauthenticatedError, match="not known here: it may have been revoked"):
        door.key(old)


def test_a_key_ends_when_it_says_even_if_it_was_verified_before() -> None:
    key = new_key()
    door = Door(shop={"keys": stored(key, expires=NOW + timedelta(seconds=60))})
    assert door.key(key) == "shop"

    door.wall, door.now_ns = NOW + timedelta(seconds=61), 61 * S

    with pytest.raises(UnauthenticatedError, match="expired at 2027-01-15T00:01:00"):
        door.key(key)
    assert door.refused == ["expired"]


def test_an_unknown_key_and_a_wrong_secret_are_told_apart_by_nobody() -> None:
    key = new_key()
    door = Door(shop={"keys": stored(key)})

    with pytest.raises(UnauthenticatedError) as wrong:
        door.key(ApiKey(key.id, new_key().secret))
    with pytest.raises(UnauthenticatedError) as unknown:
        door.key(new_key())

    assert str(wrong.value) == str(unknown.value)
    assert door.refused == ["unknown_credentials"] * 2


def test_a_token_is_verified_once_and_again_when_it_ends() -> None:
    door = Door(tokens=True, shop={"tokens": [{"subject": "shop"}]})

    assert [door.token(exp=NOW.timestamp() + 60) for _ in range(3)] == ["shop"] * 3
    assert door.keys.asked == 1

    door.wall, door.now_ns = NOW + timedelta(seconds=61), 61 * S
    with pytest.raises(UnauthenticatedError, match="the token expired 1 s ago"):
        door.token(exp=NOW.timestamp() + 60)
    with pytest.raises(UnauthenticatedError, match="belongs to no caller"):
        door.token(sub="nobody")


def test_a_bad_token_is_not_verified_again_for_a_while() -> None:
    door = Door(tokens=True)
    for _ in range(5):
        with pytest.raises(UnauthenticatedError):
            door.token(aud="other")
    assert door.keys.asked == 1

    door.now_ns += 11 * S
    with pytest.raises(UnauthenticatedError):
        door.token(aud="other")
    assert door.keys.asked == 2


def test_while_the_issuers_keys_are_away_its_tokens_are_no_guesses() -> None:
    door = Door(tokens=True, shop={"tokens": [{"subject": "shop"}]})
    door.keys.fault = BadTokenError("away", "no_signing_keys", is_final=False, is_guess=False)
    for number in range(200):
        with pytest.raises(UnavailableError, match="away"):
            door.token(jti=str(number))

    door.keys.fault = None
    assert door.token(jti="0") == "shop"


def guess(door: Door, peer: str) -> type[Exception]:
    try:
        door.let(peer=peer, x_api_key=new_key().text())
    except (UnauthenticatedError, QuotaError) as error:
        return type(error)
    raise AssertionError("a guess was right")


def test_who_guesses_is_slowed_down_whatever_port_it_comes_from() -> None:
    key = new_key()
    door = Door(tokens=True, shop={"keys": stored(key), "tokens": [{"subject": "shop"}]})

    tried = [guess(door, f"ipv4:10.0.0.1:{port}") for port in range(1000, 1060)]

    assert tried == [UnauthenticatedError] * 50 + [QuotaError] * 10
    assert guess(door, "ipv4:10.0.0.2:1000") is UnauthenticatedError
    assert door.let(peer="ipv4:10.0.0.1:2", x_api_key=key.text())
    asked = door.keys.asked
    with pytest.raises(QuotaError) as slowed:
        door.let(peer="ipv4:10.0.0.1:3", authorization=f"Bearer {signed(SIGNER, 'e')}")
    assert (door.keys.asked, slowed.value.retry_after_s) == (asked, 0.1)
    door.now_ns += S
    assert guess(door, "ipv4:10.0.0.1:9") is UnauthenticatedError


@pytest.mark.parametrize("peer", ["127.0.0.1", "ipv6:[::1]:50", "::1", "unix:", "unix:/tmp/x", ""])
def test_any_way_to_write_an_address_will_do(peer: str) -> None:
    door = Door(shop={"keys": stored(new_key())})

    assert [guess(door, peer) for _ in range(51)][-1] is QuotaError
    assert guess(door, "10.9.8.7:6") is UnauthenticatedError


def test_an_ipv6_network_is_one_guesser_by_every_front() -> None:
    door = Door(shop={"keys": stored(new_key())})
    written = [
        "ipv6:%5B2001:db8::{0:x}%5D:{0}",
        "ipv6:[2001:db8::{0:x}]:{0}",
        "2001:db8::{0:x}",
        "[2001:db8::{0:x}]:{0}",
    ]

    assert [guess(door, written[n % 4].format(n)) for n in range(51)][-1] is QuotaError
    assert guess(door, "2001:db8:0:1::1") is UnauthenticatedError
    assert [guess(door, ("::ffff:10.0.0.1", "ipv4:10.0.0.1:7")[n % 2]) for n in range(51)][-1] is QuotaError


def test_what_is_remembered_has_a_bound() -> None:
    door = Door(shop={"keys": stored(new_key())})

    for number in range(9000):
        guess(door, f"10.{number >> 8}.{number & 255}.1:1")

    authenticator = door.authenticator
    assert len(authenticator._unknown) <= 4096
    assert len(authenticator._guesses) <= 4096


def test_credentials_beyond_any_size_are_refused() -> None:
    door = Door(shop={"keys": stored(new_key())})

    with pytest.raises(UnauthenticatedError, match="credentials of 9007 bytes; the longest are 8192"):
        door.let(authorization="Bearer " + "x" * 9000)
