"""Reads of stores, shared: all that one loop turn wants of one view travels in one round trip."""

import asyncio
import time
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import structlog

from services.feature_proxy.breaker import Breaker
from services.feature_proxy.cache import Cache
from services.feature_proxy.feature_view import FeatureView
from services.feature_proxy.metrics import Metrics
from services.feature_proxy.stores.pool import StorePool

MAX_KEYS = 16_384  # of one round trip, but for a single larger look-up

Found = Mapping[bytes, bytes | None]
OnDone = Callable[[Found, str], None]  # what was read, and why the rest was not; "" = everything was


class RoundTrip:
    """Keys of one view on their way, and those who wait for them."""

    __slots__ = ("keys", "left_at", "timer", "view", "waiters")

    def __init__(self, view: FeatureView) -> None:
        self.view = view
        self.keys: dict[bytes, None] = {}  # a set that keeps its order
        self.waiters: list[Callable[[dict[bytes, bytes | None], str], None]] = []
        self.left_at = 0.0
        self.timer: asyncio.TimerHandle | None = None


class Reader:
    """Reads blobs through cache, breaker and stores; every call ends in exactly one `on_done`, within timeout_ms."""

    def __init__(
        self,
        pool: StorePool,
        cache: Cache,
        breaker: Callable[[], Breaker],
        metrics: Metrics,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._pool = pool
        self._cache = cache
        self._make_breaker = breaker
        self._breakers: dict[tuple[str, str], Breaker] = {}  # by view and store
        self._metrics = metrics
        self._log = log
        self._gathering: dict[int, RoundTrip] = {}  # by identity of the view, which the round trip keeps alive
        self._tasks: set[asyncio.Task[list[bytes | None]]] = set()

    def read(self, view: FeatureView, keys: Iterable[bytes], on_done: OnDone) -> Found | None:
        """The blobs of `keys` when the cache holds them all; else None, and `on_done` is called later."""
        wanted = dict.fromkeys(keys)
        cached = self._cached(view, wanted)
        if len(cached) == len(wanted):
            return cached
        trip = self._gathering.get(id(view))
        if trip is not None and len(trip.keys) + len(wanted) > MAX_KEYS:
            self._depart(trip)
            trip = None
        if trip is None:
            trip = self._gathering[id(view)] = RoundTrip(view)
            asyncio.get_running_loop().call_soon(self._depart, trip)
        trip.keys |= dict.fromkeys(key for key in wanted if key not in cached) if cached else wanted
        trip.waiters.append(partial(_join, cached, on_done))
        return None

    def keep(self, names: Iterable[str]) -> None:
        """Forget what was learnt about views of other names."""
        known = set(names)
        self._breakers = {key: breaker for key, breaker in self._breakers.items() if key[0] in known}

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _cached(self, view: FeatureView, keys: Iterable[bytes]) -> dict[bytes, bytes | None]:
        cached = self._cache.get_many(view.spec.store, view.name, keys, time.monotonic())
        if cached:
            self._metrics.cache_hits(view.name, len(cached))
        return cached

    def _depart(self, trip: RoundTrip) -> None:
        if self._gathering.get(id(trip.view)) is not trip:
            return  # it was full and has left already
        del self._gathering[id(trip.view)]
        loop, view = asyncio.get_running_loop(), trip.view
        trip.left_at = time.monotonic()
        if not self._breaker(view).allows(trip.left_at):
            self._fail(trip, "skipped", "is left alone after failures in a row")
            return
        task = loop.create_task(self._pool.get_many(view.spec.store, view.name, list(trip.keys)), name="round-trip")
        self._tasks.add(task)
        trip.timer = loop.call_later(view.spec.timeout_ms / 1e3, self._expired, trip, task)
        task.add_done_callback(partial(self._arrived, trip))

    def _expired(self, trip: RoundTrip, task: asyncio.Task[list[bytes | None]]) -> None:
        trip.timer = None
        task.cancel()
        self._failed(trip, "timeout", f"did not answer within {trip.view.spec.timeout_ms:g} ms")

    def _arrived(self, trip: RoundTrip, task: asyncio.Task[list[bytes | None]]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if trip.timer is None:
            return  # too late: all who waited have been told
        trip.timer.cancel()
        if task.cancelled() or error is not None:
            self._failed(trip, "error", "cannot be read", error)
            return
        now, view = time.monotonic(), trip.view
        if self._breaker(view).succeeded():
            self._log.info("store_recovered", view=view.name)
        found = dict(zip(trip.keys, task.result(), strict=True))
        for key, blob in found.items():
            if blob is not None:
                self._cache.put(view.spec.store, view.name, key, blob, now)
        self._metrics.store_answered(view.name, len(found), now - trip.left_at)
        self._tell(trip, found, "")

    def _failed(self, trip: RoundTrip, reason: str, said: str, error: BaseException | None = None) -> None:
        if self._breaker(trip.view).failed(time.monotonic()):
            self._log.warning("store_failed", view=trip.view.name, reason=reason, error=str(error or said))
        self._fail(trip, reason, said)

    def _fail(self, trip: RoundTrip, reason: str, said: str) -> None:
        self._metrics.store_failed(trip.view.name, reason)
        self._tell(trip, {}, said)

    def _tell(self, trip: RoundTrip, found: dict[bytes, bytes | None], reason: str) -> None:
        for waiter in trip.waiters:
            try:
                waiter(found, reason)
            except Exception:  # noqa: BLE001 - the others still wait
                self._log.exception("lookup_not_answered", view=trip.view.name)

    def retry_after_s(self, view: FeatureView) -> float:
        return self._breaker(view).retry_after_s(time.monotonic())

    def _breaker(self, view: FeatureView) -> Breaker:
        key = (view.name, view.spec.store)
        breaker = self._breakers.get(key)
        if breaker is None:
            breaker = self._breakers[key] = self._make_breaker()
        return breaker


def _join(cached: dict[bytes, bytes | None], on_done: OnDone, found: dict[bytes, bytes | None], reason: str) -> None:
    on_done(ChainMap(cached, found) if cached else found, reason)
