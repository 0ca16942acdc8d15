"""What is measured: which rules meet which devices, at which rates, and how long."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from loadtest.batching.arrivals import Kind
from loadtest.batching.bed import OURS, PodPlan
from loadtest.batching.job import Job
from loadtest.batching.worker import Device

SINGLE, FIXED, TRITON, TRITON_5MS, TRITON_ONE = "single", "fixed", "triton", "triton-5ms", "triton-one"
RULES = (OURS, SINGLE, FIXED, TRITON, TRITON_5MS, TRITON_ONE)
RIVALS = RULES[1:]
LABELS = {
    OURS: "Turnout",
    SINGLE: "no batching",
    FIXED: "fixed 64 / 5 ms",
    TRITON: "Triton's rule",
    TRITON_5MS: "Triton's rule, 5 ms",
    TRITON_ONE: "Triton's rule, 1 slot",
}
BATCH_ROWS = 64
_QUEUE_ROWS = 4096
SLOW = Device("slow", 5.0, 0.2, 32)
FAST = Device("fast", 0.1, 0.01, 32)
SHAPES = Device("shapes", 5.0, 0.2, -1)
# 64 rows in 64 ms are 1,000 rows/s: a = (64 - 20) / 64 ms.
OVERLOAD = Device("overload", 20.0, 0.6875, 32)
LONE = Device("lone", 5.0, 0.2, 32)
LONE_DELAY_MS = 5.0
RANKER_ROWS, RANKER_QUEUE_ROWS = 1024, 16_384
_REAL = "real-"


@dataclass(frozen=True, slots=True)
class Curve:
    """One device under a rising rate of requests, rule beside rule."""

    name: str
    title: str
    model: str
    rates: tuple[float, ...]  # requests/s
    rules: tuple[str, ...] = RULES
    kinds: tuple[Kind, ...] = ("poisson", "bursty")
    deadline_ms: float = 100
    widths: tuple[int, ...] = (32,)
    warm_s: float = 0.7
    window_s: float = 2.2
    sustained_s: float = 0  # what `rates` are told as multiples of; 0 = they are told as they are
    is_real: bool = False  # a real runtime's model

    def jobs(self, repository: str) -> Iterator[tuple[str, Kind, float, Job]]:
        """Rule, arrivals, rate and job of every point; rules at one rate follow each other, under one schedule."""
        for number, kind in enumerate(self.kinds):
            for step, rate in enumerate(self.rates):
                for rule in self.rules:
                    yield rule, kind, rate, self._job(kind, rate, 1000 * number + 2 * step, repository)

    def pod(self, rule: str) -> str:
        return f"{_REAL}{rule}" if self.is_real else rule

    def _job(self, kind: Kind, rate: float, seed: int, repository: str) -> Job:
        return Job(
            address="",
            model=self.model,
            rate=rate,
            arrivals=kind,
            warm_s=self.warm_s,
            window_s=self.window_s,
            deadline_ms=self.deadline_ms,
            widths=self.widths,
            repository=repository if self.is_real else "",
            seed=seed,
        )


CURVES = (
    Curve("slow", "Launch of 5 ms + 0.2 ms a row", "slow", (100, 180, 400, 1000, 2000, 3000, 4500)),
    Curve("fast", "Launch of 0.1 ms + 0.01 ms a row", "fast", (1000, 2000, 4000, 6000, 8000, 12_000)),
    Curve(
        "ranker",
        "The ranker, one row a request",
        "ranker",
        (1000, 2000, 4000, 6000, 8000, 12_000, 20_000),
        rules=(OURS, SINGLE, FIXED, TRITON, TRITON_5MS),
        kinds=("poisson",),
        is_real=True,
    ),
    Curve(
        "shapes",
        "Two shapes in turn, launch of 5 ms + 0.2 ms a row",
        "shapes",
        (100, 180, 400, 1000, 2000, 3000),
        rules=(OURS, SINGLE, FIXED, TRITON, TRITON_5MS),
        kinds=("poisson",),
        widths=(8, 16),
    ),
    Curve(
        "overload",
        "Launch of 20 ms + 0.6875 ms a row, deadline 50 ms",
        "overload",
        (500, 1000, 2000, 3000, 5000, 10_000),
        rules=(OURS, SINGLE, FIXED, TRITON),
        kinds=("poisson",),
        deadline_ms=50,
        warm_s=1.0,
        window_s=4.0,
        sustained_s=1000,
    ),
)


def quick(curve: Curve) -> Curve:
    """The same in a few seconds: every other rate, shorter, Poisson only but for the slow device."""
    rates = curve.rates[1::2]
    if curve.rates[-1] not in rates:
        rates = (*rates, curve.rates[-1])
    kinds = curve.kinds if curve.name == "slow" else curve.kinds[:1]
    return replace(curve, rates=rates, kinds=kinds, warm_s=0.5, window_s=1.0)


def pods(curves: Sequence[Curve]) -> list[PodPlan]:
    """The pods that these curves need."""
    synthetic = {rule for curve in curves if not curve.is_real for rule in curve.rules}
    real = {rule for curve in curves if curve.is_real for rule in curve.rules}
    return [_synthetic_pod(rule) for rule in RULES if rule in synthetic] + [
        _real_pod(rule) for rule in RULES if rule in real
    ]


def lone_pod() -> PodPlan:
    """Ours, with two models for one caller alone: one without a delay and one with."""
    delayed = LONE._replace(model="lone-delayed")
    delay = {"max_queue_delay_microseconds": int(LONE_DELAY_MS * 1000)}
    return PodPlan("lone", devices=(LONE, delayed), specs={"lone": _batching(), "lone-delayed": _batching() | delay})


def _synthetic_pod(rule: str) -> PodPlan:
    devices = (SLOW, FAST, SHAPES, OVERLOAD)
    specs = {device.model: _batching() for device in devices}
    name, slots = ("triton", 1) if rule == TRITON_ONE else (rule, 2)
    return PodPlan(rule, rule=name, slots=slots, devices=devices, specs=specs)


def _real_pod(rule: str) -> PodPlan:
    batching = {"max_batch_size": RANKER_ROWS, "max_queue_size": RANKER_QUEUE_ROWS}
    return PodPlan(f"{_REAL}{rule}", rule=rule, specs={"ranker": batching})


def _batching() -> dict[str, int]:
    return {"max_batch_size": BATCH_ROWS, "max_queue_size": _QUEUE_ROWS}
