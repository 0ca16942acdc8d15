"""Ragged rows in one batch: the shorter ones are filled up to a common length, their answers cut back.

A *length* is dimension 1 of every padded input. Nothing here knows an array library: rows are bytes, joined with what
fills them up.
"""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple, Protocol

from services.batcher.buckets import Shapes
from services.batcher.collate import Column, WrongRowsError
from services.batcher.tally import PaddingTally
from services.core.batching_spec import Padding
from services.core.element import element, most_exact
from services.core.errors import InvalidRequestError
from services.core.known_headers import Data
from services.core.padding import check_padding, rounded
from services.core.signature import Signature, TensorSpec
from services.core.tensor import ELEMENT_BYTES

_MOST_KNOWN = 1024  # shapes of requests
_KEPT_BYTES = 1 << 20  # of what fills an input up; more is made anew each time


class Ragged(Protocol):
    """What is known of a member of a batch here."""

    inputs: list[Data]
    rows: int
    length: int
    size: int


class Place(NamedTuple):
    """Where requests of one length wait: the inner shapes that they have once filled up."""

    length: int  # of the request
    shapes: Shapes
    extra_bytes: int  # that a row takes in its batch beyond what the caller sent


class Filled(NamedTuple):
    """One input of a batch, in pieces that follow each other."""

    spec: TensorSpec
    shape: list[int]
    pieces: list[Data]


class Padder:
    """`pad_to` as it holds for one model version. Raises BadPaddingError when it cannot."""

    __slots__ = ("_fillers", "_known", "_length", "_longest", "_mask", "_specs", "_tally", "padding")

    def __init__(self, padding: Padding, signature: Signature, tally: PaddingTally) -> None:
        check_padding(padding, signature)
        by_name = {spec.name: spec for spec in signature.inputs}
        self._specs = signature.without(padding.told()).inputs  # what callers send
        self._fillers = {
            position: Filler(element(spec.datatype, padding.inputs[spec.name]))
            for position, spec in enumerate(self._specs)
            if spec.name in padding.inputs
        }
        self._mask = Ruler(by_name[padding.mask]) if padding.mask is not None else None
        self._length = by_name[padding.length] if padding.length is not None else None
        self._longest = most_exact(self._length.datatype) if self._length is not None else 1 << 62
        self.padding = padding
        self._known: dict[Shapes, Place] = {}
        self._tally = tally

    def place(self, inner: Shapes) -> Place:
        """Where a request of these inner shapes waits. Raises InvalidRequestError when its inputs differ in length."""
        place = self._known.get(inner)
        if place is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            place = self._known[inner] = self._placed(inner)
        return place

    def settle(self, member: Ragged, inner: Shapes) -> Shapes:
        """Where `member`, of these inner shapes, waits; its length and its size in the batch are noted."""
        place = self.place(inner)
        member.length = place.length
        member.size += member.rows * place.extra_bytes
        return place.shapes

    def own(self, shapes: Shapes, length: int) -> Shapes:
        """The inner shapes of a request of `length` that waits where `shapes` do."""
        return self._with_length(shapes, length)

    def fill(self, members: Sequence[Ragged], shapes: Shapes) -> list[Filled]:
        """The inputs of a batch of `members` that wait where `shapes` do, the ones that callers do not send included.

        Shapes are [rows, …inner], all rows as long as the place.
        """
        rows = sum([member.rows for member in members])
        length = shapes[next(iter(self._fillers))][0]
        batch = []
        for position, spec in enumerate(self._specs):
            filler, inner = self._fillers.get(position), shapes[position]
            pieces: list[Data] = [member.inputs[position] for member in members]
            if filler is not None:
                pieces = filler.fill(members, pieces, length, filler.bytes_at(inner))
            batch.append(Filled(spec, [rows, *inner], pieces))
        if self._mask is not None:
            batch.append(Filled(self._mask.spec, [rows, length], self._mask.masks(members, length)))
        if self._length is not None:
            batch.append(_lengths(self._length, rows, members))
        self._count(members, rows * length)
        return batch

    def mark(self, columns: Sequence[Column], shapes: Shapes) -> None:
        """Have those outputs of a batch cut back that are to be. Raises WrongRowsError for one that cannot be."""
        for column in columns:
            if column.name in self.padding.outputs:
                length = shapes[next(iter(self._fillers))][0]
                if column.inner[:1] != (length,):
                    raise WrongRowsError(
                        f"output {column.name!r} has rows of shape {list(column.inner)} where rows are filled up to"
                        f" length {length}: it cannot be cut back"
                    )
                column.is_ragged = True

    def _placed(self, inner: Shapes) -> Place:
        lengths = [inner[position][0] for position in self._fillers]
        length = lengths[0]
        if lengths != [length] * len(lengths):
            said = ", ".join(f"{self._specs[at].name!r} {inner[at][0]}" for at in self._fillers)
            raise InvalidRequestError(f"padded inputs must have one length (dimension 1), they have {said}")
        if length > self._longest and self._length is not None:
            raise InvalidRequestError(
                f"rows have length {length}, input {self._length.name!r} of datatype {self._length.datatype} tells up"
                f" to {self._longest}"
            )
        padded = rounded(length, self.padding.sizes)
        extra = sum([(padded - length) * filler.bytes_at(inner[at]) for at, filler in self._fillers.items()])
        extra += ELEMENT_BYTES[self._mask.spec.datatype] * padded if self._mask is not None else 0
        extra += ELEMENT_BYTES[self._length.datatype] if self._length is not None else 0
        return Place(length, self._with_length(inner, padded), extra)

    def _with_length(self, inner: Shapes, length: int) -> Shapes:
        fillers = self._fillers
        return tuple([(length, *shape[1:]) if at in fillers else shape for at, shape in enumerate(inner)])

    def _count(self, members: Sequence[Ragged], positions: int) -> None:
        tally = self._tally
        real = sum([member.rows * member.length for member in members])
        tally.real += real
        tally.filled += positions - real
        tally.shares.observe((positions - real) / positions if positions else 0.0)


class Filler:
    """Fills one input up."""

    __slots__ = ("_strip", "_unit")

    def __init__(self, unit: bytes) -> None:
        self._unit = unit
        self._strip = memoryview(b"")  # as many units as were needed at once so far

    def bytes_at(self, inner: tuple[int, ...]) -> int:
        """Bytes at each position of a row of this inner shape."""
        return len(self._unit) * prod(inner[1:])

    def fill(self, members: Sequence[Ragged], data: Sequence[Data], length: int, each: int) -> list[Data]:
        """`data` of the members, each row filled up to `length` positions of `each` bytes."""
        pieces: list[Data] = []
        for member, own in zip(members, data, strict=True):
            rows, gap = member.rows, (length - member.length) * each
            if not gap or not rows:
                pieces.append(own)
            elif rows == 1:
                pieces += (own, self._gap(gap))
            else:
                pieces += _interleaved(own, rows, member.length * each, bytes(self._gap(gap)))
        return pieces

    def _gap(self, size: int) -> memoryview:
        if size > len(self._strip):
            strip = memoryview(self._unit * (size // len(self._unit)))
            if size > _KEPT_BYTES:
                return strip
            self._strip = strip
        return self._strip[:size]


class Ruler:
    """Makes the mask: 1 where a row is, 0 where it was filled up."""

    __slots__ = ("_one", "_zero", "spec")

    def __init__(self, spec: TensorSpec) -> None:
        self.spec = spec
        self._one = element(spec.datatype, 1)
        self._zero = bytes(len(self._one))

    def masks(self, members: Sequence[Ragged], length: int) -> list[Data]:
        """[rows of the member, length] for each member."""
        one, zero = self._one, self._zero
        return [
            (one * member.length + zero * (length - member.length)) * member.rows if member.rows else b""
            for member in members
        ]


def _interleaved(data: Data, rows: int, row_bytes: int, gap: bytes) -> list[Data]:
    """Each row of `data` and then the gap. For rows of many members a join beats an array library, see ADR 15."""
    if not row_bytes:
        return [gap * rows]
    return [gap.join([data[at : at + row_bytes] for at in range(0, rows * row_bytes, row_bytes)]), gap]


def _lengths(spec: TensorSpec, rows: int, members: Sequence[Ragged]) -> Filled:
    pieces: list[Data] = [element(spec.datatype, member.length) * member.rows for member in members]
    return Filled(spec, [rows, 1][: len(spec.shape)], pieces)
