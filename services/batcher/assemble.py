"""A batch as it goes to its worker: one tensor an input, the members' rows one after the other."""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from services.batcher.request import Pending
from services.chassis.arena import LEAST_BYTES, Lender
from services.core.known_headers import Data
from services.core.names import ModelVersion
from services.core.protowire import bytes_field, packed_field, tag, varint, varint_field
from services.core.signature import Signature

_NUMBERS = struct.Struct("<BQBQ")  # id and deadline: a tag and a fixed64 each
_ID, _DEADLINE = tag(1, 1)[0], tag(5, 1)[0]
_JOINED_BYTES = 64 << 10  # of an input that is joined here; a larger one is joined on its way into the socket


class Joined(NamedTuple):
    """One input of a batch, in pieces that follow each other."""

    name: str
    datatype: str
    shape: list[int]
    pieces: list[Data]
    size: int  # bytes of all pieces


def joined(signature: Signature, rows: int, members: Sequence[Pending]) -> list[Joined]:
    """The inputs of a batch of `members`, as the model takes them."""
    bucket = members[0].bucket
    padder = bucket.intake.padder
    if padder is not None:
        return [
            Joined(spec.name, spec.datatype, shape, pieces, sum(map(len, pieces)))
            for spec, shape, pieces in padder.fill(members, bucket.inner)
        ]
    inputs = []
    before = [rows] if signature.batches else []
    for position, spec in enumerate(signature.inputs):
        pieces: list[Data] = [member.inputs[position] for member in members]
        shape = [*before, *bucket.inner[position]]
        inputs.append(Joined(spec.name, spec.datatype, shape, pieces, sum(map(len, pieces))))
    return inputs


def wanted(members: Sequence[Pending], signature: Signature) -> bytes:
    """Request.outputs of a batch: each that a member names, and the usual ones where one names none.

    Empty = the usual ones.
    """
    named = [member.wanted for member in members]
    if not any(named):
        return b""
    names = {name for each in named for name in each}
    if not all(named):
        names.update(signature.usual_outputs())
    return b"".join(bytes_field(7, spec.name.encode()) for spec in signature.outputs if spec.name in names)


def encoded(
    number: int,
    name: ModelVersion,
    rows: int,
    members: Sequence[Pending],
    inputs: Sequence[Joined],
    left_us: int,
    extra: bytes,
    lender: Lender | None = None,
) -> list[Data]:
    """A batch as Frame.requests (see link.proto), in parts: members' bytes are copied but once.

    Large inputs are copied into shared memory if `lender` has room, all else into the frame. `left_us`: until nobody
    waits for it any more; 0 = no such time. `extra`: further fields of the request, encoded.
    """
    parts: list[Data] = [_NUMBERS.pack(_ID, number, _DEADLINE, left_us) + _addressed(name, rows) + extra]
    if len(members) == 1 and members[0].request_id:
        parts.append(bytes_field(12, members[0].request_id.encode()))
    for name_, datatype, shape, pieces, size in inputs:
        tensor = _described(name_, datatype, tuple(shape))
        block = lender.lend(pieces, size) if lender is not None and size >= LEAST_BYTES else None
        if block is not None:
            parts.append(bytes_field(6, tensor + bytes_field(5, block)))
            continue
        tensor += tag(4, 2) + varint(size)
        parts.append(tag(6, 2) + varint(len(tensor) + size) + tensor)
        parts += [b"".join(pieces)] if size <= _JOINED_BYTES or any(map(_is_lent, pieces)) else pieces
    return [tag(2, 2) + varint(sum(map(len, parts))), *parts]


@lru_cache(maxsize=512)
def _addressed(name: ModelVersion, rows: int) -> bytes:
    """Request.model, version and rows: the same few again and again."""
    return bytes_field(2, name.model.encode()) + bytes_field(3, name.version.encode()) + varint_field(4, rows)


@lru_cache(maxsize=512)
def _described(name: str, datatype: str, shape: tuple[int, ...]) -> bytes:
    """A Tensor without its data."""
    return bytes_field(1, name.encode()) + bytes_field(2, datatype.encode()) + packed_field(3, list(shape))


def _is_lent(piece: Data) -> bool:
    """Whether it lies in shared memory: the request may leave, and its block be written anew, before the frame does."""
    return isinstance(piece, memoryview) and not isinstance(piece.obj, bytes)
