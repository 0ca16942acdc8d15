"""Copies of served requests for the shadow comparator: made after the answer, dropped and counted, never waited for."""

import random

import structlog

from services.chassis.framing import MAX_MESSAGE_BYTES
from services.chassis.link import Link
from services.chassis.peers import Peers
from services.chassis.quick_reply import AnyReply, whole
from services.chassis.tls import LinkSecurity
from services.core import stages
from services.core.rendezvous import choose
from services.core.signature import SIGNATURE_NAME
from services.core.split import POINTS
from services.router.flight import Flight
from services.router.metrics import RouterMetrics
from turnout.v1 import link_pb2

log = structlog.get_logger()
_COMPUTE = stages.REMOTE.index(stages.COMPUTE)
_MAX_BYTES = MAX_MESSAGE_BYTES - (1 << 20)  # of one copy: the request and its answer


class Comparators:
    """The comparators in services/shadow/; each (model, candidate) has one, so that it holds all its counts."""

    def __init__(self, hello: link_pb2.Hello, host: str, security: LinkSecurity | None = None) -> None:
        self.peers = Peers("shadow", self, hello, host, security)
        self._links: dict[str, Link] = {}

    def choose(self, model: str, candidate: str) -> Link | None:
        """The link of the comparator that holds this candidate's counts; None when none is connected."""
        links = self._links
        if len(links) > 1:
            chosen = choose(links, f"{model}/{candidate}")
            return links[chosen] if chosen else None
        return next(iter(links.values()), None)

    # -- what the links call; comparators send nothing back

    def opened(self, link: Link) -> None:
        log.info("comparator_found", comparator=link.peer.instance)
        self._links[link.peer.instance] = link

    def received(self, link: Link, frame: link_pb2.Frame) -> None:
        pass

    def closed(self, link: Link, reason: str) -> None:
        log.warning("comparator_lost", comparator=link.peer.instance, reason=reason)
        if self._links.get(link.peer.instance) is link:
            del self._links[link.peer.instance]


class Mirrors:
    """Sends copies while the comparator's link has room for them."""

    def __init__(self, comparators: Comparators, metrics: RouterMetrics, max_queued_bytes: int) -> None:
        self._comparators = comparators
        self._metrics = metrics
        self._max_queued_bytes = max_queued_bytes

    def offer(self, flight: Flight, answered: AnyReply, total_ns: int) -> None:
        """Copy a request that was answered to each candidate its model's route shadows."""
        if flight.inference.version:
            return  # the caller named a version: nothing to learn about the route
        if flight.step is not None:
            return  # the candidate has not seen the requests before it
        if SIGNATURE_NAME in flight.inference.parameters:
            return  # candidates are compared by their usual signature
        target, reply = flight.target, whole(answered)
        size = flight.inference.size_bytes + reply.ByteSize() + 300
        candidates = flight.entry.shadow_candidates(flight.key, target.version, _random_point)
        for candidate in candidates:
            link = self._comparators.choose(target.model, candidate)
            if link is None:
                self._metrics.mirror_dropped("no_comparator")
            elif link.queued_bytes > self._max_queued_bytes:
                self._metrics.mirror_dropped("queue_full")
            elif size > _MAX_BYTES:
                self._metrics.mirror_dropped("too_large")
            else:
                self._copy(link.frame_for(size), flight, reply, candidate, total_ns)
                self._metrics.mirrored.inc()

    @staticmethod
    def _copy(frame: link_pb2.Frame, flight: Flight, reply: link_pb2.Reply, candidate: str, total_ns: int) -> None:
        mirror = frame.mirrors.add(
            model=flight.target.model,
            served_version=flight.target.version,
            served_digest=reply.digest,
            candidate_version=candidate,
            request_id=flight.request_id,
            rows=flight.rows,
            served_total_ns=total_ns,
            served_compute_ns=reply.stages_ns[_COMPUTE] if len(reply.stages_ns) > _COMPUTE else 0,
            routing_key=flight.key,
            outputs=reply.outputs,
        )
        for name, datatype, shape, data in flight.inputs():
            mirror.inputs.add(name=name, datatype=datatype, shape=shape, data=data)
        if flight.filled is not None:
            mirror.inputs.extend(flight.filled)


def _random_point() -> int:
    return random.randrange(POINTS)  # noqa: S311 - sampling
