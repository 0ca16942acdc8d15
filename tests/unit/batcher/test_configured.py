"""Batching that a configuration beside the artifact asks for."""

from dataclasses import replace

import pytest

from services.core.model_spec import ModelSpec
from tests.support.batching import Bench
from tests.support.serving import served_by

CONFIGURED = b'{"max_batch_size": 2, "max_queue_delay_microseconds": 700}'


@pytest.mark.parametrize(
    ("spec", "rows", "delay_ns"),
    [
        (b"{}", 2, 700_000),
        (b'{"batching": {"max_batch_size": 16}}', 16, 700_000),
        (b'{"batching": {"preferred_batch_size": [4]}}', 64, 0),  # does not fit, so that the spec alone holds
    ],
)
def test_it_holds_where_the_spec_is_silent(spec: bytes, rows: int, delay_ns: int) -> None:
    bench = Bench(workers=0)
    bench.facts = replace(bench.facts, batching=CONFIGURED)
    served_by(lambda _model, _version: ModelSpec.parse(spec), bench)

    assert (bench.batcher.policy.max_batch_rows, bench.batcher.policy.delay_ns) == (rows, delay_ns)


def test_it_may_change_while_workers_run() -> None:
    bench = Bench(workers=0)
    serving = served_by(lambda _model, _version: ModelSpec(), bench)
    worker = bench.hire()
    before = bench.batcher.policy.max_batch_rows
    worker.worker.facts = bench.facts = replace(bench.facts, batching=CONFIGURED)
    serving.changed()

    assert (before, bench.batcher.policy.max_batch_rows) == (64, 2)


@pytest.mark.parametrize("rubbish", [b"{nope", b"\xff", b"[1]", b"[" * 100_000])
def test_what_cannot_be_read_is_not_heeded(rubbish: bytes) -> None:
    bench = Bench(workers=0)
    bench.facts = replace(bench.facts, batching=rubbish)
    served_by(lambda _model, _version: ModelSpec(), bench)

    assert bench.batcher.policy.max_batch_rows == 64
