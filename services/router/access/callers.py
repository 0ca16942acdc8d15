"""Every caller of a fleet, found by what it proves itself with."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from services.core.caller_spec import CallerSpec, Token
from services.router.access.caller import Caller


class KnownKey(NamedTuple):
    """An API key's stored half."""

    caller: Caller
    hmac_sha256: str
    expires: datetime | None


class Callers:
    """Rebuilt as a whole when a key below callers/ changes; what callers have used stays."""

    def __init__(self) -> None:
        self._by_name: dict[str, Caller] = {}
        self._specs: Mapping[str, CallerSpec] = {}
        self._routers = 1
        self.keys: dict[str, KnownKey] = {}
        self._subjects: dict[str, list[tuple[Token, Caller]]] = {}  # of JWTs; "" = tokens that claims alone tell
        self._certificates: dict[str, Caller] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def follow(self, specs: Mapping[str, CallerSpec]) -> None:
        """Go by these callers from now on."""
        self._specs = dict(specs)
        for name in self._by_name.keys() - specs.keys():
            del self._by_name[name]
        for name, spec in specs.items():
            known = self._by_name.get(name)
            if known is None:
                self._by_name[name] = Caller(name, spec, self._routers)
            elif known.rights.spec != spec:
                known.follow(spec, self._routers)
        self._index()

    def share_with(self, routers: int) -> None:
        """Divide limits by so many live routers."""
        routers = max(1, routers)
        if routers != self._routers:
            self._routers = routers
            for caller in self._by_name.values():
                caller.share_with(routers)

    def of_token(self, subject: str, claims: Mapping[str, object]) -> Caller | None:
        """Whose JWT that is: by subject first, then by claims alone, then in the order of names."""
        for candidates in (self._subjects.get(subject, ()) if subject else (), self._subjects.get("", ())):
            for token, caller in candidates:
                if all(_holds(claims.get(name), value) for name, value in token.claims.items()):
                    return caller
        return None

    def of_certificate(self, subject: str, names: Iterable[str]) -> Caller | None:
        """Whose certificate that is; `names` are KIND:NAME, its subject's alternatives."""
        for name in (subject, *names):
            caller = self._certificates.get(name)
            if caller is not None:
                return caller
        return None

    def _index(self) -> None:
        keys: dict[str, KnownKey] = {}
        subjects: dict[str, list[tuple[Token, Caller]]] = {}
        certificates: dict[str, Caller] = {}
        for name in sorted(self._by_name):
            caller = self._by_name[name]
            spec = caller.rights.spec
            for key_id, key in spec.keys.items():
                keys[key_id] = KnownKey(caller, key.hmac_sha256, key.expires)
            for token in spec.tokens:
                subjects.setdefault(token.subject, []).append((token, caller))
            for each in spec.certificates:
                certificates.setdefault(each.subject or each.san or "", caller)
        self.keys, self._subjects, self._certificates = keys, subjects, certificates  # whole: scrapes ask on a thread


def _holds(claim: object, value: str) -> bool:
    return value in claim if isinstance(claim, list) else claim == value


def taken(name: str, spec: CallerSpec, others: Mapping[str, CallerSpec]) -> str | None:
    """Why `spec` cannot be `name`'s: what would prove it proves another caller already."""
    for other, held in others.items():
        if other == name:
            continue
        if both := spec.keys.keys() & held.keys.keys():
            return f"keys: {min(both)} is a key of caller {other}"
        if common := set(spec.certificates) & set(held.certificates):
            only = next(iter(common))
            return f"certificates: {only.subject or only.san} is caller {other}'s"
        if any(token in held.tokens for token in spec.tokens):
            return f"tokens: caller {other} is known by the same"
    return None
