"""Look-ups against a store that a test holds in its hand: shared reads, deadlines, failures, bounds."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest
import structlog
from prometheus_client import CollectorRegistry

from services.chassis.etcd import Change
from services.core.errors import (
    InternalError,
    InvalidRequestError,
    NotFoundError,
    OverloadedError,
    PreconditionError,
    ServingError,
    TooLargeError,
    UnavailableError,
)
from services.core.feature_spec import FeatureViewSpec
from services.feature_proxy import codec
from services.feature_proxy.breaker import Breaker
from services.feature_proxy.cache import Cache
from services.feature_proxy.feature_view import Status
from services.feature_proxy.lookup import Answered, Asked, Limits, Lookup, Lookups, Outcome
from services.feature_proxy.metrics import Metrics
from services.feature_proxy.round_trip import Reader
from services.feature_proxy.stores import StoreError
from services.feature_proxy.stores.pool import StorePool
from services.feature_proxy.views import Views
from tests.support.proof import Starvation

SPEC: dict[str, Any] = {"store": "memory://m", "entity": "id", "columns": [{"name": "x"}], "timeout_ms": 200}
LIMITS = Limits()


class FakeStores:
    """Stands for the pool of stores; reads wait while `gate` is clear."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, bytes], bytes] = {}
        self.reads: list[tuple[str, list[bytes]]] = []
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def get_many(self, _url: str, view: str, keys: Sequence[bytes]) -> list[bytes | None]:
        self.reads.append((view, list(keys)))
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return [self.rows.get((view, key)) for key in keys]


class Mesh:
    """Look-ups with everything behind them, two views "a" and "b" that differ as `specs` says."""

    def __init__(self, limits: Limits = LIMITS, cache_ttl_s: float = 0, **specs: Mapping[str, Any]) -> None:
        self.stores = FakeStores()
        self.registry = CollectorRegistry()
        self.views = Views()
        self.views.loaded = True
        for name in ("a", "b"):
            spec = FeatureViewSpec.model_validate({**SPEC, **specs.get(name, {})})
            self.views.apply([Change(f"feature_views/{name}", spec.dump(), 1)])
            layout = codec.Layout.of(spec.columns)
            self.stores.rows |= {(name, b"%d" % i): codec.pack(layout, {"x": i}, 0) for i in range(100)}
        metrics, log = Metrics(self.registry), structlog.get_logger()
        cache = Cache(cache_ttl_s, 1000, 1 << 20)
        self.reader = Reader(cast("StorePool", self.stores), cache, lambda: Breaker(3, 0.2), metrics, log)
        self.lookups = Lookups(self.views, self.reader, metrics, limits, log, wall_clock=lambda: 0)
        self.begun: list[Lookup] = []

    def begin(self, *asked: Asked, deadline_s: float = 0) -> "asyncio.Future[Outcome]":
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        try:
            self.begun.append(self.lookups.begin(asked, deadline_s, outcome.set_result))
        except ServingError as error:
            outcome.set_result(error)
        return outcome

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


def ask(view: str, *keys: int, version: int = 0, columns: Sequence[str] = ()) -> Asked:
    return Asked(view, version, [b"%d" % key for key in keys], columns)


def xs(outcome: Outcome) -> list[list[float]]:
    assert not isinstance(outcome, ServingError), outcome
    return [answered.values.columns[0].tolist() for answered in outcome]


def statuses(outcome: Outcome) -> list[list[int]]:
    return [cast("Answered", answered).values.statuses.ravel().tolist() for answered in cast("list", outcome)]


async def test_a_look_up_of_two_views_is_answered_row_by_row() -> None:
    mesh = Mesh()

    outcome = await mesh.begin(ask("a", 3, 1, 3), ask("b", 2))

    assert xs(outcome) == [[3, 1, 3], [2]]
    assert mesh.lookups.in_flight == 0


async def test_look_ups_of_one_turn_share_one_read_a_view_with_each_entity_once() -> None:
    mesh = Mesh()
    first, second, third = mesh.begin(ask("a", 1, 2)), mesh.begin(ask("a", 2, 3, 2)), mesh.begin(ask("b", 1))

    outcomes = await asyncio.gather(first, second, third)

    assert [xs(outcome) for outcome in outcomes] == [[[1, 2]], [[2, 3, 2]], [[1]]]
    assert mesh.stores.reads == [("a", [b"1", b"2", b"3"]), ("b", [b"1"])]


async def test_one_look_ups_unknown_entity_is_not_its_neighbours() -> None:
    mesh = Mesh()
    bad, good = mesh.begin(ask("a", 1, 9999)), mesh.begin(ask("a", 1))

    assert xs(await good) == [[1]]
    assert isinstance(await bad, NotFoundError)
    assert str(await bad) == "feature view a has no entity id=9999"


async def test_a_hanging_store_is_unavailable_within_the_views_timeout_and_named() -> None:
    mesh = Mesh(a={"timeout_ms": 50})
    mesh.stores.gate.clear()
    starved, started = Starvation(), asyncio.get_running_loop().time()

    outcome = await mesh.begin(ask("a", 1), ask("b", 1))

    assert isinstance(outcome, UnavailableError)
    assert str(outcome) == "feature view a: its store did not answer within 50 ms"
    assert outcome.retry_after_s
    assert 0.045 < asyncio.get_running_loop().time() - started < 0.19 + starved.seconds
    assert mesh.metric("turnout_feature_store_errors_total", view="a", reason="timeout") == 1


async def test_a_shorter_deadline_of_the_look_up_holds_for_it_alone() -> None:
    mesh = Mesh()
    mesh.stores.gate.clear()
    hasty, patient = mesh.begin(ask("a", 1), deadline_s=0.02), mesh.begin(ask("a", 1), deadline_s=60)

    outcome = await hasty
    mesh.stores.gate.set()

    assert str(outcome) == "feature view a: its store did not answer within the 20.0 ms that the look-up had left"
    assert xs(await patient) == [[1]]


@pytest.mark.parametrize("failure", ["error", "hang"])
async def test_under_default_a_failed_store_gives_defaults_even_where_missing_would_fail(failure: str) -> None:
    mesh = Mesh(a={"on_error": "default", "on_missing": "fail", "timeout_ms": 20})
    mesh.stores.error = StoreError("gone")
    if failure == "hang":
        mesh.stores.gate.clear()

    outcome = await mesh.begin(ask("a", 1, 2))

    assert xs(outcome) == [[0, 0]]
    assert statuses(outcome) == [[Status.NOT_FOUND] * 2]
    assert mesh.metric("turnout_feature_defaulted_lookups_total", view="a") == 1


async def test_a_broken_store_is_unavailable_and_what_the_store_said_stays_inside() -> None:
    mesh = Mesh()
    mesh.stores.error = OSError("secret host refused")

    outcome = await mesh.begin(ask("a", 1))

    assert isinstance(outcome, UnavailableError)
    assert str(outcome) == "feature view a: its store cannot be read"


async def test_after_failures_in_a_row_a_store_is_left_alone_and_tried_again_later() -> None:
    mesh = Mesh()
    mesh.stores.error = StoreError("gone")
    for _ in range(5):
        await mesh.begin(ask("a", 1))
    reads_while_broken = len(mesh.stores.reads)
    outcome = await mesh.begin(ask("a", 1))
    mesh.stores.error = None

    async with asyncio.timeout(5):
        while isinstance(await mesh.begin(ask("a", 1)), ServingError):
            await asyncio.sleep(0.02)

    assert reads_while_broken == 3
    assert str(outcome) == "feature view a: its store is left alone after failures in a row"
    assert xs(await mesh.begin(ask("b", 2))) == [[2]]


async def test_a_cancelled_look_up_is_not_answered_and_its_neighbour_is() -> None:
    mesh = Mesh()
    mesh.stores.gate.clear()
    cancelled, other = mesh.begin(ask("a", 1)), mesh.begin(ask("a", 2))

    mesh.lookups.cancel(mesh.begun[0])
    mesh.lookups.cancel(mesh.begun[0])
    mesh.stores.gate.set()

    assert xs(await other) == [[2]]
    assert not cancelled.done()
    assert mesh.lookups.in_flight == 0


async def test_look_ups_and_rows_beyond_the_bounds_are_refused_at_once() -> None:
    mesh = Mesh(Limits(max_in_flight=2, max_in_flight_rows=5, max_lookup_rows=4))
    mesh.stores.gate.clear()
    held = [mesh.begin(ask("a", 1, 2, 3, 4))]

    by_rows = await mesh.begin(ask("a", 1, 2))
    held.append(mesh.begin(ask("a", 1)))
    by_number = await mesh.begin(ask("a"))
    too_long = await mesh.begin(ask("a", 1, 2), ask("b", 1, 2, 3))
    mesh.stores.gate.set()

    assert isinstance(by_rows, OverloadedError)
    assert isinstance(by_number, OverloadedError)
    assert str(by_number) == "2 feature look-ups of 5 rows are in flight; the limits are 2 and 5"
    assert isinstance(too_long, InvalidRequestError)
    assert str(too_long) == "a look-up has at most 4 rows, not 5"
    assert [xs(await outcome) for outcome in held] == [[[1, 2, 3, 4]], [[1]]]
    assert xs(await mesh.begin(ask("a", 1))) == [[1]]


async def test_an_answer_that_would_be_too_large_is_refused_before_it_is_read() -> None:
    mesh = Mesh(Limits(max_answer_bytes=100))

    assert isinstance(await mesh.begin(ask("a", *range(4))), TooLargeError)
    assert mesh.stores.reads == []


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (ask("nope", 1), "there is no feature view 'nope'; known are a, b"),
        (ask("a", 1, version=2), "feature view a is at version 1, but version 2 was asked for"),
        (ask("a", 1, columns=["y"]), "feature view a has no column 'y'; its columns are x"),
    ],
)
async def test_what_does_not_match_the_view_is_a_failed_precondition(asked: Asked, message: str) -> None:
    outcome = await Mesh().begin(asked)

    assert isinstance(outcome, PreconditionError)
    assert str(outcome) == message


async def test_no_views_and_no_rows_are_answered_without_a_read() -> None:
    mesh = Mesh()

    assert await mesh.begin() == []
    assert xs(await mesh.begin(ask("a"))) == [[]]
    assert mesh.stores.reads == []


async def test_the_cache_saves_reads_but_never_of_unknown_entities() -> None:
    mesh = Mesh(cache_ttl_s=60, a={"on_missing": "default"})
    await mesh.begin(ask("a", 1, 9999))
    mesh.stores.rows.clear()

    outcome = await mesh.begin(ask("a", 1, 2, 9999, 1))

    assert xs(outcome) == [[1, 0, 0, 1]]
    assert mesh.stores.reads[1:] == [("a", [b"2", b"9999"])]
    assert mesh.metric("turnout_feature_cache_hits_total", view="a") == 1


async def test_cached_entities_are_served_when_the_store_fails_under_default() -> None:
    mesh = Mesh(cache_ttl_s=60, a={"on_error": "default"})
    await mesh.begin(ask("a", 1))
    mesh.stores.error = StoreError("gone")

    outcome = await mesh.begin(ask("a", 1, 2))

    assert (xs(outcome), statuses(outcome)) == ([[1, 0]], [[Status.PRESENT, Status.NOT_FOUND]])
    assert xs(await mesh.begin(ask("a", 1))) == [[1]]


async def test_a_bug_while_assembling_is_internal_and_says_nothing_more(capfd: pytest.CaptureFixture[str]) -> None:
    mesh = Mesh()
    mesh.stores.rows["a", b"1"] = cast("bytes", object())

    outcome = await mesh.begin(ask("a", 1))

    assert isinstance(outcome, InternalError)
    assert str(outcome) == "internal error"


async def test_while_draining_new_look_ups_are_refused_and_old_ones_answered() -> None:
    mesh = Mesh()
    mesh.stores.gate.clear()
    old = mesh.begin(ask("a", 1))
    draining = asyncio.ensure_future(mesh.lookups.drain())
    await asyncio.sleep(0)

    new = await mesh.begin(ask("a", 1))
    assert not draining.done()
    mesh.stores.gate.set()
    await asyncio.wait_for(draining, 5)

    assert isinstance(new, UnavailableError)
    assert xs(await old) == [[1]]


async def test_rows_are_counted_by_the_worst_status_of_their_columns() -> None:
    mesh = Mesh(a={"on_missing": "default"})

    await mesh.begin(ask("a", 1, 2, 9999))

    assert mesh.metric("turnout_feature_rows_total", view="a", status="PRESENT") == 2
    assert mesh.metric("turnout_feature_rows_total", view="a", status="NOT_FOUND") == 1


async def test_more_keys_than_one_round_trip_takes_leave_in_several() -> None:
    mesh = Mesh(Limits(max_lookup_rows=20_000), a={"on_missing": "default"}, b={"on_missing": "default"})
    first, second = mesh.begin(ask("a", *range(10_000))), mesh.begin(ask("a", *range(5_000, 15_000)))

    await asyncio.gather(first, second)

    assert [len(keys) for _, keys in mesh.stores.reads] == [10_000, 10_000]


async def test_closing_the_reader_answers_who_waits() -> None:
    mesh = Mesh()
    mesh.stores.gate.clear()
    outcome = mesh.begin(ask("a", 1))
    await asyncio.sleep(0.01)

    mesh.reader.close()

    assert isinstance(await outcome, UnavailableError)
