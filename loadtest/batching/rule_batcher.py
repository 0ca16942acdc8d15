"""The batcher's process with another rule for what leaves and when: `--rule single | fixed | triton | triton-5ms`.

All else is the batcher's own: links, checks, bounds of the queue, expiry and cancellation on time, assembly, replies.
What the other rules do not have is switched off with ours: knowing how long a launch takes, hence refusing at the door
what cannot be in time, leaving out who would be late, and sending a batch just before its worker is free; and the
order of deadlines, for that of arrival.
"""

import argparse
import heapq
import sys
from collections.abc import Iterable, Iterator
from typing import ClassVar, NamedTuple

from loadtest.batching.rules import Rule, rule_of
from services.batcher import lobby, policy
from services.batcher.app import build
from services.batcher.batcher import Batcher
from services.batcher.buckets import Bucket
from services.batcher.config import BatcherConfig
from services.batcher.launcher import Launcher
from services.batcher.request import WAITING
from services.batcher.service_time import ServiceTime
from services.batcher.worker import Batch
from services.chassis.lifecycle import run


class Seen(NamedTuple):
    """A waiting request as a rule sees it."""

    rank: int
    arrival_ns: int
    rows: int
    shape: Bucket


class RuleLauncher(Launcher):
    """Asks a rule instead of our policy."""

    rule_name: ClassVar[str]

    @property
    def _rule(self) -> Rule:
        return rule_of(self.rule_name, self._lobby.door.policy.max_batch_rows)

    def launch_one(self, now_ns: int, *, shadows: bool) -> bool:
        """Launch the next batch, if one may leave now."""
        worker = self._free_worker(now_ns)
        if worker is None or not self._queue.rows:
            return False
        buckets = tuple(self._queue.departing(shadows=shadows))
        leave = self._rule(in_order(buckets), now_ns)
        if not leave.count:
            self._alarm.set(leave.at_ns, now_ns)
            return False
        first = next(in_order(buckets)).shape
        self._launch(worker, Batch(self._queue.take(first, leave.count), now_ns), now_ns)
        return True


def in_order(buckets: Iterable[Bucket]) -> Iterator[Seen]:
    """Everything that waits, whatever its shape: by priority, then by arrival."""
    return heapq.merge(*map(_living, buckets), key=_rank)


def _rank(seen: Seen) -> int:
    return seen.rank


def _living(bucket: Bucket) -> Iterator[Seen]:
    bucket.front()  # drops the places of those who left
    for pending in bucket.members:
        if pending.state == WAITING:
            yield Seen(pending.rank, pending.arrival_ns, pending.cost, bucket)


def _learn_nothing(self: ServiceTime, rows: int, took_ns: int, now_ns: int) -> None:
    """So how long a launch takes is never known, and everything that goes by it is off."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rule", required=True)
    arguments = parser.parse_args()
    # The one place where a rule meets the batcher. None of this is a setting, as no operator could want it.
    lobby.AGEING_NS = policy.AGEING_NS = 0  # no deadline counts, but the order of arrival
    ServiceTime.measured = _learn_nothing  # type: ignore[method-assign]
    RuleLauncher.rule_name = arguments.rule
    Batcher.parts = Batcher.parts._replace(launcher=RuleLauncher)
    sys.argv = sys.argv[:1]
    run("batcher", BatcherConfig, build)


if __name__ == "__main__":
    main()
