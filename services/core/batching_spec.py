"""The `batching` of a model in etcd: when requests leave the queue together, and who waits, how, for how long."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from services.core.spec import Spec

MAX_TIMEOUT_US = 3_600_000_000
Micros = Annotated[int, Field(ge=0, le=MAX_TIMEOUT_US)]
TimeoutAction = Literal["REJECT", "DELAY"]


class QueuePolicy(Spec):
    """How one priority level waits; what is absent is as `batching` says for all."""

    timeout_action: TimeoutAction | None = None  # of who waited for longer
    default_timeout_microseconds: Micros | None = None  # wait in the queue
    allow_timeout_override: bool | None = None  # by a request's `timeout` parameter
    max_queue_size: int | None = Field(default=None, ge=1)  # rows of this level


class Padding(Spec):
    """Rows of different lengths (dimension 1) share a batch: the shorter are filled up, the answers cut back."""

    inputs: dict[str, float] = Field(min_length=1)  # name -> what fills it up; all have the same length in a request
    sizes: tuple[int, ...] = ()  # lengths to fill up to, ascending; () = powers of two. A longer row keeps its length
    mask: str | None = None  # input that tells: [rows, length], 1 where a row is, 0 where it was filled up
    length: str | None = None  # input that tells: [rows] or [rows, 1], the length of each row
    outputs: tuple[str, ...] = ()  # outputs whose dimension 1 is cut back to the row's length

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.mask is None and self.length is None:
            raise ValueError("pad_to needs `mask` or `length`, an input that tells the model what was filled up")
        if any(size < 1 for size in self.sizes) or list(self.sizes) != sorted(set(self.sizes)):
            raise ValueError(f"pad_to.sizes {list(self.sizes)} are not lengths in ascending order")
        if self.mask == self.length:
            raise ValueError(f"pad_to: {self.mask!r} cannot be `mask` and `length` at once")
        for name in (self.mask, self.length):
            if name in self.inputs:
                raise ValueError(f"pad_to: {name!r} cannot tell of the padding and be padded itself")
        return self

    def told(self) -> frozenset[str]:
        """Inputs that tell of the padding: callers do not send them."""
        return frozenset(name for name in (self.mask, self.length) if name is not None)


class ControlInput(Spec):
    """An input that tells a stateful model about each row's sequence."""

    name: str = Field(min_length=1)  # of the model's input
    kind: Literal["START", "READY", "END", "CORRID"]  # what it tells: the sequence begins, has a request, ends; its id
    false_true: tuple[float, float] = (0, 1)  # what START, READY and END are when not so, and when so


class SequenceState(Spec):
    """A tensor that a sequence keeps: `output_name` of one run is `input_name` of its next, zeros at its start."""

    input_name: str = Field(min_length=1)  # what the model is given
    output_name: str = Field(min_length=1)  # what it gives


class Direct(Spec):
    """Each sequence has one row of the batch to itself until it ends."""

    max_queue_delay_microseconds: Micros = 0  # how long a batch waits for more sequences that have a row
    minimum_slot_utilization: float = Field(default=0, ge=0, le=1)  # share of rows for which no batch waits longer


class Oldest(Spec):
    """Batches are made of at most one request of each of the oldest sequences."""

    max_candidate_sequences: int = Field(ge=1, le=65_536)  # of an instance
    preferred_batch_size: tuple[int, ...] = ()  # rows
    max_queue_delay_microseconds: Micros = 0  # how long a batch below that may wait for more sequences


class SequenceBatching(Spec):
    """For models with state: requests of one sequence go to one instance, in order. Names follow Triton's."""

    max_sequence_idle_microseconds: int = Field(default=1_000_000, ge=1, le=MAX_TIMEOUT_US)  # silence that ends it
    control_input: tuple[ControlInput, ...] = ()  # inputs that the mesh fills in
    state: tuple[SequenceState, ...] = ()  # tensors that the mesh keeps for each sequence
    direct: Direct | None = None  # a row of the batch for each sequence; this is how it is when neither is given
    oldest: Oldest | None = None  # or batches of the oldest sequences

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.direct is not None and self.oldest is not None:
            raise ValueError("sequence_batching takes `direct` or `oldest`, not both")
        kinds = [control.kind for control in self.control_input]
        for kind in kinds:
            if kinds.count(kind) > 1:
                raise ValueError(f"sequence_batching.control_input has two inputs of kind {kind}")
        return self


def states_and_controls(
    sequences: SequenceBatching | None,
) -> tuple[tuple[SequenceState, ...], tuple[ControlInput, ...]]:
    """What a worker must be started for; the rest of `sequence_batching` is the batcher's alone."""
    return (sequences.state, sequences.control_input) if sequences is not None else ((), ())


_EXCLUDED_BY_SEQUENCES = {  # and how they are named to users
    "priority_levels": "priority_levels",
    "preferred_batch_size": "preferred_batch_size",
    "max_queue_delay_microseconds": "max_queue_delay_microseconds",
    "target_p99_ms": "target_p99_ms",
    "pad_to": "pad_to",
    "preserve_ordering": "preserve_ordering",
    "timeout_action": "timeout_action DELAY",
}


class Batching(Spec):
    """When requests leave the queue together. Names and meaning follow Triton's `dynamic_batching`."""

    max_batch_size: int = Field(default=64, ge=0, le=65_536)  # rows; 0 = requests run one by one
    preferred_batch_size: tuple[int, ...] = ()  # rows
    max_queue_delay_microseconds: Micros = 0
    target_p99_ms: float | None = Field(default=None, gt=0, le=3_600_000)  # in the batcher: rows and delay adapt to it
    max_queue_size: int = Field(default=4096, ge=1)  # rows
    max_queue_bytes: int = Field(default=256 << 20, ge=1)
    priority_levels: int = Field(default=0, ge=0, le=64)  # 1 = the highest; 0 = all are alike
    default_priority_level: int = Field(default=0, ge=0)  # of a request that names none, or one that there is not
    default_timeout_microseconds: Micros = 0  # wait in the queue; 0 = unbounded
    allow_timeout_override: bool = True
    timeout_action: TimeoutAction = "REJECT"  # DELAY: who waited so long goes behind all others of its level instead
    priority_queue_policy: dict[int, QueuePolicy] = {}  # level -> what differs there
    preserve_ordering: bool = False  # answers leave in the order in which a router sent the requests
    pad_to: Padding | None = None  # for inputs whose rows differ in length
    sequence_batching: SequenceBatching | None = None  # for models that keep state from request to request
    slots: int = Field(default=2, ge=1, le=64)  # batches a worker takes at once

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for size in self.preferred_batch_size:
            if not 1 <= size <= self.max_batch_size:
                raise ValueError(f"preferred_batch_size {size} is not within 1 to max_batch_size {self.max_batch_size}")
        if self.max_batch_size > self.max_queue_size:
            raise ValueError(f"max_batch_size {self.max_batch_size} exceeds max_queue_size {self.max_queue_size}")
        self._check_levels()
        self._check_sequences()
        if self.pad_to is not None and not self.max_batch_size:
            raise ValueError("pad_to does nothing with max_batch_size 0: no rows share a batch")
        return self

    def _check_levels(self) -> None:
        levels, default = self.priority_levels, self.default_priority_level
        if levels and not 1 <= default <= levels:
            raise ValueError(f"default_priority_level {default} is not within 1 to priority_levels {levels}")
        if default and not levels:
            raise ValueError(f"default_priority_level {default} is given, but priority_levels is 0")
        for level in self.priority_queue_policy:
            if not 1 <= level <= levels:
                raise ValueError(f"priority_queue_policy {level} is not within 1 to priority_levels {levels}")
        for level, policy in self.priority_queue_policy.items():
            if policy.max_queue_size is not None and policy.max_queue_size > self.max_queue_size:
                raise ValueError(
                    f"priority_queue_policy {level}: max_queue_size {policy.max_queue_size} exceeds that of all levels,"
                    f" {self.max_queue_size}"
                )

    def _check_sequences(self) -> None:
        sequences = self.sequence_batching
        if sequences is None:
            return
        for field, name in _EXCLUDED_BY_SEQUENCES.items():
            if getattr(self, field) != type(self).model_fields[field].get_default():
                raise ValueError(f"{name} and sequence_batching exclude each other: sequences have rules of their own")
        sizes = sequences.oldest.preferred_batch_size if sequences.oldest else ()
        for size in sizes:
            if not 1 <= size <= self.max_batch_size:
                raise ValueError(
                    f"sequence_batching.oldest.preferred_batch_size {size} is not within 1 to max_batch_size"
                    f" {self.max_batch_size}"
                )

    def with_sequences(self, sequences: SequenceBatching | None) -> Self:
        """These settings with other `sequence_batching`; without what that excludes."""
        excluded = [*_EXCLUDED_BY_SEQUENCES, "default_priority_level", "priority_queue_policy"]
        fields = type(self).model_fields
        defaults = {name: fields[name].get_default() for name in excluded} if sequences is not None else {}
        return self.model_copy(update=defaults | {"sequence_batching": sequences})

    def filled_inputs(self) -> frozenset[str]:
        """Inputs of the model that the mesh fills in: callers do not send them. Those of `pad_to` are apart."""
        if self.sequence_batching is None:
            return frozenset()
        names = {control.name for control in self.sequence_batching.control_input}
        return frozenset(names | {state.input_name for state in self.sequence_batching.state})

    def kept_outputs(self) -> frozenset[str]:
        """Outputs of the model that stay in the mesh: callers do not see them."""
        if self.sequence_batching is None:
            return frozenset()
        return frozenset(state.output_name for state in self.sequence_batching.state)
