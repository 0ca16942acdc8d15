"""Answers, written straight into the caller's outgoing frame.

Those of one batch differ in a few numbers and in their rows only, so all else is encoded once; an answer is then a
concatenation of fields of turnout.v1.Reply.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from services.batcher.collate import Column
from services.batcher.request import DONE, Caller, Pending
from services.batcher.worker import Batch
from services.chassis.framing import MAX_OUTPUT_BYTES
from services.chassis.quick_reply import ID, NUMBERS, STAGES_BYTES, STAGES_NS, TOTAL_NS, WAIT_US
from services.core.errors import RESOURCE_EXHAUSTED
from services.core.known_headers import Data
from services.core.protowire import varint
from turnout.v1 import link_pb2 as pb
from turnout.v1 import tensor_pb2

_ENVELOPE_BYTES = 160  # of an answer without outputs, around its message
# Tags are protobuf's: field number << 3 | wire type.
_REPLIES, _OUTPUTS, _DATA = b"\x1a", b"\x2a", b"\x22"  # Frame.replies, Reply.outputs, Tensor.data
_RETRIES = b"\x48"  # Reply.retries
_MOST_LAYOUTS = 1024
_Named = TypeVar("_Named", Column, tensor_pb2.Tensor)


def error_reply(
    number: int, code: int, message: str, *, executed: pb.Executed = pb.EXECUTED_NO, retry_after_us: int = 0
) -> pb.Reply:
    """An answer without outputs."""
    return pb.Reply(id=number, code=code, message=message, executed=executed, final=True, retry_after_us=retry_after_us)


def send_error(caller: Caller, reply: pb.Reply) -> None:
    """Put an answer without outputs into the caller's outgoing frame; its request is done."""
    caller.link.frame_for(len(reply.message) + _ENVELOPE_BYTES).replies.append(reply)
    if caller.lent:
        caller.give_back(reply.id)


class Layouts:
    """What is encoded once for many batches of one model version."""

    __slots__ = ("_befores", "_commons")

    def __init__(self) -> None:
        self._befores: dict[tuple[str, str, tuple[int, ...], int], bytes] = {}
        self._commons: dict[tuple[int, str], bytes] = {}

    def before(self, column: Column, inner: tuple[int, ...], rows: int, size: int) -> bytes:
        """What stands before `size` bytes of data, `rows` rows of shape `inner`, of a column of numbers."""
        key = (column.name, column.datatype, inner, rows)
        before = self._befores.get(key)
        if before is None:
            if len(self._befores) >= _MOST_LAYOUTS:
                self._befores.clear()
            before = _before(column.name, column.datatype, (rows, *inner), size)
            self._befores[key] = before
        return before

    def common(self, batch_rows: int, digest: str) -> bytes:
        """The fields that all answers to a batch have in common, but for numbers."""
        common = self._commons.get((batch_rows, digest))
        if common is None:
            if len(self._commons) >= _MOST_LAYOUTS:
                self._commons.clear()
            reply = pb.Reply(executed=pb.EXECUTED_YES, batch_rows=batch_rows, digest=digest, final=True)
            common = self._commons[batch_rows, digest] = reply.SerializeToString()
        return common


class Scatter:
    """The answers to one batch that ran well."""

    __slots__ = (
        "_batch",
        "_clock",
        "_common",
        "_layouts",
        "_reply",
        "_since_ns",
        "_wait_us",
        "count",
        "middle_ns",
        "queue_ns",
        "scatter_ns",
    )

    def __init__(
        self,
        batch: Batch,
        reply: pb.Reply,
        received_ns: int,
        expected_wait_us: int,
        layouts: Layouts,
        clock: Callable[[], int],
    ) -> None:
        self._batch = batch
        self._reply = reply
        self._since_ns = received_ns
        self._wait_us = expected_wait_us
        self._layouts = layouts
        self._clock = clock
        self.count = 0  # members answered
        self.queue_ns = 0  # of all members together
        self.scatter_ns = 0
        inside = reply.stages_ns[:3] if len(reply.stages_ns) >= 3 else [0, 0, 0]  # a slice is made in C
        wait_ns = max(0, received_ns - batch.sent_ns - sum(inside))
        self.middle_ns = (batch.sent_ns - batch.picked_ns, wait_ns, *inside)  # assemble to d2h: the same for all
        self._common = layouts.common(batch.rows, reply.digest)

    def whole(self) -> None:
        """The only member gets all outputs as they are."""
        (pending,) = self._batch.members
        if pending.state != DONE:
            outputs = _wanted(pending, self._reply.outputs, self._usual(self._reply.outputs))
            befores = [_before(t.name, t.datatype, t.shape[:], len(t.data)) for t in outputs]
            self._answer(pending, befores, [tensor.data for tensor in outputs])

    def split(self, columns: Sequence[Column]) -> None:
        """Each member gets its rows of all outputs."""
        usual = self._usual(columns)
        is_fixed = all(column.row_bytes >= 0 and not column.is_ragged for column in columns)
        head = b""
        between: list[tuple[bytes, Data, int]] = []
        start = 0
        shaped = (-1, -1)
        for pending in self._batch.members:
            rows = pending.rows
            stop = start + rows
            if pending.state == DONE:
                pass
            elif pending.whole is not None or pending.wanted or not is_fixed:
                self._answer_one(pending, _wanted(pending, columns, usual), start, stop)
            else:
                if shaped != (rows, pending.retries):
                    shaped = (rows, pending.retries)
                    befores = [self._layouts.before(c, c.inner, rows, rows * c.row_bytes) for c in usual]
                    head = self._head(pending.retries, befores, sum([rows * c.row_bytes for c in usual]))
                    between = [(before, c.data, c.row_bytes) for before, c in zip(befores, usual, strict=True)]
                parts: list[Data] = [head, self._numbers(pending), self._common]
                for before, data, each in between:
                    parts += (before, data[start * each : stop * each])
                if pending.turn is None:
                    pending.caller.link.send_encoded(*parts)
                else:
                    pending.turn.say(*parts)
            start = stop

    def _usual(self, outputs: Sequence[_Named]) -> Sequence[_Named]:
        """Those of `outputs` that members get who name none."""
        on_request = self._batch.first.bucket.intake.signature.on_request
        return [output for output in outputs if output.name not in on_request] if on_request else outputs

    def _answer_one(self, pending: Pending, chosen: Sequence[Column], start: int, stop: int) -> None:
        """Answer a member that is unlike the others; of a part of a request, keep it until the last has come."""
        root = pending.whole or pending
        pieces: list[Data] = [column.rows_of(pending, start, stop) for column in chosen]
        if root.parts is not None:
            pending.state = DONE
            parts = root.parts
            parts.outputs[parts.members.index(pending)] = pieces
            parts.size += sum(map(len, pieces))
            if parts.size > MAX_OUTPUT_BYTES:
                message = (
                    f"outputs of {root.rows} rows take over {MAX_OUTPUT_BYTES} bytes, the most of one answer: "
                    "ask for fewer rows or fewer outputs"
                )
                root.home.fail(root, RESOURCE_EXHAUSTED, message, executed=pb.EXECUTED_YES)
                return
            parts.left -= 1
            if parts.left:
                return
            root.retries = max([part.retries for part in parts.members])
            pieces = [b"".join(rows) for rows in zip(*parts.outputs, strict=True)]
        befores = []
        for column, piece in zip(chosen, pieces, strict=True):
            inner, size = column.inner_of(pending), len(piece)
            if column.row_bytes >= 0:
                befores.append(self._layouts.before(column, inner, root.rows, size))
            else:
                befores.append(_before(column.name, column.datatype, (root.rows, *inner), size))
        self._answer(root, befores, pieces)

    def _answer(self, pending: Pending, befores: list[bytes], pieces: Sequence[Data]) -> None:
        head = self._head(pending.retries, befores, sum(map(len, pieces)))
        outputs = [part for pair in zip(befores, pieces, strict=True) for part in pair]
        send = pending.caller.link.send_encoded if pending.turn is None else pending.turn.say
        send(head, self._numbers(pending), self._common, *outputs)

    def _head(self, retries: int, befores: Sequence[bytes], data_bytes: int) -> bytes:
        """What stands before the numbers of an answer: its tag, its size, and the retries if there were any."""
        extra = _RETRIES + varint(retries) if retries else b""
        size = len(extra) + NUMBERS.size + len(self._common) + sum(map(len, befores)) + data_bytes
        return _REPLIES + varint(size) + extra

    def _numbers(self, pending: Pending) -> bytes:
        """The numbers that are the member's own; it is done with them."""
        now_ns = self._clock()
        arrival_ns = pending.arrival_ns
        queue_ns = self._batch.picked_ns - arrival_ns
        scatter_ns = now_ns - self._since_ns
        self.count += 1
        self.queue_ns += queue_ns
        self.scatter_ns += scatter_ns
        number, caller = pending.id, pending.caller
        pending.state = DONE
        del caller.pending[number]
        if caller.lent:
            caller.give_back(number)
        return NUMBERS.pack(
            ID, number, WAIT_US, self._wait_us, TOTAL_NS, now_ns - arrival_ns,
            STAGES_NS, STAGES_BYTES, queue_ns, *self.middle_ns, scatter_ns,
        )  # fmt: skip


def _wanted(pending: Pending, outputs: Sequence[_Named], usual: Sequence[_Named]) -> Sequence[_Named]:
    """Those of `outputs` that a request asked for, in its order; the usual ones when it asked for none."""
    if not pending.wanted:
        return usual
    named = {output.name: output for output in outputs}
    return [named[name] for name in dict.fromkeys(pending.wanted) if name in named]


def _before(name: str, datatype: str, shape: Sequence[int], size: int) -> bytes:
    """What stands before the `size` bytes of data of one output."""
    tensor = tensor_pb2.Tensor(name=name, datatype=datatype, shape=shape).SerializeToString()
    inside = tensor + _DATA + varint(size)
    return _OUTPUTS + varint(len(inside) + size) + inside
