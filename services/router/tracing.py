"""Which requests are kept as traces, decided after the answer: sampled, slow or failed."""

import random
import time

from services.chassis.telemetry import Trace, Traces, child_of, parse_traceparent
from services.core.errors import OK
from services.core.stages import STAGES
from services.router.flight import Flight


class TraceKeeper:
    """Called with every finished flight while an exporter is configured; nothing of it runs otherwise."""

    def __init__(self, traces: Traces, *, slow_ms: float, ratio: float) -> None:
        self._traces = traces
        self._slow_ns = int(slow_ms * 1e6)
        self._ratio = ratio

    def begin(self, flight: Flight) -> str:
        """The traceparent that is sent on with a flight whose trace is surely kept; else empty."""
        parent = parse_traceparent(flight.header("traceparent"))
        if parent is not None and parent.sampled:
            return str(child_of(parent, sampled=True))
        if self._ratio and random.random() < self._ratio:  # noqa: S311 - sampling
            return str(child_of(parent, sampled=True))
        return ""

    def finished(self, flight: Flight, code: int, message: str, sample: tuple[int, ...]) -> None:
        """Keep the flight's trace if it is worth it."""
        total_ns = time.perf_counter_ns() - flight.started_ns
        if not flight.traceparent and code == OK and total_ns < self._slow_ns:
            return
        stages = list(zip(STAGES, sample, strict=False)) if sample else _stages_so_far(flight)
        target = getattr(flight, "target", None)
        self._traces.keep(
            Trace(
                name="ModelInfer",
                stages=stages,
                started_ns=time.time_ns() - total_ns,
                total_ns=total_ns,
                parent=flight.header("traceparent"),
                own=flight.traceparent,
                attributes={
                    "model.name": target.model if target else "",
                    "model.version": target.version if target else "",
                    "turnout.arm": flight.arm,
                },
                code=code,
                message=message,
            )
        )


def _stages_so_far(flight: Flight) -> list[tuple[str, int]]:
    return list(zip(STAGES, (flight.parse_ns, flight.auth_ns, flight.route_ns, flight.features_ns), strict=False))
