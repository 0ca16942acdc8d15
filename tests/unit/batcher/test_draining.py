"""A pod that stops refuses what comes, for whichever version."""

from dataclasses import replace

from services.core.errors import UNAVAILABLE
from services.core.model_spec import ModelSpec
from services.core.names import ModelVersion
from tests.support.batching import Bench
from tests.support.serving import served_by


def test_a_batcher_that_is_made_while_the_pod_drains_drains_too() -> None:
    bench = Bench()
    serving = served_by(lambda _model, _version: ModelSpec(), bench)
    serving.drain(lambda: None)
    before = bench.send([1])
    bench.batcher = serving.batcher(replace(bench.facts, name=ModelVersion("late", "1")))
    after = bench.send([1])

    assert bench.codes() == dict.fromkeys([*before, *after], UNAVAILABLE)
