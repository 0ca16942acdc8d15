import random
from bisect import bisect_left
from threading import Event, Thread

import pytest
from prometheus_client import CollectorRegistry

from services.core import stages
from services.core.model_spec import ModelSpec
from services.router.flight import Flight
from services.router.metrics import RouterMetrics
from services.router.table import Table, Target
from tests.support.puppets import signature
from turnout.v1 import link_pb2

NAMES = (*stages.STAGES, stages.TOTAL)


def target(version: str = "1") -> Target:
    return Target(link_pb2.Served(model="m", version=version, signature=signature()), ModelSpec())


def metrics() -> tuple[RouterMetrics, CollectorRegistry]:
    registry = CollectorRegistry()
    return RouterMetrics(registry), registry


def draw_sample(rng: random.Random) -> tuple[int, ...]:
    return tuple(int(10 ** rng.uniform(2, 11)) for _ in NAMES)


def series(registry: CollectorRegistry, name: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(sample.labels.values()): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == name
    }


@pytest.mark.parametrize("count", [0, 1, 511, 512, 513, 2000])
def test_the_folded_histogram_is_what_counting_one_by_one_gives(count: int) -> None:
    recorder, registry = metrics()
    one = target()
    recorder.follow(one)
    rng = random.Random(count)
    samples = [draw_sample(rng) for _ in range(count)]
    for sample in samples:
        recorder.answered(one, "stable", sample)

    buckets = series(registry, "turnout_stage_seconds_bucket")
    sums = series(registry, "turnout_stage_seconds_sum")
    for row, stage in enumerate(NAMES):
        values = sorted(sample[row] / 1e9 for sample in samples)
        bounds = [le for *_, name, le in buckets if name == stage]
        for bound in bounds:
            limit = float(bound.replace("+Inf", "inf"))
            expected = bisect_left(values, limit * (1 + 1e-12))
            assert (stage, bound, buckets["m", "1", stage, bound]) == (stage, bound, expected)
        assert sums["m", "1", stage] == pytest.approx(sum(values))


def test_a_new_target_of_the_same_version_goes_on_where_the_old_one_ended() -> None:
    recorder, registry = metrics()
    old, new = target(), target()
    recorder.follow(old)
    recorder.answered(old, "stable", (1,) * len(NAMES))
    recorder.follow(new)
    recorder.answered(new, "stable", (1,) * len(NAMES))

    assert series(registry, "turnout_stage_seconds_count")["m", "1", "total"] == 2


def test_scrapes_beside_requests_lose_nothing() -> None:
    recorder, registry = metrics()
    one = target()
    recorder.follow(one)
    done = Event()

    def scrape() -> None:
        while not done.is_set():
            series(registry, "turnout_stage_seconds_count")

    thread = Thread(target=scrape)
    thread.start()
    for _ in range(30_000):
        recorder.answered(one, "stable", (1000,) * len(NAMES))
    done.set()
    thread.join()

    assert series(registry, "turnout_stage_seconds_count")["m", "1", "total"] == 30_000


def test_requests_are_counted_by_what_is_configured_never_by_what_callers_say() -> None:
    recorder, registry = metrics()
    known = Flight(None, None, 0, {}, 0)  # type: ignore[arg-type]
    known.entry, known.target, known.arm = Entry("m"), target("2"), "canary"  # type: ignore[assignment]
    lost = Flight(None, None, 0, {}, 0)  # type: ignore[arg-type]

    recorder.answered(known.target, known.arm, (1,) * len(NAMES))
    recorder.answered(known.target, known.arm, (1,) * len(NAMES))
    recorder.failed(known, 14)
    recorder.failed(lost, 5)

    assert series(registry, "turnout_requests_total") == {
        ("m", "2", "canary", "0"): 2,
        ("m", "2", "canary", "14"): 1,
        ("", "", "", "5"): 1,
    }


class Entry:
    def __init__(self, name: str) -> None:
        self.name = name


def test_every_instrument_has_a_name_of_ours() -> None:
    _, registry = metrics()

    assert all(family.name.startswith("turnout_") for family in registry.collect())
    assert Table(lambda _: None).entries() == {}
