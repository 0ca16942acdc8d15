"""What this pod has counted, told to the peers on its links: all when one opens, then what changed."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from services.batcher.tally import Tally
from services.core.protowire import bytes_field
from services.core.stages import REMOTE
from turnout.v1 import link_pb2 as pb

_STATS = 12  # Frame.stats
_MOST_BYTES = 128 << 10  # of one envelope: over 256 KiB it could come late, behind what was said after it
_QUEUE = REMOTE.index("queue")
_INPUT = [REMOTE.index(stage) for stage in ("assemble", "worker_wait", "h2d")]
_COMPUTE = REMOTE.index("compute")
_OUTPUT = [REMOTE.index(stage) for stage in ("d2h", "scatter")]
Seen = tuple[int, int, int]


class Statistics:
    """Reads the tallies; each envelope that it gives is an encoded field of Frame."""

    def __init__(self, tallies: Mapping[tuple[str, str], Tally], clock: Callable[[], int]) -> None:
        self._tallies = tallies
        self._clock = clock
        self._told: dict[tuple[str, str], Seen] = {}

    def whole(self) -> list[bytes]:
        """All that was counted; one envelope at least, so that a peer knows that it may ask."""
        return _envelopes(self._said(self._tallies.items())) or [_encoded(pb.Stats())]

    def changed(self) -> list[bytes]:
        """What was counted since this was called before."""
        news = []
        for name, tally in self._tallies.items():
            seen = (sum(tally.service_s.counts), sum(tally.by_code), sum(tally.cancelled))
            if self._told.get(name) != seen:
                self._told[name] = seen
                news.append((name, tally))
        if len(self._told) > len(self._tallies):
            self._told = {name: seen for name, seen in self._told.items() if name in self._tallies}
        return _envelopes(self._said(news))

    @staticmethod
    def answered(question: int) -> bytes:
        """The end of the answer to a question: what changed was said before it."""
        return _encoded(pb.Stats(answers=question))

    def _said(self, tallies: Iterable[tuple[tuple[str, str], Tally]]) -> Iterator[pb.VersionStats]:
        now_ns, now_ms = self._clock(), time.time_ns() // 1_000_000
        for (model, version), tally in tallies:
            last_ms = now_ms - (now_ns - tally.ran_ns) // 1_000_000 if tally.ran_ns else 0
            yield _version(model, version, tally, last_ms)


def _version(model: str, version: str, tally: Tally, last_ms: int) -> pb.VersionStats:
    spent = tally.stages_ns
    return pb.VersionStats(
        model=model,
        version=version,
        last_ms=last_ms,
        success=tally.by_code[0],
        queue_ns=spent[_QUEUE],
        input_ns=sum([spent[stage] for stage in _INPUT]),
        compute_ns=spent[_COMPUTE],
        output_ns=sum([spent[stage] for stage in _OUTPUT]),
        fail=sum(tally.by_code[1:]) + sum(tally.cancelled),
        fail_ns=tally.failed_ns,
        sizes=[
            pb.SizeStats(
                rows=rows,
                count=size.count,
                input_ns=size.input_ns,
                compute_ns=size.compute_ns,
                output_ns=size.output_ns,
            )
            for rows, size in sorted(tally.by_size.items())
        ],
    )


def _envelopes(versions: Iterable[pb.VersionStats]) -> list[bytes]:
    """As few as their size allows."""
    stats: list[pb.Stats] = []
    room = 0
    for version in versions:
        size = version.ByteSize() + 8
        if size > room:
            stats.append(pb.Stats())
            room = _MOST_BYTES
        stats[-1].versions.append(version)
        room -= size
    return [_encoded(each) for each in stats]


def _encoded(stats: pb.Stats) -> bytes:
    return bytes_field(_STATS, stats.SerializeToString()) or bytes((_STATS << 3 | 2, 0))
