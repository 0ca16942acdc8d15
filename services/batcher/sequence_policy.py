"""How the sequences of one model version share its workers, and when their batches leave: pure."""

from dataclasses import dataclass
from math import ceil
from typing import Self

from services.core.batching_spec import Batching, ControlInput


@dataclass(frozen=True, slots=True)
class SequencePolicy:
    """`sequence_batching` of one model version, in the units of the fast path."""

    direct: bool = True  # each sequence has a row of the batch to itself; else batches are made of who is ready
    places: int = 1  # sequences a worker holds at once; 0 = as many as it takes batches
    most_rows: int = 1  # of a batch
    idle_ns: int = 1_000_000_000  # silence that ends a sequence
    delay_ns: int = 0  # a batch may wait so long for more of the sequences that have a place
    preferred_rows: tuple[int, ...] = ()  # ascending; with so many no batch waits
    controls: tuple[ControlInput, ...] = ()

    @classmethod
    def of(cls, batching: Batching, *, batches: bool) -> Self | None:
        """The policy of a version; None when it keeps no state. `batches` is what its signature says of dimension 0."""
        spec = batching.sequence_batching
        if spec is None:
            return None
        rows = batching.max_batch_size if batches else 0
        most = max(1, rows)
        idle_ns, controls = spec.max_sequence_idle_microseconds * 1000, spec.control_input
        if spec.oldest is not None:
            oldest = spec.oldest
            preferred = tuple(sorted(size for size in oldest.preferred_batch_size if size <= most))
            delay_ns = oldest.max_queue_delay_microseconds * 1000
            return cls(False, oldest.max_candidate_sequences, most, idle_ns, delay_ns, preferred, controls)
        delay_us = share = 0.0
        if spec.direct is not None:
            delay_us, share = spec.direct.max_queue_delay_microseconds, spec.direct.minimum_slot_utilization
        enough = ceil(share * most)
        delay_ns = int(delay_us * 1000) if enough else 0
        return cls(True, rows, most, idle_ns, delay_ns, (enough,) if enough else (), controls)

    def capacity(self, slots: int) -> int:
        """Sequences that a worker holds at once which takes `slots` batches."""
        return self.places or slots

    def holds_alike(self, other: "SequencePolicy | None") -> bool:
        """Whether sequences may keep their places when `other` takes over."""
        return other is not None and (self.direct, self.places, self.most_rows, self.controls) == (
            other.direct,
            other.places,
            other.most_rows,
            other.controls,
        )


def departure(policy: SequencePolicy, ready: int, seated: int, oldest_ns: int, now_ns: int) -> tuple[int, int]:
    """Most rows of the next batch, and when it must leave: `ready` of a worker's `seated` sequences have a request.

    The one that has waited longest is ready since `oldest_ns`. No batch waits when there is nobody to wait for.
    """
    most = policy.most_rows
    if not policy.delay_ns or ready >= most or ready >= seated:
        return most, now_ns
    last_ns = oldest_ns + policy.delay_ns
    if now_ns >= last_ns:
        return most, now_ns
    for preferred in reversed(policy.preferred_rows):
        if ready >= preferred:
            return most if policy.direct else preferred, now_ns
    return most, last_ns
