"""Where the requests of sequences are let in, and where each leaves; who leaves without an answer ends its sequence."""

from services.batcher import tally as counted
from services.batcher.door import Refusal
from services.batcher.lobby import Lobby
from services.batcher.quick_request import AnyRequest, QuickRequest
from services.batcher.request import DONE, Caller, Pending
from services.batcher.sequence_inputs import Controls
from services.batcher.sequence_queue import SequenceQueue, Step
from services.batcher.sequences import CANCELLED, FAILED, Sequence
from services.core.errors import DEADLINE_EXCEEDED, INVALID_ARGUMENT
from turnout.v1 import link_pb2 as pb


class SequenceLobby(Lobby):
    """A Lobby whose requests are steps of sequences."""

    __slots__ = ("controls",)
    queue: SequenceQueue
    controls: Controls

    def offer(self, caller: Caller, request: AnyRequest, number: int, now_ns: int) -> None:
        """Queue a request, or answer at once why not."""
        if request.rows != 1:
            message = f"a request of a sequence has 1 row, not {request.rows}; {self.name} keeps state for each"
            self._refuse(caller, number, Refusal(INVALID_ARGUMENT, message, counted.INVALID))
        elif request.shadow:
            message = f"{self.name} keeps state: a copy of a request cannot be compared without those before it"
            self._refuse(caller, number, Refusal(INVALID_ARGUMENT, message, counted.INVALID))
        else:
            super().offer(caller, request, number, now_ns)

    def _judge(self, pending: Pending, request: AnyRequest, now_ns: int) -> Refusal | None:
        refusal = super()._judge(pending, request, now_ns)
        if refusal is not None:
            return refusal
        step = _step(request)
        fault = self._fault(step)
        if step is None or fault:
            return Refusal(INVALID_ARGUMENT, fault, counted.INVALID)
        self.queue.expect(pending, step)
        return None

    def _fault(self, step: Step | None) -> str:
        """What is wrong with a request of these words."""
        if step is None:
            return f"{self.name} keeps state from request to request: send a sequence_id, and sequence_start at first"
        name = step.sequence
        if fault := self.controls.fault(name):
            return f"sequence_id {name!r} of {self.name} {fault}"
        if step.start or self.queue.table.find(name) is not None:
            return ""
        return self._not_active(name)

    def _not_active(self, name: int | str) -> str:
        why = self.queue.table.why_over(name)
        return f"sequence {name!r} of {self.name} is not active here: {why}; begin it anew with sequence_start"

    # -- out

    def cancel(self, pending: Pending) -> None:
        """Nobody waits for it any more: its sequence is over, since its state would lack this request."""
        if pending.state != DONE:
            super().cancel(pending)
            self._broken(pending, CANCELLED)

    def fail(
        self,
        pending: Pending,
        code: int,
        message: str,
        *,
        executed: pb.Executed = pb.EXECUTED_NO,
        retry_after_us: int = 0,
    ) -> None:
        """Answer with an error, which ends the sequence too."""
        if pending.state == DONE:
            return
        super().fail(pending, code, message, executed=executed, retry_after_us=retry_after_us)
        self._broken(pending, CANCELLED if code == DEADLINE_EXCEEDED else FAILED)

    def forget(self, caller: Caller) -> None:
        """Its link is gone: what it sent is over."""
        for pending in self.queue.table.end_of(caller, self._clock()):
            self.cancel(pending)
        self.look_again()

    def end(self, sequence: Sequence[Pending], reason: int) -> None:
        """A sequence is over; those of its requests that wait are told."""
        self.refuse(self.queue.table.end(sequence, reason, self._clock()))
        self.look_again()

    def refuse(self, waiting: list[Pending]) -> None:
        """Tell requests that waited in sequences that are over."""
        for pending in waiting:
            sequence = self.queue.sequence_of(pending)
            if sequence is not None:
                super().fail(pending, INVALID_ARGUMENT, self._not_active(sequence.id))

    def look_again(self) -> None:
        """A place may have become free: whoever got it can run."""
        if self.queue.ready_rows:
            now_ns = self._clock()
            self._alarm.set(now_ns, now_ns)

    def _broken(self, pending: Pending, reason: int) -> None:
        sequence = self.queue.sequence_of(pending)
        if sequence is not None:
            self.end(sequence, reason)


def _step(request: AnyRequest) -> Step | None:
    """What a request says of its sequence; None when it names none."""
    if isinstance(request, QuickRequest) or not request.HasField("sequence"):
        return None
    sequence = request.sequence
    name: int | str = sequence.text or sequence.number
    return Step(name, sequence.start, sequence.end) if name else None
