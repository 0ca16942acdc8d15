"""Which model versions this pod serves: their batchers, what callers are told on their links, the endpoints in etcd."""

import secrets
from collections.abc import Callable

from services.batcher.alarm import CallLater
from services.batcher.batcher import Batcher
from services.batcher.device import Device
from services.batcher.policy import BatchPolicy
from services.batcher.stream_batcher import batcher_for
from services.batcher.tally import Tally
from services.batcher.worker import Worker, WorkerFacts
from services.chassis.etcd import Registration
from services.chassis.wire import signature_to_proto
from services.core import keys
from services.core.batching_spec import states_and_controls
from services.core.model_spec import ModelSpec, batched
from services.core.names import ModelVersion
from services.core.registry import Endpoint
from turnout.v1 import link_pb2 as pb

SpecOf = Callable[[str, str], ModelSpec]
_MOST_PAST = 256  # versions that are not here any more, whose counts are kept


class Endpoints:
    """endpoints/MODEL/VERSION/REPLICA of this pod, kept as they should be."""

    def __init__(self, registration: Registration, pod: str) -> None:
        self.replica = f"{pod}-{secrets.token_hex(4)}"
        self.keys: set[str] = set()
        self._registration = registration

    def set(self, endpoints: dict[ModelVersion, Endpoint]) -> None:
        """Exactly these from now on."""
        wanted = {keys.endpoint(*name, self.replica): endpoint for name, endpoint in endpoints.items()}
        for key in self.keys - wanted.keys():
            self._registration.remove(key)
        for key, endpoint in wanted.items():
            self._registration.put(key, endpoint.dump())
        self.keys = set(wanted)


class Serving:
    """The batchers by model and version, and what the world is told of them."""

    def __init__(
        self, spec_of: SpecOf, endpoints: Endpoints, device: Device, *, clock: Callable[[], int], call_later: CallLater
    ) -> None:
        self.batchers: dict[tuple[str, str], Batcher] = {}
        self.tallies: dict[tuple[str, str], Tally] = {}  # they go on where a version comes back
        self.place = Endpoint(address="", digest="", signature_hash="", slots=0, max_batch_rows=0)  # the part all share
        self.endpoints = endpoints
        self.message = pb.Serving()
        self.tell: Callable[[pb.Serving], None] = lambda _: None  # all links
        self._spec_of = spec_of
        self._device = device
        self._clock = clock
        self._call_later = call_later
        self._listed = False  # may stand in endpoints/
        self._quiet: Callable[[], None] | None = None  # set once the pod drains
        self._facts: dict[tuple[str, str], WorkerFacts] = {}  # of the newest worker that takes or took batches

    def batcher(self, facts: WorkerFacts) -> Batcher:
        """The batcher of a worker's model version, made when it is the first."""
        batcher = self.batchers.get(facts.name)
        if batcher is None:
            self._facts[facts.name] = facts
            batcher = self.batchers[facts.name] = self._make(facts, self._policy(facts))
        return batcher

    def attach(self, worker: Worker) -> None:
        """`worker` has come: its version is batched as it takes it, from before its first batch on."""
        facts = worker.facts
        batcher = self.batcher(facts)
        self._facts[facts.name] = facts
        policy = self._policy(facts)
        streams = facts.signature.decoupled
        if batcher.streams != streams:
            batcher.give_up(f"{batcher.name} was replaced by an artifact that answers otherwise")
        if batcher.streams != streams or not policy.goes_on_from(batcher.policy):
            for other in batcher.workers:
                other.accepting = other.accepting and other.facts.runs_like(facts)
            self._replace(batcher, policy)
        self.batcher(facts).attach(worker)

    def list_endpoints(self, *, listed: bool) -> None:
        """Whether routers may find this pod in etcd."""
        self._listed = listed
        self.changed()

    def changed(self) -> None:
        """A worker came or went, or a spec changed: go by that, and tell who should know."""
        for name in [name for name, batcher in self.batchers.items() if batcher.is_over]:
            self.batchers.pop(name).launcher.leave()
            self._facts.pop(name, None)
        for name in [name for name in self.tallies if name not in self.batchers][:-_MOST_PAST]:
            del self.tallies[name]
        self._respecify()
        serving = {batcher.name: batcher for batcher in self.batchers.values() if _accepts(batcher)}
        message = pb.Serving(models=[_served(batcher, self._facts[name]) for name, batcher in serving.items()])
        if message != self.message:
            self.message = message
            self.tell(message)
        listed = serving if self._listed else {}
        self.endpoints.set({name: self._endpoint(batcher) for name, batcher in listed.items()})

    def drain(self, quiet: Callable[[], None]) -> None:
        """Every batcher refuses what comes from now on, also one that is made later; `quiet` is called as each ends."""
        self._quiet = quiet
        for batcher in self.batchers.values():
            batcher.lobby.quiet = quiet
            batcher.drain()

    def _make(self, facts: WorkerFacts, policy: BatchPolicy) -> Batcher:
        batcher = batcher_for(
            facts.name,
            facts.signature,
            policy,
            self._device,
            pad_to=facts.pad_to,
            clock=self._clock,
            call_later=self._call_later,
        )
        batcher.lobby.tally = self.tallies.setdefault(facts.name, batcher.lobby.tally)
        if self._quiet is not None:
            batcher.lobby.quiet = self._quiet
            batcher.drain()
        return batcher

    def _respecify(self) -> None:
        """Every queue goes by what its spec says of what its workers take now; nothing that waits is lost."""
        for batcher in list(self.batchers.values()):
            policy = self._policy_of(batcher)
            if policy == batcher.policy:
                continue
            if policy.goes_on_from(batcher.policy):
                batcher.apply(policy)
            else:
                self._replace(batcher, policy)

    def _replace(self, batcher: Batcher, policy: BatchPolicy) -> None:
        """Begin anew with the workers of a batcher whose sequences cannot go on under `policy`, if it has any."""
        workers = batcher.retire(f"{batcher.name} is batched otherwise from now on; try again")
        if not workers:
            del self.batchers[batcher.name]
            return
        new = self.batchers[batcher.name] = self._make(self._facts[batcher.name], policy)
        for worker in workers:
            new.attach(worker)

    def _policy_of(self, batcher: Batcher) -> BatchPolicy:
        """What the newest worker of a batcher takes, or the last one took."""
        name = batcher.name
        self._facts[name] = next((w.facts for w in reversed(batcher.workers) if w.accepting), self._facts[name])
        return self._policy(self._facts[name])

    def _policy(self, facts: WorkerFacts) -> BatchPolicy:
        """By the spec, but with no states and controls that the workers were not started for."""
        spec = batched(self._spec_of(*facts.name), facts.batching)
        batching, theirs = spec.batching, facts.sequences
        if states_and_controls(batching.sequence_batching) != states_and_controls(theirs):
            spec = spec.model_copy(update={"batching": batching.with_sequences(theirs)})
        return BatchPolicy.of(spec, batches=facts.signature.batches, streams=facts.signature.decoupled)

    def _endpoint(self, batcher: Batcher) -> Endpoint:
        return self.place.model_copy(
            update={
                "digest": batcher.lobby.digest,
                "signature_hash": batcher.lobby.intake.signature.hash(),
                "slots": _slots(batcher),
                "max_batch_rows": max(1, batcher.policy.max_batch_rows),
            }
        )


def _accepts(batcher: Batcher) -> bool:
    return any(worker.accepting for worker in batcher.workers)


def _slots(batcher: Batcher) -> int:
    return sum(worker.facts.slots for worker in batcher.workers if worker.accepting)


def _served(batcher: Batcher, facts: WorkerFacts) -> pb.Served:
    return pb.Served(
        model=batcher.name.model,
        version=batcher.name.version,
        digest=batcher.lobby.digest,
        signature=signature_to_proto(batcher.lobby.intake.signature),
        max_batch_rows=max(1, batcher.policy.max_batch_rows),
        max_request_rows=batcher.policy.max_request_rows,
        slots=_slots(batcher),
        keeps_state=batcher.policy.sequences is not None,
        batching=facts.batching,
    )
