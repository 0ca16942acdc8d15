"""Requests and their answers for recorders: made after the answer, dropped and counted, never waited for."""

import hashlib
import random
import re
import time
from collections.abc import Sequence

import structlog

from services.chassis.framing import MAX_MESSAGE_BYTES
from services.chassis.link import Link
from services.chassis.peers import Peers
from services.chassis.quick_reply import AnyReply, whole
from services.chassis.throttle import Throttle
from services.chassis.tls import LinkSecurity
from services.core.errors import OK, ServingError
from services.core.protowire import bytes_field
from services.core.split import POINTS, point_of
from services.router.flight import Flight
from services.router.inference import Parameter
from services.router.metrics import RouterMetrics
from services.router.routing_key import HEADER as ROUTING_KEY
from turnout.v1 import link_pb2, recorded_pb2

log = structlog.get_logger()
_RECORDS = 14  # Frame.records
_MAX_BYTES = MAX_MESSAGE_BYTES - (1 << 20)  # of one record
_HASH_BYTES = 8
# Names of headers and parameters whose values nobody should find in a file.
_SECRET = re.compile(
    r"passw|secret|credential|api[-_]?key|(^|[-_.])(auth|authorization|cookie|token|jwt)([-_.]|$)", re.IGNORECASE
)


class Wish:
    """What one recorder wants, and what it got."""

    __slots__ = ("dropped", "link", "sampling", "sent")

    def __init__(self, link: Link, sampling: recorded_pb2.Sampling) -> None:
        self.link = link
        self.sampling = sampling
        self.sent = 0
        self.dropped = 0

    def holds(self, flight: Flight) -> bool:
        """Whether this request is to be recorded."""
        sampling = self.sampling
        if flight.target.is_decoupled:  # a record has one answer
            return False
        if sampling.version and sampling.version != flight.target.version:
            return False
        if sampling.most and self.sent >= sampling.most:
            return False
        if sampling.per_million >= POINTS:
            return True
        by_sequence = flight.step is not None and flight.key
        point = point_of("record", flight.key) if by_sequence else random.randrange(POINTS)  # noqa: S311 - sampling
        return point < sampling.per_million


class Recorders:
    """The recorders in services/recorder/, each with a wish. `wishes`, by model, is empty nearly always."""

    def __init__(
        self,
        hello: link_pb2.Hello,
        host: str,
        metrics: RouterMetrics,
        max_queued_bytes: int,
        security: LinkSecurity | None = None,
    ) -> None:
        self.peers = Peers("recorder", self, hello, host, security)
        self.wishes: dict[str, list[Wish]] = {}
        self._router = hello.instance
        self._metrics = metrics
        self._max_queued_bytes = max_queued_bytes
        self._failures = Throttle()

    def offer(
        self, flight: Flight, reply: AnyReply | None, error: ServingError | None, total_ns: int, stages: Sequence[int]
    ) -> None:
        """Record a request that has got its outcome, for everybody who wants it."""
        target = getattr(flight, "target", None)  # it may have failed before anything was chosen
        if target is None:
            return
        for wish in self.wishes.get(target.model, ()):
            if not wish.holds(flight):
                continue
            if wish.link.queued_bytes > self._max_queued_bytes:
                self._drop(wish, "queue_full")
                continue
            try:
                self._send(wish, flight, reply, error, total_ns, stages)
            except Exception as fault:  # noqa: BLE001 - the caller has its answer, and other flights are on this turn
                if self._failures.count(time.monotonic_ns()):
                    log.warning("record_failed", model=target.model, reason=str(fault))
                self._drop(wish, "failed")

    # -- what the links call

    def opened(self, link: Link) -> None:
        log.info("recorder_found", recorder=link.peer.instance)

    def received(self, link: Link, frame: link_pb2.Frame) -> None:
        if frame.HasField("sampling"):
            sampling = frame.sampling
            self._forget(link)
            self.wishes.setdefault(sampling.model, []).append(Wish(link, sampling))
            self._count()
            log.info(
                "recording_began", recorder=link.peer.instance, model=sampling.model, version=sampling.version,
                percent=sampling.per_million * 100 / POINTS, routing_keys=sampling.routing_keys,
            )  # fmt: skip

    def closed(self, link: Link, reason: str) -> None:
        self._forget(link)
        self._count()
        log.info("recording_ended", recorder=link.peer.instance, reason=reason)

    # -- inside

    def _forget(self, link: Link) -> None:
        kept = {model: [wish for wish in wishes if wish.link is not link] for model, wishes in self.wishes.items()}
        self.wishes = {model: wishes for model, wishes in kept.items() if wishes}

    def _count(self) -> None:
        self._metrics.recorders.set(sum(map(len, self.wishes.values())))

    def _drop(self, wish: Wish, reason: str) -> None:
        wish.dropped += 1
        self._metrics.record_dropped(reason)

    def _send(
        self,
        wish: Wish,
        flight: Flight,
        reply: AnyReply | None,
        error: ServingError | None,
        total_ns: int,
        stages: Sequence[int],
    ) -> None:
        """`stages` as in Recorded.stages_ns."""
        record = recorded(flight, total_ns, routing_keys=wish.sampling.routing_keys)
        record.router, record.dropped = self._router, wish.dropped
        if error is not None:
            record.code, record.message = error.code, str(error)
        if reply is not None:
            answer = whole(reply)
            record.code, record.digest = OK, answer.digest
            record.stages_ns.extend(stages)
            if not wish.sampling.without_outputs:
                record.outputs.extend(answer.outputs)
        encoded = record.SerializeToString()
        if len(encoded) > _MAX_BYTES:
            self._drop(wish, "too_large")
            return
        wish.link.send_encoded(bytes_field(_RECORDS, encoded))
        wish.sent += 1
        self._metrics.recorded.inc()


def recorded(flight: Flight, total_ns: int, *, routing_keys: bool) -> recorded_pb2.Recorded:
    """What there is to say of a request, without its outcome."""
    target, inference = flight.target, flight.inference
    record = recorded_pb2.Recorded(
        at_ns=time.time_ns() - total_ns, model=target.model, version=target.version, arm=flight.arm,
        asked_version=inference.version, request_id=flight.request_id, wanted=inference.outputs, rows=flight.rows,
        allowed_us=max(0, flight.deadline_ns - flight.started_ns) // 1000, total_ns=total_ns,
    )  # fmt: skip
    if flight.key and not _is_secret_key(flight):
        record.routing_key_hash = hashlib.blake2b(flight.key, digest_size=_HASH_BYTES).digest()
        if routing_keys:
            record.routing_key = flight.key
    for name, value in inference.parameters.items():
        if not _SECRET.search(name):
            _set(record.parameters[name], value)
    for name in flight.entry.headers:
        if name in flight.headers and not _SECRET.search(name):
            record.headers[name] = _text(flight.headers[name])
    for name, datatype, shape, data in (*flight.inputs(), *getattr(flight, "carried", ())):
        record.inputs.add(name=name, datatype=datatype, shape=shape, data=bytes(data))
    if flight.filled is not None:
        record.filled.extend(flight.filled)
    return record


def _is_secret_key(flight: Flight) -> bool:
    """Whether the routing key came from a header that carries credentials."""
    source = flight.entry.chooser.sticky_by or ""
    is_secret = source.startswith("header:") and bool(_SECRET.search(source[7:]))
    return is_secret and not flight.headers.get(ROUTING_KEY)


def _set(parameter: recorded_pb2.Parameter, value: Parameter) -> None:
    if isinstance(value, bool):
        parameter.bool_value = value
    elif isinstance(value, str):
        parameter.string_value = _text(value)
    elif isinstance(value, float):
        parameter.float_value = value
    elif value >= 1 << 63:
        parameter.uint_value = value
    else:
        parameter.int_value = value


def _text(value: str | bytes) -> str:
    """What a message can hold of a header, which may be any bytes."""
    data = value if isinstance(value, bytes) else value.encode(errors="surrogateescape")
    return data.decode(errors="replace")
