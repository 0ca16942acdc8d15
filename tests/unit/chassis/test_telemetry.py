import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from prometheus_client import CollectorRegistry

from services.chassis.telemetry import Trace, Traceparent, Traces, child_of, parse_traceparent, spans_from_stages

TRACE_ID, SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"
HERE = Resource({"service.name": "here"})


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        (PARENT, Traceparent(TRACE_ID, SPAN_ID, sampled=True)),
        (f"00-{TRACE_ID}-{SPAN_ID}-00", Traceparent(TRACE_ID, SPAN_ID, sampled=False)),
        (f"00-{TRACE_ID}-{SPAN_ID}-03", Traceparent(TRACE_ID, SPAN_ID, sampled=True)),
        (f"00-{TRACE_ID}-{SPAN_ID}-fe", Traceparent(TRACE_ID, SPAN_ID, sampled=False)),
        (f"01-{TRACE_ID}-{SPAN_ID}-01-more", Traceparent(TRACE_ID, SPAN_ID, sampled=True)),
        ("", None),
        ("00", None),
        (f"{PARENT}-more", None),
        (f"01-{TRACE_ID}-{SPAN_ID}-01more", None),
        (f"ff-{TRACE_ID}-{SPAN_ID}-01", None),
        (f"00-{TRACE_ID.upper()}-{SPAN_ID}-01", None),
        (f"00-{'0' * 32}-{SPAN_ID}-01", None),
        (f"00-{TRACE_ID}-{'0' * 16}-01", None),
        (f"00-{TRACE_ID}-{SPAN_ID}-0g", None),
        (f"00-{TRACE_ID[:-1]}_-{SPAN_ID}-01", None),
        (f"00_{TRACE_ID}-{SPAN_ID}-01", None),
        (f"00-{TRACE_ID}{SPAN_ID}--01", None),
    ],
)
def test_a_traceparent_is_parsed_or_refused_as_w3c_says(text: str, parsed: Traceparent | None) -> None:
    assert parse_traceparent(text) == parsed


@given(st.text(max_size=80))
def test_no_text_breaks_the_parser(text: str) -> None:
    assert parse_traceparent(text) is None or len(text) >= 55


@given(st.booleans())
def test_a_child_stays_in_its_parents_trace_and_its_text_parses_back(sampled: bool) -> None:  # noqa: FBT001
    child = child_of(parse_traceparent(PARENT), sampled=sampled)

    assert parse_traceparent(str(child)) == child
    assert (child.trace_id, child.sampled) == (TRACE_ID, sampled)
    assert child.span_id != SPAN_ID


def test_a_child_of_nothing_starts_a_trace() -> None:
    child = child_of(None, sampled=True)

    assert parse_traceparent(str(child)) == child


def trace(**changes: object) -> Trace:
    kept = Trace("Infer", [("parse", 10), ("h2d", 0), ("queue", 30), ("compute", 60)], started_ns=1_000, total_ns=110)
    return kept._replace(**changes)


def test_stages_become_spans_end_to_end_below_the_requests_own() -> None:
    request, *stages = spans_from_stages(trace(parent=PARENT), HERE)

    assert [(span.name, span.start_time, span.end_time) for span in stages] == [
        ("parse", 1_000, 1_010),
        ("queue", 1_010, 1_040),
        ("compute", 1_040, 1_100),
    ]
    assert (request.name, request.start_time, request.end_time) == ("Infer", 1_000, 1_110)
    assert all(span.parent == request.context for span in stages)
    assert len({span.context.span_id for span in [request, *stages]}) == 4


def test_spans_join_the_callers_trace() -> None:
    request, *stages = spans_from_stages(trace(parent=PARENT), HERE)

    assert request.parent is not None
    assert (request.parent.span_id, request.parent.is_remote) == (int(SPAN_ID, 16), True)
    assert {span.context.trace_id for span in [request, *stages]} == {int(TRACE_ID, 16)}


def test_a_request_kept_though_its_caller_did_not_sample_is_exported_too() -> None:
    request, *_ = spans_from_stages(trace(parent=f"00-{TRACE_ID}-{SPAN_ID}-00"), HERE)

    assert request.context.trace_flags.sampled


def test_the_next_hops_spans_hang_below_the_traceparent_that_was_sent_on() -> None:
    own = child_of(parse_traceparent(PARENT), sampled=True)
    here, *_ = spans_from_stages(trace(parent=PARENT, own=str(own)), HERE)
    there, *_ = spans_from_stages(trace(parent=str(own)), Resource({"service.name": "there"}))

    assert there.parent is not None
    assert (there.parent.trace_id, there.parent.span_id) == (here.context.trace_id, here.context.span_id)


def test_a_failed_request_says_so() -> None:
    request, *_ = spans_from_stages(trace(code=14, message="no replica", attributes={"request.id": "r1"}), HERE)

    assert (request.status.status_code, request.status.description) == (StatusCode.ERROR, "no replica")
    assert request.attributes == {"request.id": "r1", "rpc.grpc.status_code": 14}


def test_kept_requests_are_exported_under_their_services_name() -> None:
    exporter = InMemorySpanExporter()
    traces = Traces("router", exporter, CollectorRegistry(), {"service.instance.id": "r-1"})

    traces.keep(trace())
    traces.keep(trace(service="batcher", stages=[]))
    traces.close(5)

    spans = exporter.get_finished_spans()
    assert [span.name for span in spans] == ["Infer", "parse", "queue", "compute", "Infer"]
    assert [span.resource.attributes["service.name"] for span in spans] == ["router"] * 4 + ["batcher"]
    assert spans[0].resource.attributes["service.instance.id"] == "r-1"
    assert spans[-1].resource.attributes["service.instance.id"] != "r-1"


class StuckExporter(SpanExporter):
    """Takes spans only once it is released."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def export(self, _spans: object) -> SpanExportResult:
        self.released.wait(30)
        return SpanExportResult.SUCCESS


def test_with_a_stuck_exporter_keeping_never_waits_and_memory_is_bounded() -> None:
    exporter, registry = StuckExporter(), CollectorRegistry()
    traces = Traces("router", exporter, registry, {})
    block = threading.Event()
    traces._resource = lambda _service: block.wait(30) and HERE  # the thread stands still at its first trace

    for _ in range(2_000):
        traces.keep(trace())

    dropped = registry.get_sample_value("turnout_traces_dropped_total")
    assert dropped is not None
    assert 2_000 - 1_025 <= dropped <= 2_000 - 1_024
    block.set()
    exporter.released.set()
    traces.close(5)


def test_without_an_exporter_nothing_is_kept() -> None:
    traces = Traces("router", None, CollectorRegistry(), {})

    traces.keep(trace())
    traces.close(0)

    assert not traces.enabled


def test_spans_are_readable_spans() -> None:
    assert all(isinstance(span, ReadableSpan) for span in spans_from_stages(trace(), HERE))
