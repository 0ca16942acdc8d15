import asyncio
import time

from prometheus_client import CollectorRegistry

from services.chassis.telemetry import Trace, Traces, child_of, otlp_exporter
from tests.support.otlp_sink import otlp_sink


async def test_kept_requests_of_two_services_reach_a_collector_as_one_trace() -> None:
    sent_on = str(child_of(None, sampled=True))
    async with otlp_sink() as sink:
        router = Traces("router", otlp_exporter(sink.address), CollectorRegistry(), {"service.instance.id": "r-1"})
        batcher = Traces("batcher", otlp_exporter(sink.address), CollectorRegistry(), {"service.instance.id": "b-1"})
        router.keep(Trace("Infer", [("parse", 10)], time.time_ns(), 100, own=sent_on))
        batcher.keep(Trace("Run", [("queue", 20)], time.time_ns(), 50, parent=sent_on))
        await asyncio.gather(asyncio.to_thread(router.close, 10), asyncio.to_thread(batcher.close, 10))

        received = {(service, span.name): span for service, span in await sink.received(4)}

    root, run = received["router", "Infer"], received["batcher", "Run"]
    assert set(received) == {("router", "Infer"), ("router", "parse"), ("batcher", "Run"), ("batcher", "queue")}
    assert (root.parent_span_id, run.parent_span_id) == (b"", root.span_id)
    assert len({span.trace_id for span in received.values()}) == 1


async def test_a_collector_that_is_not_there_holds_nobody_up() -> None:
    traces = Traces("router", otlp_exporter("127.0.0.1:1"), CollectorRegistry(), {})
    began = time.monotonic()
    for _ in range(100):
        traces.keep(Trace("Infer", [("parse", 10)], time.time_ns(), 100))
    kept = time.monotonic() - began
    await asyncio.to_thread(traces.close, 1)

    assert kept < 0.5
    assert time.monotonic() - began < 3


def test_without_an_address_there_is_no_exporter() -> None:
    assert otlp_exporter("") is None
