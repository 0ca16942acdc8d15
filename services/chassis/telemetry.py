"""Traces: spans are built from measured durations after the answer, on a thread, only for requests worth keeping."""

import queue
import random
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags
from prometheus_client import CollectorRegistry, Counter

_TRACEPARENT = re.compile(
    r"([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]([0-9a-f])(-.*)?"
).fullmatch
_SAMPLED_FLAGS = frozenset("13579bdf")
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_SCOPE = InstrumentationScope("turnout")
_WAITING_TRACES = 1024  # kept requests that wait for the thread; more are dropped and counted
_WAITING_SPANS = 8192  # built spans that wait for the exporter
_EXPORT_TIMEOUT_S = 5.0


class Traceparent(NamedTuple):
    """W3C trace context, as lower-case hex."""

    trace_id: str  # 32 digits
    span_id: str  # 16 digits
    sampled: bool

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-0{int(self.sampled)}"


def parse_traceparent(text: str) -> Traceparent | None:
    """The parts of a `traceparent` header; None when it is not one (then a caller's trace is simply not continued).

    Source: W3C Trace Context, §3.2. Versions after 00 may carry more after the flags, set off by a dash.
    """
    found = _TRACEPARENT(text)
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == "ff" or (more and version == "00"):
        return None
    return Traceparent(trace_id, span_id, flags in _SAMPLED_FLAGS)


def child_of(parent: Traceparent | None, *, sampled: bool) -> Traceparent:
    """A new span's own context: within the parent's trace, or in a new one. Its text is what the next hop is sent."""
    trace_id = parent.trace_id if parent else f"{_identity(128):032x}"
    return Traceparent(trace_id, f"{_identity(64):016x}", sampled)


class Trace(NamedTuple):
    """What the spans of one kept request are built from."""

    name: str
    stages: Sequence[tuple[str, int]]  # (stage, nanoseconds), one after the other
    started_ns: int  # since the epoch
    total_ns: int
    parent: str = ""  # traceparent that came with the request; empty = this is the first span
    own: str = ""  # traceparent that was sent on, so that the next hop's spans hang below; empty = made up here
    service: str = ""  # under whose service.name the spans appear; empty = this process's
    attributes: Mapping[str, str | int | float | bool] = {}
    code: int = 0  # gRPC status
    message: str = ""


def spans_from_stages(trace: Trace, resource: Resource) -> list[ReadableSpan]:
    """The request's span and below it one for each stage that took time, laid end to end from its start."""
    parent = parse_traceparent(trace.parent)
    own = _context(parse_traceparent(trace.own) or child_of(parent, sampled=True))
    failed = Status(StatusCode.ERROR, trace.message) if trace.code else Status()
    attributes = {**trace.attributes, "rpc.grpc.status_code": trace.code}
    request = ReadableSpan(
        trace.name,
        own,
        parent=_context(parent, is_remote=True) if parent else None,
        resource=resource,
        attributes=attributes,
        kind=SpanKind.SERVER,
        status=failed,
        start_time=trace.started_ns,
        end_time=trace.started_ns + trace.total_ns,
        instrumentation_scope=_SCOPE,
    )
    return [request, *_stage_spans(trace, own, resource)]


def _stage_spans(trace: Trace, parent: SpanContext, resource: Resource) -> Iterator[ReadableSpan]:
    at = trace.started_ns
    for stage, took_ns in trace.stages:
        if took_ns <= 0:
            continue
        yield ReadableSpan(
            stage,
            SpanContext(parent.trace_id, _identity(64), is_remote=False, trace_flags=_SAMPLED),
            parent=parent,
            resource=resource,
            start_time=at,
            end_time=at + took_ns,
            instrumentation_scope=_SCOPE,
        )
        at += took_ns


def _context(at: Traceparent, *, is_remote: bool = False) -> SpanContext:
    return SpanContext(int(at.trace_id, 16), int(at.span_id, 16), is_remote=is_remote, trace_flags=_SAMPLED)


def _identity(bits: int) -> int:
    return random.getrandbits(bits) or 1  # ids must be distinct, not secret


class Traces:
    """Where a service leaves the requests it keeps: a bounded queue to a thread that builds and exports their spans.

    Without an exporter `keep` does nothing. `provider` gives tracers for what is not a request (a load, a start).
    """

    def __init__(
        self, service: str, exporter: SpanExporter | None, registry: CollectorRegistry, attributes: Mapping[str, str]
    ) -> None:
        self.enabled = exporter is not None
        self._attributes = {"service.namespace": "turnout", **attributes}
        self._service = service
        self._resources: dict[str, Resource] = {}
        self.provider = TracerProvider(resource=self._resource(""), shutdown_on_exit=False)
        self._waiting: queue.Queue[Trace | None] = queue.Queue(_WAITING_TRACES)
        self._dropped = Counter(
            "turnout_traces_dropped",
            "Kept requests whose spans were dropped: the exporter is too slow.",
            registry=registry,
        )
        self._thread = threading.Thread(target=self._build, name="traces", daemon=True)
        if exporter is not None:
            self._processor = BatchSpanProcessor(exporter, max_queue_size=_WAITING_SPANS)
            self.provider.add_span_processor(self._processor)
            self._thread.start()

    def keep(self, trace: Trace) -> None:
        """Leave a request for the thread; never waits: what finds the queue full is dropped and counted."""
        if not self.enabled:
            return
        try:
            self._waiting.put_nowait(trace)
        except queue.Full:
            self._dropped.inc()

    def close(self, timeout_s: float) -> None:
        """Export what waits, for at most `timeout_s`; blocks."""
        if not self.enabled:
            return
        self.enabled = False
        closing = threading.Thread(target=self._flush, name="traces-close", daemon=True)
        closing.start()
        closing.join(timeout_s)

    def _flush(self) -> None:
        self._waiting.put(None)
        self._thread.join()
        self.provider.shutdown()

    def _build(self) -> None:
        while (trace := self._waiting.get()) is not None:
            for span in spans_from_stages(trace, self._resource(trace.service)):
                self._processor.on_end(span)

    def _resource(self, service: str) -> Resource:
        name = service or self._service
        if name not in self._resources:
            own = self._attributes if name == self._service else {"service.namespace": "turnout"}
            self._resources[name] = Resource.create({**own, "service.name": name})
        return self._resources[name]


def otlp_exporter(endpoint: str) -> SpanExporter | None:
    """Spans to the OTLP gRPC collector at `endpoint` (host:port, plaintext); None when it is empty."""
    if not endpoint:
        return None
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # noqa: PLC0415 - 0.2 s that only this needs
        OTLPSpanExporter,
    )

    return OTLPSpanExporter(endpoint=endpoint, insecure=True, timeout=_EXPORT_TIMEOUT_S)
