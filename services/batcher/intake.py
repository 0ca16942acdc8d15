"""The door's check: a request's bytes are what the signature says, so that no neighbour in its batch can suffer."""

from services.batcher.buckets import Shapes
from services.batcher.padding import Padder
from services.batcher.quick_request import AnyRequest, LentRequest, QuickRequest
from services.core.errors import InvalidRequestError
from services.core.known_headers import Data
from services.core.signature import Given, Signature, check_inputs, row_bytes
from services.core.tensor import BYTES
from turnout.v1 import link_pb2 as pb

Inputs = tuple[list[Data], Shapes, int]  # bytes of each in the signature's order, their inner shapes, all bytes


class Intake:
    """Reads requests of one model version."""

    __slots__ = (
        "_fixed",
        "_inner",
        "_others",
        "batches",
        "is_fixed",
        "model",
        "name",
        "one_output",
        "padder",
        "signature",
    )

    def __init__(self, model: str, signature: Signature, padder: Padder | None = None, name: str = "") -> None:
        self.model = model
        self.signature = signature  # as callers see it
        self.name = name  # by which requests ask for it; empty = it is the usual one
        self._others = {other.name: Intake(model, other, None, other.name) for other in signature.more}
        self.padder = padder  # for rows of different lengths
        self.batches = signature.batches
        self.one_output = len(signature.outputs) == 1 and not signature.more
        self.is_fixed = not any(size < 0 for spec in signature.inputs for size in spec.shape[signature.batches :])
        self._inner: Shapes = tuple(spec.shape[1:] for spec in signature.inputs)
        sizes = [row_bytes(spec) for spec in signature.inputs]
        self._fixed: list[tuple[str, str, int]] = []  # when every row has a fixed size: name, datatype, bytes of a row
        if signature.batches and all(size is not None for size in sizes):
            self._fixed = [(s.name, s.datatype, size or 0) for s, size in zip(signature.inputs, sizes, strict=True)]

    def named(self, name: str) -> "Intake":
        """What reads requests for the signature that they name, if they do. Raises InvalidRequestError."""
        if not name:
            return self
        asked = self.signature.named(name)
        return self._others[name] if asked is not self.signature else self

    def is_like(self, other: "Intake") -> bool:
        """Whether both read alike, so that what they have read may share a batch."""
        pad_to, theirs = (intake.padder.padding if intake.padder is not None else None for intake in (self, other))
        return self.signature == other.signature and pad_to == theirs

    def read(self, request: AnyRequest, rows: int) -> Inputs:
        """The request's inputs. Raises InvalidRequestError naming the first fault.

        With rows of a fixed size, names, datatypes and byte counts say all that matters to the neighbours; whether the
        inner shape was spelt right was the router's to check.
        """
        if isinstance(request, QuickRequest):
            return self._read_quick(request)
        tensors, fixed = request.inputs, self._fixed
        if not fixed or len(tensors) != len(fixed):
            return self._read_checked(request, rows)
        inputs: list[Data] = []
        size = position = 0
        for name, datatype, each in fixed:
            tensor = tensors[position]  # iterating a repeated field costs three times as much
            data = tensor.data
            wanted = each * rows
            if len(data) != wanted or tensor.name != name or tensor.datatype != datatype:
                return self._read_checked(request, rows)
            inputs.append(data)
            size += wanted
            position += 1  # noqa: SIM113 - enumerate makes a tuple
        return inputs, self._inner, size

    def _read_quick(self, request: QuickRequest) -> Inputs:
        """The input of a request whose header is known: its layout is checked once, then only its data differs."""
        layout, data = request.layout, request.data
        if layout.checked is not self:
            given = layout.given._replace(data=data)
            found = check_inputs(self.model, self.signature, [given])
            if found != layout.rows:
                raise InvalidRequestError(f"the request says {layout.rows} rows, its inputs have {found}")
            layout.inner = (tuple(given.shape[1 if self.batches else 0 :]),)
            if given.datatype != BYTES:  # right or wrong by its content, not only by its length
                layout.checked = self
        return [data], layout.inner, len(data)

    def _read_checked(self, request: pb.Request | LentRequest, rows: int) -> Inputs:
        given = [Given(t.name, t.datatype, tuple(t.shape), t.data) for t in request.inputs]
        found = check_inputs(self.model, self.signature, given)
        if found != rows:
            raise InvalidRequestError(f"the request says {rows} rows, its inputs have {found}")
        by_name = {tensor.name: tensor for tensor in given}
        ordered = [by_name[spec.name] for spec in self.signature.inputs]
        first = 1 if self.batches else 0
        inner = tuple(tuple(tensor.shape[first:]) for tensor in ordered)
        inputs: list[Data] = [tensor.data for tensor in ordered]
        return inputs, inner, sum(map(len, inputs))
