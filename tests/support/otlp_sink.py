"""A collector of traces that keeps what it is sent: OTLP over gRPC, in the test's own process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import grpc.aio
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class OtlpSink:
    """`spans` are (service.name, span), in the order of their arrival."""

    def __init__(self) -> None:
        self.address = ""
        self.spans: list[tuple[str, Span]] = []
        self._grown = asyncio.Condition()

    async def received(self, count: int, timeout_s: float = 20) -> list[tuple[str, Span]]:
        """All spans, once there are `count`."""
        async with asyncio.timeout(timeout_s), self._grown:
            await self._grown.wait_for(lambda: len(self.spans) >= count)
        return self.spans

    async def export(self, request: ExportTraceServiceRequest, _context: object) -> bytes:
        async with self._grown:
            for group in request.resource_spans:
                names = [item.value.string_value for item in group.resource.attributes if item.key == "service.name"]
                self.spans += [(names[0], span) for scope in group.scope_spans for span in scope.spans]
            self._grown.notify_all()
        return b""


@asynccontextmanager
async def otlp_sink() -> AsyncIterator[OtlpSink]:
    sink = OtlpSink()
    handler = grpc.unary_unary_rpc_method_handler(sink.export, ExportTraceServiceRequest.FromString)
    service = "opentelemetry.proto.collector.trace.v1.TraceService"
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {"Export": handler})])
    sink.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield sink
    finally:
        await server.stop(0)
