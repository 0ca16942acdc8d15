"""How many requests leave together, and when: a pure function of the queue's state, `now` an argument."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

from services.batcher.sequence_policy import SequencePolicy
from services.batcher.service_time import ServiceTime
from services.core.batching_spec import Batching, QueuePolicy
from services.core.model_spec import ModelSpec

FOREVER_NS = 1 << 62
SHADOW_LEVEL = 1 << 10  # below every priority
DELAYED = 1 << 62  # in a rank: behind the others of its level
LEVEL_STEP = 1 << 63  # of ranks
AGEING_NS = 1_000_000_000
ANSWER_NS = 500_000  # an answer's way back to its caller, whose deadline it must meet


@dataclass(frozen=True, slots=True)
class WaitPolicy:
    """How the requests of one priority level wait."""

    timeout_ns: int = 0  # in the queue; 0 = unbounded
    allow_override: bool = True  # may a request ask for less, or for a timeout where there is none?
    delays: bool = False  # who waited so long goes behind the others of its level, instead of away
    max_rows: int = 0  # of this level; 0 = only those of the whole queue

    def timeout_of(self, asked_ns: int) -> int:
        """How long a request may wait in the queue that asked for `asked_ns` (0 = did not ask); 0 = unbounded."""
        if not asked_ns or not self.allow_override:
            return self.timeout_ns
        return min(asked_ns, self.timeout_ns) if self.timeout_ns else asked_ns


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """The batching and limits of one model version, in the units of the fast path."""

    max_batch_rows: int = 64  # 0 = requests run one by one
    preferred_rows: tuple[int, ...] = ()  # ascending
    delay_ns: int = 0
    target_ns: int = 0  # p99 in the batcher to aim for; 0 = none
    max_queue_rows: int = 4096
    max_queue_bytes: int = 256 << 20
    wait: WaitPolicy = WaitPolicy()
    levels: tuple[WaitPolicy, ...] = ()  # of priority 1, 2, …; () = all are alike
    default_level: int = 0
    max_request_rows: int = 1024
    max_request_bytes: int = 64 << 20
    idempotent: bool = True
    preserve_ordering: bool = False
    weight: float = 1.0  # share of the device
    filled_inputs: frozenset[str] = frozenset()  # of the artifact's inputs, those that callers do not send
    kept_outputs: frozenset[str] = frozenset()  # of its outputs, those that callers do not see
    sequences: SequencePolicy | None = None  # of a model that keeps state from request to request

    @classmethod
    def of(cls, spec: ModelSpec, *, batches: bool, streams: bool = False) -> Self:
        """The policy of a version's spec; `batches` is what its signature says of dimension 0.

        `streams`: its answers are neither kept in order nor parts of a sequence.
        """
        batching = spec.batching
        levels = range(1, batching.priority_levels + 1)
        return cls(
            max_batch_rows=batching.max_batch_size if batches else 0,
            preferred_rows=tuple(sorted(batching.preferred_batch_size)),
            delay_ns=batching.max_queue_delay_microseconds * 1000,
            target_ns=round((batching.target_p99_ms or 0) * 1e6),
            max_queue_rows=batching.max_queue_size,
            max_queue_bytes=batching.max_queue_bytes,
            wait=_wait_policy(batching, QueuePolicy()),
            levels=tuple(_wait_policy(batching, batching.priority_queue_policy.get(n, QueuePolicy())) for n in levels),
            default_level=batching.default_priority_level,
            max_request_rows=spec.max_request_rows(),
            max_request_bytes=spec.limits.max_request_bytes,
            idempotent=spec.idempotent,
            preserve_ordering=batching.preserve_ordering and not streams,
            weight=spec.placement.weight,
            filled_inputs=batching.filled_inputs(),
            kept_outputs=batching.kept_outputs(),
            sequences=None if streams else SequencePolicy.of(batching, batches=batches),
        )

    def goes_on_from(self, other: "BatchPolicy") -> bool:
        """Whether what waits or keeps state under `other` may go on under this one."""
        if self.sequences is None or other.sequences is None:
            return self.sequences is other.sequences
        is_told_alike = (self.filled_inputs, self.kept_outputs) == (other.filled_inputs, other.kept_outputs)
        return is_told_alike and self.sequences.holds_alike(other.sequences)

    def level_of(self, priority: int) -> int:
        """The level of a request; the default one if it names none, or one that there is not."""
        return priority if 1 <= priority <= len(self.levels) else self.default_level

    def wait_at(self, level: int) -> WaitPolicy:
        """How a level waits; one that there is not any more waits as the model does."""
        return self.levels[level - 1] if 1 <= level <= len(self.levels) else self.wait


def _wait_policy(batching: Batching, own: QueuePolicy) -> WaitPolicy:
    timeout_us, overrides = own.default_timeout_microseconds, own.allow_timeout_override
    return WaitPolicy(
        timeout_ns=1000 * (batching.default_timeout_microseconds if timeout_us is None else timeout_us),
        allow_override=batching.allow_timeout_override if overrides is None else overrides,
        delays=(own.timeout_action or batching.timeout_action) == "DELAY",
        max_rows=own.max_queue_size or 0,
    )


def rank_of(level: int, arrival_ns: int, deadline_ns: int) -> int:
    """The place of a request in its queue: lower levels first, in a level the earliest deadline.

    A deadline further away than AGEING_NS counts as that far away: so who has much time, or no deadline, is served
    before everybody who comes AGEING_NS later, whatever their deadlines.
    """
    return level * LEVEL_STEP + min(deadline_ns, arrival_ns + AGEING_NS)


class BatchForm(NamedTuple):
    """What batches should be like now."""

    rows: int  # at most; 0 = one request
    delay_ns: int
    preferred_rows: tuple[int, ...]  # ascending


ALONE = BatchForm(0, 0, ())  # one request


class Departure(NamedTuple):
    """What leaves: at most `rows`, not before `at_ns`."""

    rows: int
    at_ns: int


def departure(form: BatchForm, rows: int, oldest_ns: int, now_ns: int, gap_ns: int) -> Departure:
    """When `rows` waiting rows of one bucket must leave once a slot is free, the oldest since `oldest_ns`.

    `gap_ns` is the usual time between arrivals: no batch waits for a partner that is not expected in time.
    """
    most = form.rows
    if rows >= most or not form.delay_ns:
        return Departure(most, now_ns)
    last_ns = oldest_ns + form.delay_ns
    if now_ns >= last_ns or now_ns + gap_ns > last_ns:
        return Departure(most, now_ns)
    for preferred in reversed(form.preferred_rows):
        if rows >= preferred:
            return Departure(preferred, now_ns)
    return Departure(most, last_ns)


class Waiting(Protocol):
    """What the policy knows of a request."""

    state: int  # 0 = waits; anything else has left
    cost: int  # rows it counts for
    deadline_ns: int


W = TypeVar("W", bound=Waiting)


def fitting(members: Iterable[Waiting], most_rows: int, start_ns: int, service: ServiceTime | None) -> tuple[int, bool]:
    """How many living members, in order, fill a batch of at most `most_rows` that starts at `start_ns`.

    The first one always fits by rows. With a known `service` time nobody joins who would make a member late; True says
    that the batch ends for that reason.
    """
    count = rows = 0
    strictest_ns = FOREVER_NS
    late_ns = start_ns + service.predict_ns(most_rows) if service is not None else 0
    for member in members:
        if member.state:
            continue
        rows += member.cost
        if rows > most_rows and count:
            break
        deadline_ns = member.deadline_ns
        strictest_ns = min(strictest_ns, deadline_ns)
        if strictest_ns < late_ns and service is not None and start_ns + service.predict_ns(rows) > strictest_ns:
            return count, True
        count += 1
        if rows >= most_rows:
            break
    return count, False


class Choice(NamedTuple, Generic[W]):
    """Who runs now, and who can be served neither now nor after."""

    chosen: list[W]
    hopeless: list[W]


def choose(members: Iterable[W], most_rows: int, start_ns: int, service: ServiceTime) -> Choice[W]:
    """The batch when not all who wait can be in time.

    In order as long as the rest is in time in the batch after it. Otherwise as large a batch as can be in time as a
    whole, which leaves out those with the least time left, as serving them would cost more others; of the rest, those
    who stand first.
    Source: Shen et al., "Nexus: a GPU cluster engine for accelerating DNN-based video analysis" (2019), early drop.
    """
    living = [member for member in members if not member.state]
    count, _ = fitting(living, most_rows, start_ns, service)
    end_ns = start_ns + service.predict_ns(sum([member.cost for member in living[:count]]))
    if count and _is_one_batch(living[count:], most_rows, end_ns, service):
        return Choice(living[:count], [])
    ranked = sorted(living, key=lambda member: member.deadline_ns, reverse=True)
    rows = best_rows = 0
    end_ns = float(start_ns)
    for member in ranked:
        rows += member.cost
        if rows > most_rows and best_rows:
            break
        if start_ns + service.predict_ns(rows) <= member.deadline_ns:
            best_rows, end_ns = rows, start_ns + service.predict_ns(rows)
    chosen, left = _first_in_time(living, best_rows, end_ns)
    hopeless = [member for member in left if end_ns + service.predict_ns(member.cost) > member.deadline_ns]
    if not chosen and len(hopeless) < len(left):  # large ones with much time stand before small ones with little
        best_alone = next(member for member in ranked if member not in hopeless)
        return Choice([best_alone], hopeless)
    return Choice(chosen, hopeless)


def _first_in_time(living: list[W], most_rows: int, end_ns: float) -> tuple[list[W], list[W]]:
    """The first ones of the queue for whom a batch that ends then is in time, and the others.

    Not the last ones, though as many of them would be in time: they can wait, and who is passed over cannot.
    """
    chosen: list[W] = []
    left: list[W] = []
    rows = 0
    for member in living:
        if member.deadline_ns >= end_ns and rows + member.cost <= most_rows:
            rows += member.cost
            chosen.append(member)
        else:
            left.append(member)
    return chosen, left


def _is_one_batch(members: list[W], most_rows: int, start_ns: float, service: ServiceTime) -> bool:
    """Whether all of them are in time as one batch."""
    rows = sum([member.cost for member in members])
    strictest_ns = min([member.deadline_ns for member in members], default=FOREVER_NS)
    return rows <= most_rows and start_ns + service.predict_ns(rows) <= strictest_ns
