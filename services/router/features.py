"""Features: asks the feature proxy for what a model's inputs lack, and fills them in."""

from collections.abc import Callable
from math import prod

import numpy as np
import structlog

from services.chassis.link import Link
from services.chassis.peers import Peers
from services.chassis.tls import LinkSecurity
from services.core.arrays import decode
from services.core.errors import UNAVAILABLE, InvalidRequestError, PreconditionError, UnavailableError
from services.core.model_spec import FeatureUse
from services.router.flight import Flight
from services.router.routing_key import elements
from turnout.v1 import feature_pb2, link_pb2, tensor_pb2

log = structlog.get_logger()
_MAX_LINK_BYTES = 32 << 20
Key = int | str | bytes


class Features:
    """Look-ups in flight, matched by id; each is answered exactly once through `flight.featured`."""

    def __init__(
        self, hello: link_pb2.Hello, host: str, clock_ns: Callable[[], int], security: LinkSecurity | None = None
    ) -> None:
        self.peers = Peers("feature_proxy", self, hello, host, security)
        self._clock_ns = clock_ns
        self._links: dict[str, Link] = {}
        self._pending: dict[int, tuple[Flight, Link]] = {}
        self._next_id = 0
        self._turn = 0

    def look_up(self, flight: Flight, besides: Link | None = None) -> None:
        """Ask for everything this flight's model takes from features. Raises ServingError when nobody can be asked."""
        link = self._choose(besides)
        self._next_id = number = self._next_id + 1
        views = [_view_lookup(use, flight) for use in flight.target.features]
        lookup = link.frame_for(200 + 40 * flight.rows).lookups.add(
            id=number,
            deadline_us=max(1, (flight.deadline_ns - self._clock_ns()) // 1000),
            request_id=flight.request_id,
            traceparent=flight.traceparent,
        )
        lookup.views.extend(views)
        flight.remote_id = number
        self._pending[number] = (flight, link)

    def cancel(self, flight: Flight) -> None:
        """Nobody waits for this flight's features any more."""
        entry = self._pending.pop(flight.remote_id, None)
        if entry is not None:
            entry[1].frame_for(12).cancels.append(flight.remote_id)

    def fill(self, flight: Flight, answer: feature_pb2.FeatureAnswer) -> list[tensor_pb2.Tensor]:
        """The inputs that the answer's columns make. Raises PreconditionError when they do not fit the signature."""
        uses = flight.target.features
        if len(answer.views) != len(uses):
            raise PreconditionError(f"{len(uses)} feature views were asked for, {len(answer.views)} answered")
        return [_join(use, values, flight) for use, values in zip(uses, answer.views, strict=True)]

    # -- what the links call

    def opened(self, link: Link) -> None:
        log.info("feature_proxy_found", proxy=link.peer.instance)
        self._links[link.peer.instance] = link

    def received(self, link: Link, frame: link_pb2.Frame) -> None:
        if frame.HasField("drain"):
            self._leave(link)  # what it was asked, it still answers
        for answer in frame.features:
            entry = self._pending.pop(answer.id, None)
            if entry is not None:
                entry[0].featured(answer)

    def closed(self, link: Link, reason: str) -> None:
        log.warning("feature_proxy_lost", proxy=link.peer.instance, reason=reason)
        self._leave(link)
        lost = [(number, flight) for number, (flight, via) in self._pending.items() if via is link]
        for number, flight in lost:
            del self._pending[number]
            try:
                self.look_up(flight, besides=link)  # reading twice harms nobody
            except UnavailableError:
                message = f"the link to the feature proxy was lost: {reason}"
                flight.featured(feature_pb2.FeatureAnswer(id=number, code=UNAVAILABLE, message=message))

    def _leave(self, link: Link) -> None:
        """Ask it no more."""
        if self._links.get(link.peer.instance) is link:
            del self._links[link.peer.instance]

    def _choose(self, besides: Link | None) -> Link:
        """The next connected proxy in turn."""
        links = [link for link in self._links.values() if link is not besides and link.queued_bytes < _MAX_LINK_BYTES]
        if not links:
            raise UnavailableError("features are needed, and no feature proxy is connected; try again")
        self._turn += 1
        return links[self._turn % len(links)]


def _view_lookup(use: FeatureUse, flight: Flight) -> feature_pb2.ViewLookup:
    lookup = feature_pb2.ViewLookup(view=use.view, version=use.version, columns=use.columns)
    add = lookup.entities.add
    for key in _entities(use, flight):
        if isinstance(key, bool):
            raise InvalidRequestError(
                f"{use.entity} is {key}; the entity of feature view {use.view} is text or a number"
            )
        try:
            if isinstance(key, int):
                add(int_value=key)
            elif isinstance(key, str):
                add(string_value=key)
            else:
                add(bytes_value=key)
        except ValueError:  # past int64; or not UTF-8, in an HTTP header
            raise InvalidRequestError(
                f"{use.entity} is {str(key)[:40]!r}; the entity of feature view {use.view} is UTF-8 text or a number "
                f"of 64 bits"
            ) from None
    return lookup


def _entities(use: FeatureUse, flight: Flight) -> list[Key]:
    """One key a row. Raises InvalidRequestError naming what is missing."""
    kind, colon, name = use.entity.partition(":")
    if not colon:
        value = flight.inference.parameters.get(use.entity)
        if value is None:
            raise InvalidRequestError(
                f"model {flight.target.model} looks features up by request parameter {use.entity!r}: send it, "
                f'for example {{"parameters": {{"{use.entity}": 3}}}}'
            )
        if isinstance(value, float):
            raise InvalidRequestError(f"parameter {use.entity!r} is {value}; an entity key is text or a whole number")
        return [value] * flight.rows
    if kind == "header":
        text = flight.header(name.lower())
        if not text:
            raise InvalidRequestError(f"model {flight.target.model} looks features up by header {name!r}: send it")
        return [text] * flight.rows
    keys = elements(name, flight.inputs())
    if keys is None:
        raise InvalidRequestError(
            f"model {flight.target.model} looks features up by input {name!r} (integers or BYTES): send it"
        )
    return list(keys)


def _join(use: FeatureUse, values: feature_pb2.ViewValues, flight: Flight) -> tensor_pb2.Tensor:
    """One input out of a view's columns, side by side."""
    spec = next((spec for spec in flight.target.signature.inputs if spec.name == use.input), None)
    if spec is None:
        raise PreconditionError(f"feature view {use.view} fills input {use.input!r}, which {flight.target.model} lacks")
    for column in values.columns:
        if column.datatype != spec.datatype:
            raise PreconditionError(
                f"column {column.name!r} of feature view {use.view} is {column.datatype}, "
                f"input {use.input!r} of model {flight.target.model} is {spec.datatype}"
            )
    rows = flight.rows
    for column in values.columns:
        if column.shape[:1] != [rows]:
            raise PreconditionError(
                f"column {column.name!r} of feature view {use.view} has shape {list(column.shape)} for {rows} rows"
            )
    if rows == 1:
        data = b"".join([column.data for column in values.columns])
    else:
        blocks = [decode(c.datatype, c.shape, c.data).reshape(rows, prod(c.shape[1:])) for c in values.columns]
        data = np.concatenate(blocks, axis=1).tobytes()
    width = sum([prod(column.shape[1:]) for column in values.columns])
    shape = [rows, width] if len(spec.shape) > 1 else [rows]
    if len(spec.shape) > 2 or (len(spec.shape) == 1 and width != 1) or spec.shape[-1] not in {-1, width}:
        raise PreconditionError(
            f"feature view {use.view} gives {width} values a row, input {use.input!r} of model "
            f"{flight.target.model} has shape {list(spec.shape)}"
        )
    return tensor_pb2.Tensor(name=use.input, datatype=spec.datatype, shape=shape, data=data)
