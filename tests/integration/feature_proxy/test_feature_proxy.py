"""A real feature proxy, real etcd, and the stores it reads: a SQLite file and a real Redis server."""

import asyncio
import sqlite3
import time
import urllib.request
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from services.core.errors import FAILED_PRECONDITION, INVALID_ARGUMENT, NOT_FOUND, OK, UNAVAILABLE
from services.core.feature_spec import FeatureViewSpec
from services.core.registry import ConfigStatus
from tests.support.feature_client import FeatureClient, columns_of, connected, load_rows, look_up, statuses_of
from tests.support.mesh import Mesh, until
from tests.support.proof import Starvation
from tests.support.redis import RedisProcess

PRESENT, NULL, MISSING, STALE = range(4)
PROXY = "feature-proxy"
ROWS: dict[int | str | bytes, dict[str, Any]] = {
    1: {"age": 61.5, "visits": 3, "scan": [1, 2]},
    2: {"age": 44, "visits": None, "scan": [3, 4]},
    "ana": {"age": 30, "visits": 1, "scan": [5, 6]},
    b"\xff\x00": {"age": 1, "visits": 9, "scan": [7, 8]},
}


def a_spec(store: str, **fields: Any) -> FeatureViewSpec:
    columns = [
        {"name": "age", "datatype": "FP32", "default": -1},
        {"name": "visits", "datatype": "INT64", "default": 7},
        {"name": "scan", "datatype": "FP64", "shape": [2]},
    ]
    value = {"store": store, "entity": "patient_id", "columns": columns, "timeout_ms": 2000, **fields}
    return FeatureViewSpec.model_validate(value)


@pytest.fixture
async def mesh(tmp_path: Path) -> AsyncIterator[Mesh]:
    # Without the cache, so that each look-up sees what the store does.
    async with Mesh(tmp_path, only=[PROXY], settings={PROXY: {"CACHE_TTL_S": "0"}}) as running:
        yield running


@pytest.fixture
async def client(mesh: Mesh) -> AsyncIterator[FeatureClient]:
    async with connected(await mesh.address(PROXY)) as opened:
        yield opened


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisProcess]:
    async with RedisProcess(tmp_path / "redis") as running:
        yield running


@pytest.fixture(params=["sqlite", "redis"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """The URL of a store that runs; its kind is the test's parameter."""
    if request.param == "sqlite":
        yield f"sqlite://{tmp_path}/features.db"
        return
    async with RedisProcess(tmp_path / "redis-store") as server:
        yield server.url


async def put_view(mesh: Mesh, name: str, value: FeatureViewSpec | Mapping[str, Any] | bytes) -> ConfigStatus:
    """Write a view; the proxy's status once it has taken notice."""
    revision = await mesh.put(f"feature_views/{name}", value.dump() if isinstance(value, FeatureViewSpec) else value)

    async def noticed() -> ConfigStatus | None:
        listing = await mesh.client.list("status/feature_proxy/")
        statuses = [ConfigStatus.parse(entry.value) for entry in listing.entries.values()]
        return next((status for status in statuses if status.revision >= revision), None)

    return await until(f"the proxy has seen {name}", noticed)


async def metrics(mesh: Mesh) -> str:
    address = await mesh.metrics(PROXY)
    response = await asyncio.to_thread(urllib.request.urlopen, f"http://{address}/metrics", timeout=5)
    with response:
        return str(response.read(), "utf-8")


async def test_rows_come_in_order_with_duplicates_and_each_kind_of_key(
    mesh: Mesh, client: FeatureClient, store: str
) -> None:
    spec = a_spec(store)
    await load_rows(store, "tumor", spec, ROWS)
    await put_view(mesh, "tumor", spec)

    answer = await client.ask(look_up("tumor", 2, "ana", 1, b"\xff\x00", 2))

    assert (answer.code, answer.message) == (OK, "")
    assert columns_of(answer.views[0]) == {
        "age": [44, 30, 61.5, 1, 44],
        "visits": [7, 1, 3, 9, 7],
        "scan": [[3, 4], [5, 6], [1, 2], [7, 8], [3, 4]],
    }
    assert statuses_of(answer.views[0]) == [[PRESENT, NULL if row in (0, 4) else PRESENT, PRESENT] for row in range(5)]
    assert (answer.views[0].view, answer.views[0].version) == ("tumor", 1)
    assert answer.total_ns > 0


async def test_digits_as_text_find_the_entity_of_that_number(mesh: Mesh, client: FeatureClient, store: str) -> None:
    spec = a_spec(store)
    await load_rows(store, "tumor", spec, ROWS)
    await put_view(mesh, "tumor", spec)

    answer = await client.ask(look_up("tumor", "1", b"1", 1, columns=["visits", "age"]))

    assert [column.name for column in answer.views[0].columns] == ["visits", "age"]
    assert columns_of(answer.views[0])["visits"] == [3, 3, 3]


async def test_an_unknown_entity_is_not_found_or_defaults_as_the_view_says(
    mesh: Mesh, client: FeatureClient, store: str
) -> None:
    for name, policy in (("strict", "fail"), ("lenient", "default")):
        await load_rows(store, name, a_spec(store), ROWS)
        await put_view(mesh, name, a_spec(store, on_missing=policy))

    strict = await client.ask(look_up("strict", 1, 9999))
    lenient = await client.ask(look_up("lenient", 9999, 1))

    assert (strict.code, strict.message) == (NOT_FOUND, "feature view strict has no entity patient_id=9999")
    assert not strict.views
    assert columns_of(lenient.views[0])["age"] == [-1, 61.5]
    assert statuses_of(lenient.views[0]) == [[MISSING] * 3, [PRESENT] * 3]


async def test_age_is_judged_by_event_time(mesh: Mesh, client: FeatureClient, store: str) -> None:
    policies = {"serve": 60, "default": 60, "fail": 60, "forever": 0}
    for name, ttl_s in policies.items():
        spec = a_spec(store, ttl_s=ttl_s, on_stale="fail" if name == "forever" else name)
        await load_rows(store, name, spec, {1: ROWS[1]}, event_time=time.time() - 100)
        await load_rows(store, name, spec, {2: ROWS[1]}, event_time=time.time())
        await put_view(mesh, name, spec)

    answers = {name: await client.ask(look_up(name, 1, 2)) for name in policies}

    assert [answers[name].code for name in policies] == [OK, OK, FAILED_PRECONDITION, OK]
    ages = {name: columns_of(answers[name].views[0])["age"] for name in ("serve", "default", "forever")}
    assert ages == {"serve": [61.5, 61.5], "default": [-1, 61.5], "forever": [61.5, 61.5]}
    assert statuses_of(answers["serve"].views[0]) == [[STALE] * 3, [PRESENT] * 3]
    assert statuses_of(answers["forever"].views[0]) == [[PRESENT] * 3] * 2
    assert "entity patient_id=1 is 100." in answers["fail"].message


async def test_a_redis_that_is_killed_costs_no_more_than_the_timeout_and_is_found_again(
    mesh: Mesh, client: FeatureClient, redis: RedisProcess
) -> None:
    strict = a_spec(redis.url, timeout_ms=200)
    lenient = a_spec(redis.url, timeout_ms=200, on_error="default")
    for name, spec in (("strict", strict), ("lenient", lenient)):
        await load_rows(redis.url, name, spec, ROWS)
        await put_view(mesh, name, spec)
    assert (await client.ask(look_up("strict", 1))).code == OK
    redis.kill()

    for _ in range(10):
        starved, started = Starvation(mesh.child(PROXY).pid), time.monotonic()
        failed, defaulted = await asyncio.gather(client.ask(look_up("strict", 1)), client.ask(look_up("lenient", 1)))
        assert time.monotonic() - started < 0.5 + starved.seconds
        assert failed.code == UNAVAILABLE
        assert failed.message.startswith("feature view strict: its store ")
        assert failed.retry_after_us > 0
        assert (defaulted.code, columns_of(defaulted.views[0])["age"]) == (OK, [-1])
        assert statuses_of(defaulted.views[0]) == [[MISSING] * 3]
    await redis.start()
    await load_rows(redis.url, "strict", strict, ROWS)

    async def answers_again() -> bool:
        return (await client.ask(look_up("strict", 1))).code == OK

    await until("the proxy reads Redis again", answers_again, timeout_s=5)


async def test_a_redis_that_hangs_is_given_up_in_time_and_answers_again_when_it_moves(
    mesh: Mesh, client: FeatureClient, redis: RedisProcess
) -> None:
    await load_rows(redis.url, "v", a_spec(redis.url), ROWS)
    await put_view(mesh, "v", a_spec(redis.url, timeout_ms=150))
    assert (await client.ask(look_up("v", 1))).code == OK
    redis.pause()

    starved, started = Starvation(mesh.child(PROXY).pid), time.monotonic()
    own_bound, callers_bound = await asyncio.gather(
        client.ask(look_up("v", 1)), client.ask(look_up("v", 1), deadline_s=0.05)
    )
    took_s = time.monotonic() - started - starved.seconds
    redis.resume()

    async def answers_again() -> bool:
        return (await client.ask(look_up("v", 1))).code == OK

    await until("the proxy reads Redis again", answers_again, timeout_s=5)
    assert [own_bound.code, callers_bound.code] == [UNAVAILABLE, UNAVAILABLE]
    assert own_bound.message == "feature view v: its store did not answer within 150 ms"
    assert "the 50.0 ms that the look-up had left" in callers_bound.message
    assert took_s < 0.6


async def test_a_view_changed_live_answers_differently_without_a_restart(
    mesh: Mesh, client: FeatureClient, tmp_path: Path
) -> None:
    old, new = (a_spec(f"sqlite://{tmp_path}/{name}.db", on_missing="default") for name in ("old", "new"))
    await load_rows(old.store, "v", old, {1: {"age": 1}})
    await load_rows(new.store, "v", new, {1: {"age": 2}})
    await put_view(mesh, "v", old)
    before = await client.ask(look_up("v", 1, version=1))

    await put_view(mesh, "v", new.model_copy(update={"version": 2}))
    after = await client.ask(look_up("v", 1, version=2))
    mismatch = await client.ask(look_up("v", 1, version=1))

    assert [columns_of(answer.views[0])["age"] for answer in (before, after)] == [[1], [2]]
    assert (mismatch.code, mismatch.message) == (
        FAILED_PRECONDITION,
        "feature view v is at version 2, but version 1 was asked for",
    )


async def test_a_bad_view_is_refused_in_status_and_metric_and_the_last_good_one_serves(
    mesh: Mesh, client: FeatureClient, tmp_path: Path
) -> None:
    good = a_spec(f"sqlite://{tmp_path}/f.db")
    await load_rows(good.store, "v", good, ROWS)
    accepted = (await put_view(mesh, "v", good)).accepted

    status = await put_view(mesh, "v", {**good.model_dump(mode="json"), "ttl": 1})
    answer = await client.ask(look_up("v", 1))
    exposed = await metrics(mesh)

    assert status.refused["feature_views/v"] == "ttl: unknown field"
    assert status.accepted == accepted
    assert answer.code == OK
    assert 'turnout_feature_view_refused{view="v"} 1.0' in exposed
    assert (await put_view(mesh, "v", good)).refused == {}
    assert 'turnout_feature_view_refused{view="v"}' not in await metrics(mesh)


async def test_a_proxy_that_starts_after_a_bad_write_serves_the_value_before_it(mesh: Mesh, tmp_path: Path) -> None:
    good = a_spec(f"sqlite://{tmp_path}/f.db")
    await load_rows(good.store, "v", good, ROWS)
    await mesh.stop(PROXY)
    await mesh.put("feature_views/v", good.dump())
    await mesh.put("feature_views/v", b"{")
    await mesh.put("feature_views/v", b"[]")
    await mesh.restart(PROXY)

    async with connected(await mesh.address(PROXY)) as client:

        async def is_served() -> bool:
            return (await client.ask(look_up("v", 1))).code == OK

        await until("the earlier value serves", is_served, timeout_s=10)


async def test_views_survive_a_restart_without_etcd(mesh: Mesh, tmp_path: Path) -> None:
    good = a_spec(f"sqlite://{tmp_path}/f.db")
    await load_rows(good.store, "v", good, ROWS)
    await put_view(mesh, "v", good)
    await mesh.stop(PROXY)

    async with mesh.without_etcd():
        await mesh.start(PROXY, ready=False)

        async def address() -> str | None:
            lines = [line for line in mesh.log_lines(PROXY) if line.get("name") == "link"]
            return str(lines[-1]["address"]) if lines else None

        socket = await until("the proxy listens", address)
        async with connected(socket) as client:

            async def is_served() -> bool:
                return (await client.ask(look_up("v", 1))).code == OK

            await until("the snapshot serves", is_served, timeout_s=10)


async def test_rows_written_with_other_columns_are_an_error_that_says_so(
    mesh: Mesh, client: FeatureClient, store: str
) -> None:
    await load_rows(store, "v", a_spec(store), ROWS)
    await put_view(mesh, "v", a_spec(store, columns=[{"name": "age"}]))

    answer = await client.ask(look_up("v", 1))

    assert answer.code == FAILED_PRECONDITION
    assert answer.message.startswith(
        "feature view v, entity patient_id=1: the stored row was written with other columns"
    )


async def test_views_and_columns_that_do_not_exist_are_said(mesh: Mesh, client: FeatureClient, tmp_path: Path) -> None:
    await put_view(mesh, "v", a_spec(f"sqlite://{tmp_path}/f.db"))

    unknown = await client.ask(look_up("w", 1))
    column = await client.ask(look_up("v", 1, columns=["agee"]))
    no_entity = await client.ask(look_up("v", ""))

    assert (unknown.code, unknown.message) == (FAILED_PRECONDITION, "there is no feature view 'w'; known are v")
    assert (column.code, "its columns are age, visits, scan" in column.message) == (FAILED_PRECONDITION, True)
    assert (no_entity.code, "the entity of row 0 has 0 bytes" in no_entity.message) == (INVALID_ARGUMENT, True)


async def test_a_sqlite_file_that_is_missing_is_unavailable_until_it_is_there(
    mesh: Mesh, client: FeatureClient, tmp_path: Path
) -> None:
    spec = a_spec(f"sqlite://{tmp_path}/later.db")
    await put_view(mesh, "v", spec)
    before = await client.ask(look_up("v", 1))
    await load_rows(spec.store, "v", spec, ROWS)

    async def answers() -> bool:
        return (await client.ask(look_up("v", 1))).code == OK

    await until("the file is read", answers, timeout_s=5)
    assert (before.code, before.message) == (UNAVAILABLE, "feature view v: its store cannot be read")
    with sqlite3.connect(tmp_path / "later.db") as connection:
        connection.execute("UPDATE features SET value = x'00' WHERE entity = x'31'")
    connection.close()
    assert "the stored value (1 bytes) is no feature row" in (await client.ask(look_up("v", 1))).message


async def test_a_cancelled_look_up_gets_no_answer_and_the_link_goes_on(
    mesh: Mesh, client: FeatureClient, redis: RedisProcess
) -> None:
    await load_rows(redis.url, "v", a_spec(redis.url), ROWS)
    await put_view(mesh, "v", a_spec(redis.url, timeout_ms=5000))
    assert (await client.ask(look_up("v", 1))).code == OK
    redis.pause()

    lookup_id, cancelled = client.send(look_up("v", 1))
    # Answers that need no store: when one is here, the proxy has read all that was sent before it.
    assert (await client.ask(look_up("w", 1))).code == FAILED_PRECONDITION
    client.cancel(lookup_id)
    assert (await client.ask(look_up("w", 1))).code == FAILED_PRECONDITION
    _, other = client.send(look_up("v", 2))
    redis.resume()

    assert (await asyncio.wait_for(other, 10)).code == OK
    assert not cancelled.done()


async def test_look_ups_of_a_caller_that_went_away_are_let_go(mesh: Mesh, redis: RedisProcess) -> None:
    await load_rows(redis.url, "v", a_spec(redis.url), ROWS)
    await put_view(mesh, "v", a_spec(redis.url, timeout_ms=60_000))
    in_flight = "turnout_feature_lookups_in_flight "

    async with connected(await mesh.address(PROXY)) as client:
        await client.ask(look_up("v", 1))
        redis.pause()
        client.send(look_up("v", 1))

        async def is_held() -> bool:
            return f"{in_flight}1.0" in await metrics(mesh)

        await until("the look-up is in flight", is_held, timeout_s=10)

    async def is_gone() -> bool:
        return f"{in_flight}0.0" in await metrics(mesh)

    await until("the look-up is let go", is_gone, timeout_s=10)


async def test_answers_over_256_kib_and_the_local_socket_work(mesh: Mesh, tmp_path: Path) -> None:
    spec = a_spec(f"sqlite://{tmp_path}/f.db")
    await load_rows(spec.store, "v", spec, {i: {"age": i} for i in range(5000)})
    await put_view(mesh, "v", spec)
    addresses = [line["address"] for line in mesh.log_lines(PROXY) if line.get("name") == "link"]

    for address in addresses:
        async with connected(address) as client:
            answer = await client.ask(look_up("v", *reversed(range(5000)), *range(5000)))

            assert columns_of(answer.views[0])["age"] == [*reversed(range(5000)), *range(5000)]


async def test_a_stop_says_drain_answers_what_is_in_flight_and_exits_with_0(
    mesh: Mesh, client: FeatureClient, redis: RedisProcess
) -> None:
    await load_rows(redis.url, "v", a_spec(redis.url), ROWS)
    await put_view(mesh, "v", a_spec(redis.url, timeout_ms=5000))
    assert (await client.ask(look_up("v", 1))).code == OK
    redis.pause()
    _, in_flight = client.send(look_up("v", 2))
    assert (await client.ask(look_up("w", 1))).code == FAILED_PRECONDITION  # so what was sent before is read

    stopping = asyncio.ensure_future(mesh.stop(PROXY))

    async def is_told() -> bool:
        return bool(client.drains)

    await until("the proxy says that it drains", is_told, timeout_s=5)
    # It gives its callers a moment to look elsewhere, and answers as ever until then.
    while (refusal := await client.ask(look_up("w", 1))).code == FAILED_PRECONDITION:
        await asyncio.sleep(0.01)
    redis.resume()

    assert (refusal.code, refusal.message) == (UNAVAILABLE, "the feature proxy is draining")
    assert (await asyncio.wait_for(in_flight, 5)).code == OK
    assert await stopping == 0


async def test_metrics_tell_look_ups_rows_and_store_errors(
    mesh: Mesh, client: FeatureClient, redis: RedisProcess
) -> None:
    await load_rows(redis.url, "v", a_spec(redis.url), ROWS)
    await put_view(mesh, "v", a_spec(redis.url, on_missing="default"))
    await client.ask(look_up("v", 1, 1, 2, 9999))
    redis.kill()
    await client.ask(look_up("v", 1))

    exposed = await metrics(mesh)

    for line in (
        'turnout_feature_lookups_total{code="0"} 1.0',
        'turnout_feature_lookups_total{code="14"} 1.0',
        'turnout_feature_rows_total{status="PRESENT",view="v"} 2.0',
        'turnout_feature_rows_total{status="NULL",view="v"} 1.0',
        'turnout_feature_rows_total{status="NOT_FOUND",view="v"} 1.0',
        'turnout_feature_store_errors_total{reason="error",view="v"} 1.0',
        "turnout_feature_lookup_seconds_count 2.0",
        "turnout_feature_views 1.0",
    ):
        assert line in exposed
