"""What sequences keep between their runs: rows of the model's state outputs become rows of its state inputs."""

from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from services.core.arrays import DATATYPE_OF, NUMPY_DTYPE
from services.core.batching_spec import ControlInput, SequenceState
from services.core.signature import Signature, TensorSpec
from services.runtime.backends import Arrays, BadArtifactError

_MOST = 1 << 17  # sequences of one peer; it holds at most 65,536 at once, and tells of those that are over
STARTS, ENDS, SHIFT = 2, 1, 2  # of an entry of Request.sequence_rows
_FLAGS = ("BOOL", "INT32", "FP32")
_IDS = ("UINT64", "INT64", "UINT32", "INT32", "BYTES")


class LostStateError(Exception):
    """A batch names sequences that cannot be run; the message says why."""


class SequenceStates:
    """The state of every sequence, by the peer that batches it and the peer's own number for it."""

    def __init__(self, states: Sequence[SequenceState], signature: Signature) -> None:
        inputs = {spec.name: spec for spec in signature.inputs}
        self.inputs = frozenset(state.input_name for state in states)
        self.outputs = frozenset(state.output_name for state in states)
        self._batches = signature.batches
        self._specs = [inputs[state.input_name] for state in states]
        self._outputs = [state.output_name for state in states]
        self._first = [_zeros(spec, batches=signature.batches) for spec in self._specs]
        self._kept: dict[Hashable, dict[int, list[NDArray]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._kept.values()))

    def forget(self, peer: Hashable, over: Sequence[int] | None = None) -> None:
        """Sequences of `peer` that are over; all of them when it is gone."""
        if over is None:
            self._kept.pop(peer, None)
            return
        kept = self._kept.get(peer, {})
        for number in over:
            kept.pop(number, None)

    def before(self, peer: Hashable, rows: Sequence[int], count: int) -> dict[str, NDArray]:
        """The state inputs of a batch of `count` rows, zeros where a sequence starts and where a row is empty.

        `rows` as in Request.sequence_rows. Raises LostStateError.
        """
        if len(rows) != count:
            raise LostStateError(f"{len(rows)} sequences are named for {count} rows")
        kept = self._kept.setdefault(peer, {})
        if len(kept) + count > _MOST:
            raise LostStateError(f"{len(kept)} sequences keep state here, {count} more would be over {_MOST}")
        known: list[list[NDArray] | None] = []
        for entry in rows:
            state = None if not entry or entry & STARTS else kept.get(entry >> SHIFT)
            if state is None and entry and not entry & STARTS:
                raise LostStateError(f"sequence {entry >> SHIFT} has no state here: it did not start here, or is over")
            known.append(state)
        return {spec.name: self._joined(position, known) for position, spec in enumerate(self._specs)}

    def keep(self, peer: Hashable, rows: Sequence[int], outputs: Arrays) -> None:
        """Take the state outputs of a batch that ran. Raises ValueError when they are not what the inputs take."""
        arrays = [outputs[name] for name in self._outputs]
        for name, array, spec in zip(self._outputs, arrays, self._specs, strict=True):
            self._check(name, array, spec, len(rows))
        kept = self._kept.setdefault(peer, {})
        for position, entry in enumerate(rows):
            if entry and not entry & ENDS:  # a copy: a view would hold the whole batch
                kept[entry >> SHIFT] = [(array[position] if self._batches else array).copy() for array in arrays]

    def close(self, peer: Hashable, rows: Sequence[int]) -> None:
        """Forget the sequences that end with a batch, however it went."""
        self.forget(peer, [entry >> SHIFT for entry in rows if entry & ENDS])

    def _joined(self, position: int, known: list[list[NDArray] | None]) -> NDArray:
        first = self._first[position]
        if not self._batches:
            state = known[0]
            return first if state is None else state[position]
        array = np.zeros((len(known), *first.shape), first.dtype)
        for row, state in enumerate(known):
            if state is not None:
                array[row] = state[position]
        return array

    def _check(self, name: str, array: NDArray, spec: TensorSpec, rows: int) -> None:
        inner = spec.shape[1:] if self._batches else spec.shape
        shape = array.shape[1:] if self._batches else array.shape
        fits = len(shape) == len(inner) and all(want in (-1, is_) for want, is_ in zip(inner, shape, strict=True))
        if not fits or (self._batches and array.shape[0] != rows) or DATATYPE_OF.get(array.dtype) != spec.datatype:
            raise ValueError(
                f"state output {name!r} is {array.dtype}{list(array.shape)} for {rows} rows, which is not what state "
                f"input {spec} takes"
            )


def _zeros(spec: TensorSpec, *, batches: bool) -> NDArray:
    """What a sequence starts with: one row of zeros, dimensions of any size being 1."""
    shape = spec.shape[1:] if batches else spec.shape
    return np.zeros([1 if size < 0 else size for size in shape], NUMPY_DTYPE[spec.datatype])


def fitted(
    signature: Signature, states: Sequence[SequenceState], controls: Sequence[ControlInput]
) -> tuple[Signature, str]:
    """The signature, batching only if states of different sequences share a shape; else the reason it does not.

    Raises BadArtifactError when the artifact has no such inputs and outputs, or not such as they must be.
    """
    inputs = {spec.name: spec for spec in signature.inputs}
    outputs = {spec.name: spec for spec in signature.outputs}
    for state in states:
        _check_state(_named(inputs, state.input_name, "input"), _named(outputs, state.output_name, "output"))
    for control in controls:
        _check_control(control, _named(inputs, control.name, "input"), batches=signature.batches)
    for state in states:
        spec = inputs[state.input_name]
        if signature.batches and -1 in spec.shape[1:]:
            return replace(signature, batches=False), f"state input {spec} may differ in shape between sequences"
    return signature, ""


def _named(specs: dict[str, TensorSpec], name: str, role: str) -> TensorSpec:
    if name not in specs:
        raise BadArtifactError(
            f"sequence_batching names {role} {name!r}; the artifact's {role}s are {', '.join(specs) or 'none'}"
        )
    return specs[name]


def _check_state(given: TensorSpec, kept: TensorSpec) -> None:
    sizes_meet = len(given.shape) == len(kept.shape) and all(
        -1 in pair or pair[0] == pair[1] for pair in zip(given.shape, kept.shape, strict=True)
    )
    if given.datatype != kept.datatype or not sizes_meet:
        raise BadArtifactError(f"state output {kept} cannot be state input {given} of the next run")
    if given.datatype not in NUMPY_DTYPE:
        raise BadArtifactError(f"state input {given}: a state has numbers, not {given.datatype}")


def _check_control(control: ControlInput, spec: TensorSpec, *, batches: bool) -> None:
    allowed = _IDS if control.kind == "CORRID" else _FLAGS
    if spec.datatype not in allowed:
        raise BadArtifactError(f"control input {spec} for {control.kind}: expected one of {', '.join(allowed)}")
    if any(size not in (1, -1) for size in spec.shape[1 if batches else 0 :]):
        raise BadArtifactError(f"control input {spec} for {control.kind}: expected one element a row")
