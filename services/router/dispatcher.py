"""The way of a request through the router, for every protocol: authorise, choose, check, features, send, retry, answer.

Everything happens in callbacks on the loop: no task, future, lock or span a request. Durations are stamped as numbers.
"""

import asyncio
from time import perf_counter_ns

import structlog

from services.chassis.quick_reply import AnyReply, whole
from services.chassis.replicas import Replica, Replicas
from services.core import stages
from services.core.errors import (
    INTERNAL,
    OK,
    UNAVAILABLE,
    DeadlineExceededError,
    InternalError,
    RemoteError,
    ServingError,
    UnavailableError,
)
from services.router import sequence
from services.router.access.gate import Access
from services.router.features import Features
from services.router.flight import Flight
from services.router.inference import Inference
from services.router.metrics import RouterMetrics
from services.router.mirror import Mirrors
from services.router.recording import Recorders
from services.router.retry import RetryBudget
from services.router.routing_key import HEADER as ROUTING_KEY
from services.router.routing_key import routing_key
from services.router.sending import (
    check_kind,
    check_parameters,
    drop_entity_inputs,
    may_run_again,
    refuse_the_hopeless,
    retry_after_s,
    send,
    signature_name,
    turn_to_stable,
)
from services.router.sweep import Sweep
from services.router.tensor_extensions import TensorExtensions
from services.router.tracing import TraceKeeper
from turnout.v1 import feature_pb2, link_pb2

log = structlog.get_logger()
_REMOTE_STAGES = len(stages.REMOTE)


class Dispatcher:
    """Owns every flight from `begin` to its one outcome."""

    def __init__(  # noqa: PLR0913 - the parts of the way
        self,
        access: Access,
        replicas: Replicas,
        features: Features,
        mirrors: Mirrors,
        recorders: Recorders,
        metrics: RouterMetrics,
        retries: RetryBudget,
        extensions: TensorExtensions,
        *,
        keeper: TraceKeeper | None,
    ) -> None:
        self.access = access
        self._replicas = replicas
        self._features = features
        self._mirrors = mirrors
        self._recorders = recorders
        self._metrics = metrics
        self._retries = retries
        self._extensions = extensions
        self._keeper = keeper
        self.flights: set[Flight] = set()
        self._sweep = Sweep(self._late)
        self._idle = asyncio.Event()
        self._idle.set()
        self.is_draining = False

    @property
    def in_flight(self) -> int:
        return len(self.flights)

    def begin(self, flight: Flight, inference: Inference, remaining_s: float | None) -> None:
        """Send a parsed request on its way; its outcome goes to the flight's answerer, perhaps at once."""
        flight.mark_ns = now = perf_counter_ns()
        flight.parse_ns = now - flight.started_ns
        flight.inference = inference
        self.flights.add(flight)
        if not self._sweep.is_due:
            self._sweep.start(self.flights)
        if self._keeper is not None:
            flight.traceparent = self._keeper.begin(flight)
        try:
            self._admit(flight, inference, remaining_s)
            if flight.target.features:
                self._features.look_up(flight)
            else:
                self._send(flight)
        except ServingError as error:
            self.fail(flight, error)
        except Exception:
            log.exception("dispatch_failed", model=inference.model)
            self.fail(flight, InternalError("internal error"))

    def cancel(self, flight: Flight) -> None:
        """The caller went away: nothing is answered, and work not begun is not begun."""
        if not flight.is_done:
            self._withdraw(flight)
            self._end(flight)
            self._metrics.cancelled.inc()

    async def drained(self) -> None:
        """Wait until no flight is left."""
        await self._idle.wait()

    def fail(self, flight: Flight, error: ServingError) -> None:
        """End a flight with an error for its caller."""
        if flight.is_done:
            return
        self._end(flight)
        flight.answerer.fail(flight, error)
        self._metrics.failed(flight, error.code)
        if self._recorders.wishes:
            self._recorders.offer(flight, None, error, perf_counter_ns() - flight.started_ns, ())
        if self._keeper is not None:
            self._keeper.finished(flight, error.code, str(error), ())

    # -- before the send

    def _admit(self, flight: Flight, inference: Inference, remaining_s: float | None) -> None:
        if self.is_draining:
            raise UnavailableError("this router is stopping: try again, another one answers")
        entry = flight.entry = self.access.admit(flight, inference)
        inference = flight.inference  # without what this caller must not say
        if inference.extras is not None:
            inference = flight.inference = self._extensions.take(inference)
        now = perf_counter_ns()
        flight.auth_ns = now - flight.mark_ns
        own = entry.deadline_ns
        flight.deadline_ns = flight.started_ns + (own if remaining_s is None else min(own, int(remaining_s * 1e9)))
        chooser = entry.chooser
        headers, sticky_by = flight.headers, chooser.sticky_by
        if sticky_by is not None or ROUTING_KEY in headers:
            flight.key = routing_key(sticky_by, headers, inference, flight.inputs)
        if entry.has_sequences:
            sequence.identify(flight, inference)
        version, flight.arm = chooser.choose(inference.version, flight.key, headers)
        target = flight.target = entry.targets[version]
        if flight.draft is not None:
            inference, now = flight.bind(flight.draft)
        asked = ""
        if inference.parameters:
            check_parameters(inference)
            asked = signature_name(inference)
        template = flight.template
        if template is None:
            flight.rows = target.check(inference.inputs, inference.outputs, asked)
        else:
            flight.rows = template.plan(target, flight.data).rows
        self.access.meter(flight)
        if entry.is_special:
            check_kind(flight)
        if target.expected_wait_ns:
            refuse_the_hopeless(flight, now)
        flight.mark_ns = done = perf_counter_ns()
        flight.route_ns = done - now

    def _send(self, flight: Flight, besides: Replica | None = None) -> None:
        target = flight.target
        if flight.step is None:
            replica = self._replicas.pick(target.model, target.version, besides)
        else:
            replica = sequence.holder(self._replicas, target, flight.step)
        if replica is None and besides is None and turn_to_stable(flight):
            target = flight.target
            replica = self._replicas.pick(target.model, target.version)
        if replica is None:
            raise UnavailableError(f"model {target.model}/{target.version} has no ready replica; try again")
        flight.sent_ns = now = perf_counter_ns()
        left_us = (flight.deadline_ns - now) // 1000
        if left_us <= 0:
            raise DeadlineExceededError("the deadline passed before the request could be sent")
        flight.replica = replica
        send(flight, replica, left_us)

    # -- after the send

    def featured(self, flight: Flight, answer: feature_pb2.FeatureAnswer) -> None:
        """The feature proxy's answer: fill the inputs, then send."""
        if flight.is_done:
            return
        flight.features_ns = perf_counter_ns() - flight.mark_ns
        if (code := answer.code) != OK:
            self.fail(flight, RemoteError(code, answer.message, retry_after_s=retry_after_s(code, answer)))
            return
        try:
            flight.filled = self._features.fill(flight, answer)
            drop_entity_inputs(flight)
            self._send(flight)
        except ServingError as error:
            self.fail(flight, error)
        except Exception:
            log.exception("features_failed", model=flight.target.model)
            self.fail(flight, InternalError("internal error"))

    def replied(self, flight: Flight, reply: AnyReply) -> None:
        """A replica's reply: answer the caller, or try once more where that is safe."""
        now = perf_counter_ns()
        target = flight.target
        target.expected_wait_ns = reply.expected_wait_us * 1000
        target.heard_ns = now
        if flight.is_done:
            return
        if reply.code != OK:
            self._failed_reply(flight, whole(reply))
            return
        link_ns = now - flight.sent_ns - reply.total_ns
        remote = reply.stages_ns[:]  # a slice is made in C, an iterator is not
        if len(remote) != _REMOTE_STAGES:  # a peer of another release: its time counts as the link's
            reply = whole(reply)
            reply.stages_ns[:] = remote = [0] * _REMOTE_STAGES
        flight.mark_ns = now
        answer = reply if flight.inference.extras is None else self._extensions.give(flight, reply, self.fail)
        if answer is None:
            return
        self._end(flight)
        flight.answerer.answer(flight, answer)
        end = perf_counter_ns()
        sample = (
            flight.parse_ns,
            flight.auth_ns,
            flight.route_ns,
            flight.features_ns,
            link_ns,
            *remote,
            end - now,
            end - flight.started_ns,
        )
        self._metrics.answered(target, flight.arm, sample)
        self._retries.answered += 1
        if flight.entry.shadows:
            self._mirrors.offer(flight, reply, end - flight.started_ns)
        if self._recorders.wishes:
            self._recorders.offer(flight, reply, None, end - flight.started_ns, sample[:-1])
        if self._keeper is not None:
            self._keeper.finished(flight, OK, "", sample)

    def _failed_reply(self, flight: Flight, reply: link_pb2.Reply) -> None:
        again = may_run_again(flight, reply) and self._retries.spend()
        flight.tries += reply.executed != link_pb2.EXECUTED_NO
        if again:
            try:
                self._send(flight, besides=flight.replica)
            except ServingError:
                self._retries.refund()  # nobody else can: the first answer stands
            else:
                flight.was_resent = True
                self._metrics.retried.inc()
                return
        code, message = reply.code, reply.message
        if code == UNAVAILABLE and reply.executed != link_pb2.EXECUTED_NO:
            code, message = INTERNAL, f"{message}; the request may have run, so it is not tried again"
        self.fail(flight, RemoteError(code, message, retry_after_s=retry_after_s(code, reply)))

    def _withdraw(self, flight: Flight) -> None:
        if flight.replica is not None:
            flight.replica.cancel(flight.remote_id)
        else:
            self._features.cancel(flight)

    def _end(self, flight: Flight) -> None:
        flight.is_done = True
        if flight.held is not None:
            flight.held.in_flight -= 1
        flights = self.flights
        flights.discard(flight)
        if not flights and self.is_draining:
            self._idle.set()

    def drain(self) -> None:
        """Refuse what comes from now on; `drained` waits for the rest."""
        self.is_draining = True
        if self.flights:
            self._idle.clear()

    def _late(self, flight: Flight) -> None:
        self._withdraw(flight)
        where = f"replica {flight.replica.name}" if flight.replica else "the feature proxy"
        self.fail(flight, DeadlineExceededError(f"the deadline passed while waiting for {where}"))
