"""The batcher's process with another rule for what leaves and when: `--rule single | fixed | triton | triton-5ms`.

All else is the batcher's own: links, checks, bounds of the queue, expiry and cancellation on time, assembly, replies.
What the other rules do not have is switched off with ours: knowing how long a launch takes, hence refusing at the door
what cannot be in time, leaving out who would be late, and sending a batch just before its worker is free.
"""

import argparse
import functools
import heapq
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

from loadtest.batching.rules import Rule, rule_of
from services.batcher import batcher, serving
from services.batcher.app import build
from services.batcher.batcher import Batcher
from services.batcher.config import BatcherConfig
from services.batcher.queue import Bucket
from services.batcher.request import WAITING, Pending
from services.batcher.service_time import ServiceTime
from services.batcher.worker import Batch, Worker
from services.chassis.lifecycle import run


class Unlearnt(ServiceTime):
    """Nothing is known of how long a launch takes."""

    __slots__ = ()

    def known(self, now_ns: int) -> bool:  # noqa: ARG002 - a ServiceTime's shape
        return False


class Seen(NamedTuple):
    """A waiting request as a rule sees it."""

    arrival_ns: int
    number: int
    rows: int
    shape: object
    pending: Pending


class RuleBatcher(Batcher):
    """A batcher that asks `rule` instead of its own policy."""

    def __init__(self, rule_name: str, *arguments: object, **named: object) -> None:
        super().__init__(*arguments, **named)
        self._rule_name = rule_name

    @property
    def _rule(self) -> Rule:
        return rule_of(self._rule_name, self.policy.max_batch_rows)

    def _launch_next(self, worker: Worker, now_ns: int) -> bool:
        queue = self._queue
        leave = self._rule(_in_order(queue.departing()), now_ns)
        if not leave.count:
            self._alarm.set(leave.at_ns, now_ns)
            return False
        chosen = [seen.pending for seen in itertools.islice(_in_order(queue.departing()), leave.count)]
        queue.pick(chosen)
        self._launch(worker, Batch(chosen, now_ns), now_ns)
        return True


def _in_order(buckets: list[Bucket]) -> Iterator[Seen]:
    """Everything that waits, whatever its shape, in order of arrival."""
    return heapq.merge(*map(_living, buckets, itertools.count()), key=lambda seen: seen[:2])


def _living(bucket: Bucket, number: int) -> Iterator[Seen]:
    for pending in bucket.members:
        if pending.state == WAITING:
            yield Seen(pending.arrival_ns, number, pending.cost, bucket.inner, pending)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rule", required=True)
    arguments = parser.parse_args()
    # The one place where a rule meets the batcher; nothing of this is a setting that an operator could want.
    batcher.ServiceTime = Unlearnt
    make: Callable[..., Batcher] = functools.partial(RuleBatcher, arguments.rule)
    serving.Batcher = make  # type: ignore[assignment, misc]
    sys.argv = sys.argv[:1]
    run("batcher", BatcherConfig, build)


if __name__ == "__main__":
    main()
