"""Inputs that ended a worker twice."""

import hashlib

from services.batcher.request import MAX_TRIES
from services.core.known_headers import Data
from services.core.names import ModelVersion

_QUARANTINE_NS = 60_000_000_000
_MOST = 1024


class Quarantine:
    """Inputs that are refused for a minute, by their hash; of a request that was cut, those of the part that ran."""

    __slots__ = ("until_ns",)

    def __init__(self) -> None:
        self.until_ns: dict[bytes, int] = {}  # by hash; nearly always empty

    def add(self, inputs: list[Data], now_ns: int) -> None:
        """Refuse them from now on; when there are too many, the oldest go free."""
        if len(self.until_ns) >= _MOST:
            del self.until_ns[next(iter(self.until_ns))]
        self.until_ns[_hash(inputs)] = now_ns + _QUARANTINE_NS

    def holds(self, inputs: list[Data], now_ns: int) -> bool:
        """Whether they are refused now. Ask only when it is not empty: it hashes."""
        key = _hash(inputs)
        until_ns = self.until_ns.get(key, 0)
        if until_ns > now_ns:
            return True
        if now_ns > max(self.until_ns.values(), default=0):
            self.until_ns.clear()
        return False


def why_refused(name: ModelVersion) -> str:
    """What the caller is told."""
    return f"these inputs ended {MAX_TRIES} workers of {name}; they are refused for a minute"


def _hash(inputs: list[Data]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for data in inputs:
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.digest()
