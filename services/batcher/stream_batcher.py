"""The batcher of a decoupled model: a request alone in its slot, its answers passed on as they come (docs/adr/0031).

Nothing of an answer is kept here: the credit that lets a worker send one comes from whoever reads them in the end. A
request that nobody waits for any more is cancelled at its worker, and its slot is free once the worker says so.
"""

from collections.abc import Callable

from services.batcher.alarm import CallLater
from services.batcher.answers import Answers
from services.batcher.batcher import Batcher, Parts
from services.batcher.collate import Column
from services.batcher.device import Device
from services.batcher.door import Refusal
from services.batcher.launcher import Launcher
from services.batcher.lobby import Lobby
from services.batcher.policy import BatchPolicy
from services.batcher.queue import Queue
from services.batcher.quick_request import AnyRequest
from services.batcher.recovery import Recovery
from services.batcher.request import DONE, LAUNCHED, Caller, Pending
from services.batcher.sequence_batcher import SequenceBatcher
from services.batcher.tally import INVALID
from services.batcher.worker import Batch, Worker
from services.chassis.streamed import InOrder
from services.core.batching_spec import Padding
from services.core.errors import CANCELLED, INTERNAL, UNIMPLEMENTED
from services.core.names import ModelVersion
from services.core.protowire import varint_field
from services.core.signature import Signature
from turnout.v1 import link_pb2 as pb

_CREDIT = 19  # Request.credit


class StreamBatch(Batch):
    """One request, and how far it has been answered."""

    __slots__ = ("credit", "order", "worker")

    def __init__(self, batch: Batch, worker: Worker, credit: int) -> None:
        super().__init__(batch.members, batch.picked_ns, suspect=batch.suspect)
        self.worker = worker
        self.credit = credit
        self.order = InOrder()

    def extra(self) -> bytes:
        return super().extra() + varint_field(_CREDIT, self.credit)

    def stages(self, reply: pb.Reply, now_ns: int) -> tuple[int, ...]:
        """Reply.stages_ns of what a worker said just now."""
        compute_ns = sum(reply.stages_ns[:3])
        waited_ns = max(0, now_ns - self.sent_ns - compute_ns)
        queue_ns = self.picked_ns - self.first.arrival_ns
        return queue_ns, self.sent_ns - self.picked_ns, waited_ns, 0, compute_ns, 0, 0


class StreamLobby(Lobby):
    """Knows where each request is answered, and what its caller has room for."""

    __slots__ = ("credits", "running")

    credits: dict[Pending, int]
    running: dict[Pending, StreamBatch]

    def offer(self, caller: Caller, request: AnyRequest, number: int, now_ns: int) -> None:
        """Queue a request, or answer at once why not."""
        given = request.credit
        if not given:
            message = f"{self.name} is decoupled, it answers any number of times: this request takes one answer only"
            self._refuse(caller, number, Refusal(UNIMPLEMENTED, message, INVALID))
            return
        super().offer(caller, request, number, now_ns)
        pending = caller.pending.get(number)
        if pending is not None:
            self.credits[pending] = given

    def credit(self, pending: Pending, given: int) -> None:
        """Its caller has room for more of its answers."""
        batch = self.running.get(pending)
        if batch is None or pending.state != LAUNCHED:
            self.credits[pending] += given
            return
        for number, other in batch.worker.in_flight.items():
            if other is batch:
                batch.worker.credit(number, given)

    def answered(self, pending: Pending) -> None:
        """Its last answer is on its way."""
        self._leave(pending)

    def _answers_to(self, root: Pending) -> int:
        batch = self.running.get(root)
        return batch.order.count if batch is not None else 0

    def _leave(self, root: Pending) -> None:
        was_running = root.state == LAUNCHED
        batch = self.running.pop(root, None)
        self.credits.pop(root, None)
        super()._leave(root)
        if batch is None or not was_running:
            return
        for number, other in batch.worker.in_flight.items():
            if other is batch:
                batch.worker.cancel(number)


class StreamLauncher(Launcher):
    """Gives requests to workers, each by itself."""

    _lobby: StreamLobby

    def _launch(self, worker: Worker, batch: Batch, now_ns: int) -> None:
        pending = batch.first
        streamed = self._lobby.running[pending] = StreamBatch(batch, worker, self._lobby.credits[pending])
        super()._launch(worker, streamed, now_ns)


class StreamRecovery(Recovery):
    """A request may run again only while nobody has seen an answer to it."""

    def failed(self, batch: Batch, reply: pb.Reply, *, again: bool) -> None:
        """A worker ended a request with an error, or as it was told to."""
        if reply.code == CANCELLED:
            self.end(batch, INTERNAL, "its worker ended it", pb.EXECUTED_YES)
        elif _answers(batch):
            self.end(batch, reply.code, reply.message, pb.EXECUTED_YES)
        else:
            super().failed(batch, reply, again=again)

    def lost(self, batch: Batch, now_ns: int) -> None:
        """A worker died with a request."""
        count = _answers(batch)
        if count:
            message = f"the process of {self._lobby.name} died with this request, after {count} answers"
            self.end(batch, INTERNAL, message, pb.EXECUTED_YES)
        else:
            super().lost(batch, now_ns)


class StreamAnswers(Answers):
    """The ends of requests that went well. How long they take says nothing about the next: nothing is learnt."""

    _lobby: StreamLobby

    def learn(self, worker: Worker, batch: Batch, took_ns: int, now_ns: int) -> None:
        worker.recount(now_ns)
        self._lobby.tally.ran(batch.rows, took_ns, now_ns)

    def read(self, batch: Batch, reply: pb.Reply) -> list[Column] | None:  # noqa: ARG002 - there is nothing in it
        return []

    def send(self, batch: Batch, reply: pb.Reply, columns: list[Column], now_ns: int) -> None:  # noqa: ARG002
        """Tell the caller that there will be no more answers."""
        pending, lobby = batch.first, self._lobby
        if pending.state == DONE or not isinstance(batch, StreamBatch):
            return
        queue_ns, *middle, scatter_ns = batch.stages(reply, now_ns)
        pass_on(batch, reply, now_ns)
        lobby.answered(pending)
        lobby.tally.answered(1, queue_ns, tuple(middle), scatter_ns)
        lobby.tally.told_apart(batch.rows, tuple(middle), scatter_ns)


class StreamBatcher(Batcher):
    """Queue and workers of one decoupled model version."""

    parts = Parts(Queue, StreamLobby, StreamRecovery, StreamLauncher)
    streams = True
    lobby: StreamLobby

    def __init__(
        self,
        name: ModelVersion,
        signature: Signature,
        policy: BatchPolicy,
        device: Device,
        *,
        pad_to: Padding | None = None,
        clock: Callable[[], int],
        call_later: CallLater,
    ) -> None:
        super().__init__(name, signature, policy, device, pad_to=pad_to, clock=clock, call_later=call_later)
        self.lobby.credits = {}
        self.lobby.running = {}
        self._answers = StreamAnswers(self.lobby, self._recovery, self.tuner, clock)

    def replied(self, worker: Worker, reply: pb.Reply, now_ns: int) -> None:
        """A worker has an answer, or no more of them."""
        batch = worker.in_flight.get(reply.id)
        if not isinstance(batch, StreamBatch):
            super().replied(worker, reply, now_ns)
            return
        is_first = not batch.order.count
        for each in batch.order.take(reply):
            if each.final:
                super().replied(worker, each, now_ns)
                return
            self.lobby.tally.streamed += 1
            if batch.first.state != DONE:
                pass_on(batch, each, now_ns)
        if is_first and batch.order.count:  # it may go on for long, and mostly waits: others may use the device
            self.launcher.landed(batch, 0)
            self.launcher.pump(now_ns)


def pass_on(batch: StreamBatch, reply: pb.Reply, now_ns: int) -> None:
    """Send a worker's reply on to the caller: from now on it is the batcher's own."""
    pending = batch.first
    reply.stages_ns[:] = batch.stages(reply, now_ns)
    reply.id, reply.retries, reply.total_ns = pending.id, pending.retries, now_ns - pending.arrival_ns
    pending.caller.link.frame_for(reply.ByteSize()).replies.append(reply)


def _answers(batch: Batch) -> int:
    return batch.order.count if isinstance(batch, StreamBatch) else 0


def batcher_for(
    name: ModelVersion,
    signature: Signature,
    policy: BatchPolicy,
    device: Device,
    *,
    pad_to: Padding | None = None,
    clock: Callable[[], int],
    call_later: CallLater,
) -> Batcher:
    """The batcher that a version needs."""
    kind = Batcher if policy.sequences is None else SequenceBatcher
    if signature.decoupled:
        kind = StreamBatcher
    return kind(name, signature, policy, device, pad_to=pad_to, clock=clock, call_later=call_later)
