"""The tensors of a batch of sequences: the members' rows, zeros in empty ones, and what tells the model of them."""

import struct
from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

from services.batcher.assemble import Joined
from services.batcher.request import Pending
from services.core.batching_spec import ControlInput
from services.core.known_headers import Data
from services.core.signature import Signature
from services.core.tensor import BYTES, ELEMENT_BYTES, encode_bytes

_FLAGS = {"BOOL": "<?", "INT32": "<i", "FP32": "<f"}
_NUMBERS = {"UINT64": ("<Q", 64), "INT64": ("<Q", 64), "UINT32": ("<I", 32), "INT32": ("<I", 31)}
_EMPTY_TEXT = encode_bytes([b""])


class Row(NamedTuple):
    """What a row of a batch is of its sequence."""

    id: int | str
    number: int  # the batcher's own
    starts: bool
    ends: bool

    @property
    def entry(self) -> int:
        """As in Request.sequence_rows."""
        return self.number << 2 | self.starts << 1 | self.ends


class Controls:
    """The control inputs of an artifact."""

    def __init__(self, signature: Signature, controls: Sequence[ControlInput]) -> None:
        self.signature = signature
        specs = {spec.name: spec for spec in signature.inputs}
        self._write: dict[str, Callable[[Row | None], bytes]] = {}
        self._id_bits = 64
        self._takes_text = True
        for control in controls:
            spec = specs.get(control.name)
            if spec is None:
                continue
            if control.kind == "CORRID" and (spec.datatype == BYTES or spec.datatype in _NUMBERS):
                self._write[control.name] = _id_writer(spec.datatype)
                self._takes_text = spec.datatype == BYTES
                self._id_bits = 64 if self._takes_text else _NUMBERS[spec.datatype][1]
            elif control.kind != "CORRID" and spec.datatype in _FLAGS:
                self._write[control.name] = _flag_writer(control, spec.datatype)

    def fault(self, name: int | str) -> str:
        """Why the model cannot be told of a sequence of this id; empty when it can."""
        if isinstance(name, str):
            return "" if self._takes_text else "is text, and the model takes a number"
        return "" if name < 1 << self._id_bits else f"is too large: the model takes numbers of {self._id_bits} bits"

    def joined(self, members: Sequence[Pending], rows: Sequence[Row | None]) -> list[Joined]:
        """The inputs of a batch as the model takes them, but for the states: those the worker has."""
        signature = self.signature
        bucket = next(member.bucket for member, row in zip(members, rows, strict=True) if row is not None)
        places = {spec.name: place for place, spec in enumerate(bucket.intake.signature.inputs)}
        before = [len(rows)] if signature.batches else []
        inputs = []
        for spec in signature.inputs:
            write, place = self._write.get(spec.name), places.get(spec.name)
            inner = [1 if size < 0 else size for size in spec.shape[signature.batches :]]
            if write is not None:
                pieces: list[Data] = [b"".join(map(write, rows))]
            elif place is not None:
                inner = list(bucket.inner[place])
                empty = (_EMPTY_TEXT if spec.datatype == BYTES else bytes(ELEMENT_BYTES[spec.datatype])) * prod(inner)
                pieces = [
                    empty if row is None else member.inputs[place] for member, row in zip(members, rows, strict=True)
                ]
            else:
                continue
            inputs.append(Joined(spec.name, spec.datatype, [*before, *inner], pieces, sum(map(len, pieces))))
        return inputs


def _flag_writer(control: ControlInput, datatype: str) -> Callable[[Row | None], bytes]:
    """Writes one element of START, READY or END."""
    no, yes = (_flag(datatype, value) for value in control.false_true)
    if control.kind == "START":
        return lambda row: yes if row is not None and row.starts else no
    if control.kind == "END":
        return lambda row: yes if row is not None and row.ends else no
    return lambda row: no if row is None else yes


def _flag(datatype: str, value: float) -> bytes:
    code = _FLAGS[datatype]
    return struct.pack(code, value if datatype == "FP32" else int(value))


def _id_writer(datatype: str) -> Callable[[Row | None], bytes]:
    """Writes one element of CORRID; none in an empty row."""
    if datatype == BYTES:
        return lambda row: _EMPTY_TEXT if row is None else encode_bytes([str(row.id).encode()])
    pack = struct.Struct(_NUMBERS[datatype][0]).pack
    return lambda row: pack(row.id if row is not None else 0)
