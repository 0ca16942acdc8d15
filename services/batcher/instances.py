"""The workers of the pod: each READY instance that the runtime speaks of is dialled; its link makes it a Worker."""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import structlog

from services.batcher.batcher import Batcher
from services.batcher.worker import Worker, WorkerFacts
from services.chassis.arena.arenas import Arenas
from services.chassis.link import Link, LinkClient
from services.chassis.wire import signature_from_proto
from services.core.batching_spec import Padding, SequenceBatching
from services.core.names import ModelVersion
from services.core.spec import BadValueError
from turnout.v1 import link_pb2
from turnout.v1 import runtime_pb2 as pb

log = structlog.get_logger()
Spawn = Callable[[Coroutine[Any, Any, None], str], object]


class Versions(Protocol):
    """Where a worker's batcher is found, and who hears that it came or went."""

    def batcher(self, facts: WorkerFacts) -> Batcher: ...
    def attach(self, worker: Worker) -> None: ...
    def changed(self) -> None: ...


class Instance:
    """One instance that is dialled; a LinkHandler for its link."""

    def __init__(
        self,
        facts: WorkerFacts,
        address: str,
        versions: Versions,
        hello: link_pb2.Hello,
        arenas: Arenas,
        clock: Callable[[], int],
    ) -> None:
        self.facts = facts
        self.worker: Worker | None = None
        self.is_leaving = False  # the runtime lets it go
        self.is_drained = False  # it says itself that it is let go; the runtime may say so later, with its successor
        self.is_retired = False  # gets no new batches
        self.on_idle: Callable[[], None] = lambda: None  # called when it is retired and done
        self.on_change: Callable[[], None] = lambda: None  # called when its link came or went, or it wants to leave
        self._versions = versions
        self._arenas = arenas
        self._clock = clock
        # No keepalive: a worker that computes is silent. The runtime watches for hangs, and its kill ends the link.
        self.client = LinkClient(address, self, hello, keepalive_s=0)

    def opened(self, link: Link) -> None:
        self.is_drained = False
        link.lender = self._arenas.lender(link)
        self.worker = Worker(self.facts, link, self._clock, link.lender)
        self.worker.accepting = not self.is_retired
        self._versions.attach(self.worker)
        self.on_change()

    def received(self, link: Link, frame: link_pb2.Frame) -> None:  # noqa: ARG002 - the handler's shape
        worker = self.worker
        if worker is None:
            return
        replies = frame.replies
        if replies:
            now_ns, batcher = self._clock(), self._versions.batcher(self.facts)
            for reply in replies[:]:
                batcher.replied(worker, reply, now_ns)
        elif frame.HasField("drain"):
            self.is_drained = True
            self.on_change()
        if self.is_retired and worker.is_done:
            self.on_idle()

    def closed(self, link: Link, reason: str) -> None:  # noqa: ARG002 - the handler's shape
        worker, self.worker = self.worker, None
        if worker is not None:
            self._versions.batcher(self.facts).detach(worker, reason)
            self.on_change()

    def retire(self) -> None:
        """No new batches; those under way finish."""
        self.is_retired = True
        if self.worker is not None:
            self.worker.accepting = self.worker.is_replaced = False

    def keep(self, facts: WorkerFacts) -> None:
        """It is READY, with these facts."""
        self.facts = facts
        self.is_leaving = False
        worker = self.worker
        if worker is None:
            self.is_retired = False
        elif self.is_retired or worker.facts != facts:
            self.is_retired = False
            batcher = self._versions.batcher(facts)
            others = [other.facts for other in batcher.workers if other.accepting and other is not worker]
            is_like = facts.digest == batcher.lobby.digest and all(other.runs_like(facts) for other in others)
            worker.facts = facts
            worker.accepting |= is_like and not self.is_drained
            worker.is_replaced = not (self.is_drained or worker.accepting)
            self._versions.changed()  # what it gets now is as it takes it
            self._versions.batcher(facts).pump(self._clock())


class Instances:
    """Follows the runtime's states."""

    def __init__(
        self, versions: Versions, hello: link_pb2.Hello, arenas: Arenas, spawn: Spawn, clock: Callable[[], int]
    ) -> None:
        self.by_id: dict[str, Instance] = {}
        self.expected = 0  # instances that are, or will be, ready
        self._versions = versions
        self._hello = hello
        self._arenas = arenas
        self._spawn = spawn
        self._clock = clock

    def apply(self, state: pb.RuntimeState) -> None:
        """Dial who is new, let go who is gone or draining."""
        ready = {
            instance.id: facts
            for instance in state.instances
            if instance.state == pb.READY and (facts := _facts(instance)) is not None
        }
        self.expected = sum(instance.state in {pb.LOADING, pb.READY, pb.BACKOFF} for instance in state.instances)
        for number, instance in self.by_id.items():
            instance.is_leaving = instance.is_leaving or number not in ready
        sockets = {instance.id: instance.data_socket for instance in state.instances}
        for number, facts in ready.items():
            if number in self.by_id:
                self.by_id[number].keep(facts)
            else:
                self._dial(facts, sockets[number])
        self.relieve()

    def relieve(self) -> None:
        """Retire who leaves; but not before a successor that is being dialled has come: it would leave a gap.

        Who only says so itself goes on until a successor is here, or the runtime lets it go: its word may come first.
        """
        staying = [each for each in self.by_id.values() if not (each.is_leaving or each.is_drained)]
        come = {instance.facts.name for instance in staying if instance.worker is not None}
        awaited = {instance.facts.name for instance in staying} - come
        for instance in self.by_id.values():
            name = instance.facts.name
            if instance.is_leaving:
                is_relieved = instance.worker is None or name not in awaited
            else:
                is_relieved = instance.is_drained and name in come
            if is_relieved:
                instance.retire()
        self.sweep()
        self._versions.changed()

    def sweep(self) -> None:
        """Close the links of retired instances that have nothing under way."""
        for number, instance in list(self.by_id.items()):
            if instance.is_retired and (instance.worker is None or instance.worker.is_done):
                del self.by_id[number]
                self._spawn(instance.client.close(), f"close-{number}")

    async def close(self) -> None:
        for instance in self.by_id.values():
            await instance.client.close()
        self.by_id.clear()

    def _dial(self, facts: WorkerFacts, socket: str) -> None:
        address = socket if socket.startswith("unix:") else f"unix:{socket}"
        instance = self.by_id[facts.id] = Instance(
            facts, address, self._versions, self._hello, self._arenas, self._clock
        )
        instance.on_idle, instance.on_change = self.sweep, self.relieve
        instance.client.start()
        log.info("instance_dialled", instance=facts.id, model=str(facts.name), slots=facts.slots)


def _facts(told: pb.Instance) -> WorkerFacts | None:
    """What is said of a ready instance; None where that cannot be understood: the others are served all the same."""
    try:
        return WorkerFacts(
            told.id,
            ModelVersion(told.model, told.version),
            told.digest,
            max(1, told.slots),
            signature_from_proto(told.signature),
            Padding.parse(told.pad_to) if told.pad_to else None,
            SequenceBatching.parse(told.sequence_batching) if told.sequence_batching else None,
            told.batching,
        )
    except BadValueError as error:
        log.warning("instance_not_understood", instance=told.id, model=told.model, reason=str(error))
        return None
