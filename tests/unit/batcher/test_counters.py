"""What the batcher counts adds up, under its own names and under Triton's."""

from prometheus_client.metrics_core import Metric

from services.batcher.policy import BatchPolicy, WaitPolicy
from services.batcher.triton_metrics import triton_metrics
from services.core.errors import INTERNAL
from tests.support.batching import MS, Bench


def figures(bench: Bench) -> dict[str, float]:
    """Sample name, with the reason if it has one -> value."""
    found = {}
    for metric in triton_metrics([bench.batcher]):
        assert isinstance(metric, Metric)
        for sample in metric.samples:
            assert (sample.labels["model"], sample.labels["version"]) == ("echo", "1")
            found[sample.name + sample.labels.get("reason", "")] = sample.value
    return found


def test_sizes_times_counts_are_the_rows_and_counts_the_executions() -> None:
    bench = Bench(BatchPolicy(max_batch_rows=4))
    for rows in ([1, 2, 3], [4], [5, 6], [7, 8, 9, 10, 11], []):
        bench.send(rows)
    executed = []
    while batches := bench.puppet.batches():
        executed.append(batches[0].rows)
        bench.time.advance(MS)
        bench.puppet.echo()
    tally, counted = bench.batcher.lobby.tally, figures(bench)

    assert tally.executions == counted["nv_inference_exec_count"] == len(executed)
    assert tally.rows == counted["nv_inference_count"] == 11
    assert tally.batch_rows.sum == sum(executed) == 11
    assert sum(tally.batch_rows.counts) == len(executed)
    assert counted["nv_inference_request_success"] == 5


def test_triton_names_split_failures_by_reason() -> None:
    bench = Bench(BatchPolicy(max_batch_rows=1, max_queue_rows=2, wait=WaitPolicy(timeout_ns=5 * MS)))
    bench.send([1])
    bench.send([2])
    (cancelled,) = bench.send([3])
    bench.send([4])  # the queue is full
    bench.cancel(cancelled)
    bench.time.advance(6 * MS)  # the second one's time is over
    bench.puppet.error(INTERNAL, "no")
    bench.send([1, 2, 3] * 1000)  # too many rows
    counted = figures(bench)

    assert {name: value for name, value in counted.items() if "failure" in name} == {
        "nv_inference_request_failureREJECTED": 2,
        "nv_inference_request_failureCANCELED": 1,
        "nv_inference_request_failureBACKEND": 1,
        "nv_inference_request_failureOTHER": 1,
    }


def test_requests_in_the_queue_are_counted_however_they_leave() -> None:
    bench = Bench(BatchPolicy(max_batch_rows=2))
    numbers = bench.send([0]) + [number for value in range(1, 6) for number in bench.send([value])]
    assert figures(bench)["nv_inference_pending_request_count"] == 5

    bench.cancel(numbers[1])
    bench.puppet.echo()
    assert figures(bench)["nv_inference_pending_request_count"] == 2

    bench.puppet.echo()
    bench.puppet.echo()

    assert figures(bench)["nv_inference_pending_request_count"] == 0


def test_times_are_those_of_the_stages() -> None:
    bench = Bench(slots=1)
    bench.send([1])
    bench.send([2])
    bench.time.advance(3 * MS)
    bench.puppet.echo()
    bench.puppet.echo()
    counted = figures(bench)

    assert counted["nv_inference_queue_duration_us"] == 3000
    inside = ("queue", "compute_input", "compute_infer", "compute_output")
    parts = sum(counted[f"nv_inference_{name}_duration_us"] for name in inside)
    assert counted["nv_inference_request_duration_us"] == parts
