"""Which requests are kept as traces, decided after the answer: sampled, slow or failed."""

import random
import time

from services.chassis.telemetry import Trace, Traces, child_of, parse_traceparent
from services.core.errors import OK
from services.core.settings_spec import TraceSetting, TraceSettings
from services.core.stages import STAGES
from services.router.flight import Flight


class TraceKeeper:
    """Called with every finished flight while an exporter is configured; nothing of it runs otherwise."""

    def __init__(self, traces: Traces, *, slow_ms: float, ratio: float) -> None:
        self._traces = traces
        self._slow_ns = int(slow_ms * 1e6)
        self._own_ratio = self._ratio = ratio
        self._settings = TraceSettings()
        self._is_on = True
        self._of_model: dict[str, tuple[bool, float]] = {}  # on, ratio; models that differ from the rest

    def follow(self, settings: TraceSettings) -> None:
        """What operators say now, over what this router was started with."""
        if settings != self._settings:
            self._settings = settings
            self._is_on, self._ratio = self._resolved(settings.of(""))
            self._of_model = {model: self._resolved(settings.of(model)) for model in settings.models}

    def _resolved(self, setting: TraceSetting) -> tuple[bool, float]:
        return setting.enabled is not False, self._own_ratio if setting.ratio is None else setting.ratio

    def _of(self, flight: Flight) -> tuple[bool, float]:
        if self._of_model and (inference := getattr(flight, "inference", None)) is not None:
            return self._of_model.get(inference.model, (self._is_on, self._ratio))
        return self._is_on, self._ratio

    def begin(self, flight: Flight) -> str:
        """The traceparent that is sent on with a flight whose trace is surely kept; else empty."""
        is_on, ratio = self._of(flight)
        if not is_on:
            return ""
        parent = parse_traceparent(flight.header("traceparent"))
        if parent is not None and parent.sampled:
            return str(child_of(parent, sampled=True))
        if ratio and random.random() < ratio:  # noqa: S311 - sampling
            return str(child_of(parent, sampled=True))
        return ""

    def finished(self, flight: Flight, code: int, message: str, sample: tuple[int, ...]) -> None:
        """Keep the flight's trace if it is worth it."""
        if not self._of(flight)[0]:
            return
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
