"""Frames of a link -> look-ups -> frames. Translation only."""

import time
from functools import partial

import structlog

from services.chassis.link import Link
from services.core.errors import UNAVAILABLE, InternalError, InvalidRequestError, ServingError
from services.feature_proxy.lookup import Answered, Asked, Lookup, Lookups, Outcome
from services.feature_proxy.metrics import Metrics
from services.feature_proxy.stores import MAX_KEY_BYTES
from turnout.v1 import feature_pb2, link_pb2

_ENVELOPE_BYTES = 256  # of an answer, a view or a column, beside its values
_MAX_UNREAD_BYTES = 256 << 20


class FeatureServicer:
    """A LinkHandler: answers the look-ups of every link that comes in."""

    def __init__(self, lookups: Lookups, metrics: Metrics, log: structlog.typing.FilteringBoundLogger) -> None:
        self._lookups = lookups
        self._metrics = metrics
        self._log = log
        self._in_flight: dict[Link, dict[int, Lookup]] = {}

    def opened(self, link: Link) -> None:
        self._in_flight[link] = {}

    def received(self, link: Link, frame: link_pb2.Frame) -> None:
        for message in frame.lookups:
            self._begin(link, message)
        mine = self._in_flight.get(link, {})
        for cancelled in frame.cancels:
            lookup = mine.pop(cancelled, None)
            if lookup is not None:
                self._lookups.cancel(lookup)

    def closed(self, link: Link, reason: str) -> None:
        for lookup in self._in_flight.pop(link, {}).values():
            self._lookups.cancel(lookup)

    def _begin(self, link: Link, message: feature_pb2.FeatureLookup) -> None:
        respond = partial(self._respond, link, message.id, time.perf_counter_ns())
        mine = self._in_flight.get(link)
        if mine is None:
            return
        try:
            asked = [_asked(view) for view in message.views]
            lookup = self._lookups.begin(asked, message.deadline_us / 1e6, respond)
        except ServingError as error:
            respond(error)
        except Exception:  # noqa: BLE001 - nobody is left without an outcome
            self._log.exception("lookup_failed", request_id=message.request_id, peer=link.peer.instance)
            respond(InternalError("internal error"))
        else:
            if self._lookups.is_in_flight(lookup):
                mine[message.id] = lookup

    def _respond(self, link: Link, lookup_id: int, started_ns: int, outcome: Outcome) -> None:
        self._in_flight.get(link, {}).pop(lookup_id, None)
        if link.queued_bytes > _MAX_UNREAD_BYTES:
            link.close(f"{link.queued_bytes} bytes of answers are not read")
            return
        answer = link.frame_for(_size(outcome)).features.add()
        answer.id = lookup_id
        if isinstance(outcome, ServingError):
            answer.code, answer.message = outcome.code, str(outcome)
            if outcome.code == UNAVAILABLE and outcome.retry_after_s is not None:
                answer.retry_after_us = round(outcome.retry_after_s * 1e6)
        else:
            for one in outcome:
                _fill(answer.views.add(), one)
        answer.total_ns = time.perf_counter_ns() - started_ns
        self._metrics.answered(answer.code, answer.total_ns / 1e9)


def _asked(message: feature_pb2.ViewLookup) -> Asked:
    keys = []
    for row, entity in enumerate(message.entities):
        key = _key(entity)
        if not 0 < len(key) <= MAX_KEY_BYTES:
            raise InvalidRequestError(
                f"feature view {message.view}: the entity of row {row} has {len(key)} bytes, not 1 to {MAX_KEY_BYTES}"
            )
        keys.append(key)
    return Asked(message.view, message.version, keys, message.columns)


def _key(entity: feature_pb2.EntityKey) -> bytes:
    kind = entity.WhichOneof("value")
    if kind == "int_value":
        return b"%d" % entity.int_value
    if kind == "string_value":
        return entity.string_value.encode()
    return entity.bytes_value


def _size(outcome: Outcome) -> int:
    if isinstance(outcome, ServingError):
        return _ENVELOPE_BYTES + len(str(outcome))
    return _ENVELOPE_BYTES + sum(
        _ENVELOPE_BYTES + one.values.statuses.nbytes + sum(_ENVELOPE_BYTES + c.nbytes for c in one.values.columns)
        for one in outcome
    )


def _fill(message: feature_pb2.ViewValues, answered: Answered) -> None:
    spec = answered.view.spec
    message.view, message.version = answered.view.name, spec.version
    message.statuses = answered.values.statuses.tobytes()
    for position, values in zip(answered.wanted, answered.values.columns, strict=True):
        column = spec.columns[position]
        message.columns.add(name=column.name, datatype=column.datatype, shape=values.shape, data=values.tobytes())
