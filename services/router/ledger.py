"""What replicas have counted, added up over those that live and those that are gone."""

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet

from turnout.v1 import link_pb2 as pb

_MOST_GONE = 64  # replicas kept one by one; one that is found again adds nothing twice
VersionKey = tuple[str, str]
_SUMS = ("success", "queue_ns", "input_ns", "compute_ns", "output_ns", "fail", "fail_ns")
_SIZE_SUMS = ("count", "input_ns", "compute_ns", "output_ns")


class Ledger:
    """The last word of every replica on every version, by the replica's name."""

    def __init__(self, live: Callable[[], AbstractSet[str]]) -> None:
        self._live = live  # names of the replicas whose links are open
        self._said: dict[str, dict[VersionKey, pb.VersionStats]] = {}
        self._past: dict[VersionKey, pb.VersionStats] = {}

    def take(self, replica: str, versions: Iterable[pb.VersionStats]) -> None:
        """What a replica says now in place of what it said before; counts that went down began anew."""
        said = self._said.get(replica)
        if said is None:
            said = self._said[replica] = {}
            self._forget_the_gone()
        for stats in versions:
            key = (stats.model, stats.version)
            before = said.get(key)
            if before is not None and _began_anew(before, stats):
                self._keep(key, before)
            said[key] = stats

    def total(self, model: str, version: str) -> pb.VersionStats:
        """The sum; zeros where nobody has counted anything."""
        key = (model, version)
        parts = [said.get(key) for said in (self._past, *self._said.values())]
        return summed(model, version, [part for part in parts if part is not None])

    def keys(self) -> set[VersionKey]:
        """Everything that something was counted of; scrapes read it on another thread."""
        return {key for said in (self._past, *self._said.values()) for key in list(said)}

    def versions(self, model: str) -> set[str]:
        """Those of a model that something was counted of."""
        return {version for name, version in self.keys() if name == model}

    def forget_models(self, known: AbstractSet[str]) -> None:
        """Let go of all models but these."""
        for said in (self._past, *self._said.values()):
            for key in [key for key in said if key[0] not in known]:
                del said[key]

    def _forget_the_gone(self) -> None:
        live = self._live()
        gone = [name for name in self._said if name not in live]
        for name in gone[:-_MOST_GONE]:
            for key, stats in self._said.pop(name).items():
                self._keep(key, stats)

    def _keep(self, key: VersionKey, stats: pb.VersionStats) -> None:
        past = self._past.get(key)
        self._past[key] = stats if past is None else summed(*key, [past, stats])


def _began_anew(before: pb.VersionStats, now: pb.VersionStats) -> bool:
    fewer = now.success < before.success or now.fail < before.fail
    return fewer or executions(now) < executions(before)


def executions(stats: pb.VersionStats) -> int:
    """Batches that ran."""
    return sum([size.count for size in stats.sizes])


def rows(stats: pb.VersionStats) -> int:
    """Rows that ran."""
    return sum([size.rows * size.count for size in stats.sizes])


def summed(model: str, version: str, parts: Iterable[pb.VersionStats]) -> pb.VersionStats:
    total = pb.VersionStats(model=model, version=version)
    sizes: dict[int, pb.SizeStats] = {}
    for part in parts:
        total.last_ms = max(total.last_ms, part.last_ms)
        for name in _SUMS:
            setattr(total, name, getattr(total, name) + getattr(part, name))
        for size in part.sizes:
            row = sizes.setdefault(size.rows, pb.SizeStats(rows=size.rows))
            for name in _SIZE_SUMS:
                setattr(row, name, getattr(row, name) + getattr(size, name))
    total.sizes.extend(sizes[rows] for rows in sorted(sizes))
    return total
