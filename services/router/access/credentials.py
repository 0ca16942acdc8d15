"""Who calls: what a request proves itself with, verified once and remembered until anything changes."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple, TypeVar
from urllib.parse import unquote

from services.core import api_key
from services.core.errors import QuotaError, ServingError, UnauthenticatedError
from services.router.access import reasons
from services.router.access.caller import Caller
from services.router.access.callers import Callers
from services.router.access.certificates import names_of
from services.router.access.limits import Bucket, seconds
from services.router.access.refusals import Refused
from services.router.access.tokens import BadTokenError, Tokens

Headers = Mapping[str, str | bytes]
K = TypeVar("K")
V = TypeVar("V")
AUTHORIZATION, API_KEY = "authorization", "x-api-key"
_NS = 1_000_000_000
_MOST_KNOWN = 4096  # credentials remembered, good ones and bad ones; all are forgotten when there would be more
_MOST_PEERS = 4096  # whose guesses are counted
_KNOWN_NS = 300 * _NS  # after which even good ones are verified again
_UNKNOWN_NS = 10 * _NS
_MOST_BYTES = 8 << 10
_NETWORK_BITS = 64  # of an IPv6 address, that its holder chooses
_GUESSES_PER_S, _BURST_S = 10.0, 5.0  # unknown credentials of one peer


def _now() -> datetime:
    return datetime.now(UTC)


class Verified(NamedTuple):
    """Whose credentials they are, and until when (perf_counter_ns) nobody needs to look again."""

    caller: Caller
    until_ns: int


class Authenticator:
    """Gives the caller behind a request's headers or client certificate.

    `refused` counts (caller's name or "", reason). `now` tells the wall clock, which keys and tokens expire by.
    """

    def __init__(
        self, callers: Callers, tokens: Tokens | None, refused: Refused, now: Callable[[], datetime] = _now
    ) -> None:
        self._callers = callers
        self._tokens = tokens
        self._refused = refused
        self._now = now
        self._known: dict[str | bytes, Verified] = {}
        self._unknown: dict[bytes, tuple[int, str, str]] = {}  # digest -> until, message, reason
        self._guesses: dict[str, Bucket] = {}  # by peer
        self.is_used = tokens is not None  # else nobody can prove anything, and what is sent says nothing to us

    def forget(self) -> None:
        """What was verified is no longer sure: callers, or the keys that sign tokens, have changed."""
        # Other dictionaries: who examines something on another thread, as scrapes are, puts it where nobody looks.
        self._known, self._unknown = {}, {}
        self.is_used = self._tokens is not None or len(self._callers) > 0

    def identify(self, headers: Headers, peer: str, certificate: bytes, now_ns: int) -> Caller | None:
        """The caller; None for one that proves nothing. Raises UnauthenticatedError for credentials that are wrong."""
        if not self.is_used:
            return None
        sent = headers.get(AUTHORIZATION) or headers.get(API_KEY)
        if not sent:
            return self._callers.of_certificate(*names_of(certificate)) if certificate else None
        known = self._known.get(sent)
        if known is not None and now_ns < known.until_ns:
            return known.caller
        return self._examined(sent, _host(peer), is_bearer=bool(headers.get(AUTHORIZATION)), now_ns=now_ns)

    def _examined(self, sent: str | bytes, peer: str, *, is_bearer: bool, now_ns: int) -> Caller:
        """Credentials that nobody has verified yet."""
        text = sent.decode("latin-1") if isinstance(sent, bytes) else sent
        known, unknown = self._known, self._unknown
        digest = sha256(b"%d" % is_bearer + text.encode(errors="surrogateescape")).digest()
        until_ns, message, reason = unknown.get(digest, (0, "", ""))
        if now_ns < until_ns:
            self._refused("", reason)
            raise UnauthenticatedError(message)
        try:
            verified = self._verified(text, peer, is_bearer=is_bearer, now_ns=now_ns)
        except BadTokenError as error:
            self._refused("", error.reason)
            if error.is_guess:
                self._count_guess(peer, now_ns)
            if error.is_final:
                _keep(unknown, digest, (now_ns + _UNKNOWN_NS, str(error), error.reason))
            raise error.refusal() from None
        _keep(known, sent, verified)
        return verified.caller

    def _verified(self, text: str, peer: str, *, is_bearer: bool, now_ns: int) -> Verified:
        """Raises BadTokenError."""
        if len(text) > _MOST_BYTES:
            raise BadTokenError(f"credentials of {len(text)} bytes; the longest are {_MOST_BYTES}", reasons.BAD)
        if is_bearer:
            scheme, _, text = text.partition(" ")
            text = text.strip()
            if scheme.lower() != "bearer" or not text:
                raise BadTokenError(
                    "authorization is of a kind not known here; send `authorization: Bearer KEY` or `x-api-key: KEY`",
                    reasons.BAD,
                )
        if text.startswith("tk_"):
            return self._of_key(text, now_ns)
        if self._tokens is None:
            raise BadTokenError(
                "the credentials are no API key, which looks like tk_ID.SECRET; this router takes no others",
                reasons.BAD,
            )
        self._check_guesses(peer, now_ns)
        token = self._tokens.verify(text, self._now())
        caller = self._callers.of_token(token.subject, token.claims)
        if caller is None:
            raise BadTokenError("the token is good, and belongs to no caller that is known here", reasons.UNKNOWN)
        return Verified(caller, now_ns + min(_KNOWN_NS, int(token.left_s * _NS)))

    def _of_key(self, text: str, now_ns: int) -> Verified:
        key = api_key.parse(text)
        if key is None:
            raise BadTokenError("the API key is cut off or changed; a whole one looks like tk_ID.SECRET", reasons.BAD)
        known = self._callers.keys.get(key.id)
        if known is None or not api_key.matches(key, known.hmac_sha256):
            raise BadTokenError("the API key is not known here: it may have been revoked", reasons.UNKNOWN)
        left_ns = _KNOWN_NS
        if known.expires is not None:
            left_ns = min(left_ns, int((known.expires - self._now()).total_seconds() * _NS))
            if left_ns <= 0:
                expired = known.expires.astimezone(UTC).isoformat(timespec="seconds")
                raise BadTokenError(f"the API key expired at {expired}", reasons.EXPIRED)
        return Verified(known.caller, now_ns + left_ns)

    # -- guesses

    def _check_guesses(self, peer: str, now_ns: int) -> None:
        """Raise QuotaError for a peer that guesses, before its next guess costs anything."""
        bucket = self._guesses.get(peer)
        wait_ns = bucket.take(0, now_ns) if bucket else 0.0
        if wait_ns:
            raise self._guessing(wait_ns)

    def _count_guess(self, peer: str, now_ns: int) -> None:
        """Count credentials that were wrong. Raises QuotaError for too many of one peer."""
        bucket = self._guesses.get(peer)
        if bucket is None:
            if len(self._guesses) >= _MOST_PEERS:
                self._guesses.pop(next(iter(self._guesses)))
            bucket = self._guesses[peer] = Bucket()
            bucket.follow(_GUESSES_PER_S, _BURST_S)
        if wait_ns := bucket.take(1, now_ns):
            raise self._guessing(wait_ns)

    def _guessing(self, wait_ns: float) -> ServingError:
        self._refused("", reasons.GUESSING)
        return QuotaError("too many unknown credentials from one address", retry_after_s=seconds(wait_ns))


def _keep(known: dict[K, V], key: K, value: V) -> None:
    if len(known) >= _MOST_KNOWN:
        known.clear()
    known[key] = value


def _host(peer: str) -> str:
    """The address of a peer without its port, which changes from connection to connection.

    Of IPv6 the network of 64 bits, as one machine has all of its addresses.
    """
    text = unquote(peer).removeprefix("ipv4:").removeprefix("ipv6:")
    host, _, port = text.rpartition(":")
    if port.isdigit() and (host.endswith("]") or "." in host):
        text = host
    try:
        address = ip_address(text.strip("[]"))
    except ValueError:
        return text
    if isinstance(address, IPv4Address):
        return text
    return str(address.ipv4_mapped or IPv6Address(int(address) >> _NETWORK_BITS << _NETWORK_BITS))
