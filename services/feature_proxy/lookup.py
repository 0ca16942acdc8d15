"""Look-ups in flight: each ends in exactly one outcome, within its deadline, whatever its stores do."""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import structlog

from services.core.errors import (
    InternalError,
    InvalidRequestError,
    OverloadedError,
    ServingError,
    TooLargeError,
    UnavailableError,
)
from services.feature_proxy.feature_view import Assembled, FeatureView, assemble
from services.feature_proxy.metrics import Metrics
from services.feature_proxy.round_trip import Found, Reader
from services.feature_proxy.views import Views

_OVERLOAD_RETRY_S = 0.05


class Asked(NamedTuple):
    """One view of a look-up: the entity of each row, and the wanted columns (none = all)."""

    view: str
    version: int  # 0 = any
    keys: list[bytes]
    columns: Sequence[str]


class Answered(NamedTuple):
    """What one view gave."""

    view: FeatureView
    wanted: tuple[int, ...]  # positions of the columns in the view
    values: Assembled


class Limits(NamedTuple):
    max_in_flight: int = 4096
    max_in_flight_rows: int = 262_144
    max_lookup_rows: int = 16_384
    max_answer_bytes: int = 64 << 20


Outcome = Sequence[Answered] | ServingError


class _Part(NamedTuple):
    view: FeatureView
    keys: list[bytes]
    wanted: tuple[int, ...]


class Lookup:
    """One look-up in flight."""

    __slots__ = ("answers", "deadline_s", "parts", "respond", "rows", "timer", "waiting")

    def __init__(self, parts: list[_Part], rows: int, deadline_s: float, respond: Callable[[Outcome], None]) -> None:
        self.parts = parts
        self.rows = rows
        self.deadline_s = deadline_s
        self.respond = respond
        self.answers: list[Answered | None] = [None] * len(parts)
        self.waiting = len(parts)
        self.timer: asyncio.TimerHandle | None = None


class Lookups:
    """Begins, ends and bounds look-ups."""

    def __init__(
        self,
        views: Views,
        reader: Reader,
        metrics: Metrics,
        limits: Limits,
        log: structlog.typing.FilteringBoundLogger,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._views = views
        self._reader = reader
        self._metrics = metrics
        self._limits = limits
        self._log = log
        self._now = wall_clock
        self._live: set[Lookup] = set()
        self._rows = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = False

    @property
    def in_flight(self) -> int:
        return len(self._live)

    def is_in_flight(self, lookup: Lookup) -> bool:
        return lookup in self._live

    def begin(self, asked: Sequence[Asked], deadline_s: float, respond: Callable[[Outcome], None]) -> Lookup:
        """Start a look-up; `respond` is called once with its outcome, maybe at once, unless it is cancelled.

        `deadline_s` is the time left, 0 = the views' own bounds. Raises ServingError when it cannot even begin.
        """
        rows = sum(len(one.keys) for one in asked)
        self._admit(rows)
        parts = [self._part(one) for one in asked]
        size = sum((part.view.row_bytes() + len(part.wanted)) * len(part.keys) for part in parts)
        if size > self._limits.max_answer_bytes:
            raise TooLargeError(f"{rows} rows take {size} bytes, over the limit of {self._limits.max_answer_bytes}")
        lookup = Lookup(parts, rows, deadline_s, respond)
        self._live.add(lookup)
        self._rows += rows
        self._idle.clear()
        if parts and 0 < deadline_s < max(part.view.spec.timeout_ms for part in parts) / 1e3:
            lookup.timer = asyncio.get_running_loop().call_later(deadline_s, self._expired, lookup)
        self._start(lookup)
        return lookup

    def cancel(self, lookup: Lookup) -> None:
        """Nobody waits for it any more."""
        if lookup in self._live:
            self._leave(lookup)

    async def drain(self) -> None:
        """Refuse new look-ups and wait until those in flight are answered."""
        self._draining = True
        await self._idle.wait()

    def _admit(self, rows: int) -> None:
        limits = self._limits
        if self._draining:
            raise UnavailableError("the feature proxy is draining", retry_after_s=_OVERLOAD_RETRY_S)
        if rows > limits.max_lookup_rows:
            raise InvalidRequestError(f"a look-up has at most {limits.max_lookup_rows} rows, not {rows}")
        if len(self._live) >= limits.max_in_flight or self._rows + rows > limits.max_in_flight_rows:
            raise OverloadedError(
                f"{len(self._live)} feature look-ups of {self._rows} rows are in flight; the limits are"
                f" {limits.max_in_flight} and {limits.max_in_flight_rows}",
                retry_after_s=_OVERLOAD_RETRY_S,
            )

    def _part(self, asked: Asked) -> _Part:
        view = self._views.get(asked.view)
        view.check_version(asked.version)
        return _Part(view, asked.keys, view.positions(asked.columns))

    def _start(self, lookup: Lookup) -> None:
        if not lookup.parts:
            self._end(lookup, [])
        for i, part in enumerate(lookup.parts):
            found = self._reader.read(part.view, part.keys, partial(self._arrived, lookup, i))
            if found is not None:
                self._arrived(lookup, i, found, "")

    def _arrived(self, lookup: Lookup, i: int, found: Found, reason: str) -> None:
        if lookup not in self._live or lookup.answers[i] is not None:
            return  # cancelled, failed or expired meanwhile
        try:
            lookup.answers[i] = self._assemble(lookup.parts[i], found, reason)
        except ServingError as error:
            self._end(lookup, error)
            return
        except Exception:  # noqa: BLE001 - nobody is left without an outcome
            self._log.exception("assemble_failed", view=lookup.parts[i].view.name)
            self._end(lookup, InternalError("internal error"))
            return
        lookup.waiting -= 1
        if lookup.waiting == 0:
            self._end(lookup, [answer for answer in lookup.answers if answer is not None])

    def _assemble(self, part: _Part, found: Found, reason: str) -> Answered:
        """`reason`: why the store did not give what is not among `found`; "" = it did."""
        view, keys = part.view, part.keys
        if reason and view.spec.on_error == "fail":
            raise UnavailableError(
                f"feature view {view.name}: its store {reason}", retry_after_s=self._reader.retry_after_s(view)
            )
        if reason:
            self._metrics.defaulted(view.name)
        blobs = [found.get(key) for key in keys]
        values = assemble(view, keys, blobs, part.wanted, self._now(), on_missing="default" if reason else None)
        self._metrics.assembled(view.name, values.statuses)
        return Answered(view, part.wanted, values)

    def _expired(self, lookup: Lookup) -> None:
        lookup.timer = None
        reason = f"did not answer within the {lookup.deadline_s * 1e3:.1f} ms that the look-up had left"
        for i, answer in enumerate(lookup.answers):
            if answer is None:
                self._arrived(lookup, i, {}, reason)

    def _end(self, lookup: Lookup, outcome: Outcome) -> None:
        self._leave(lookup)
        lookup.respond(outcome)

    def _leave(self, lookup: Lookup) -> None:
        self._live.discard(lookup)
        self._rows -= lookup.rows
        if lookup.timer is not None:
            lookup.timer.cancel()
        if not self._live:
            self._idle.set()
