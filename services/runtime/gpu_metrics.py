"""What NVIDIA's management library tells of this pod's GPUs, where there are any and the extra `gpu` is installed."""

import importlib
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_LIBRARY = "pynvml"

log = structlog.get_logger()


class GpuMetrics(Collector):
    """Read when scraped; a GPU that does not answer is left out."""

    def __init__(self, library: Any, gpus: Sequence[str]) -> None:
        self._library = library
        self._gpus = tuple(gpus)

    def collect(self) -> Iterator[Metric]:
        labels = ["gpu"]
        busy = GaugeMetricFamily("turnout_gpu_utilization", "Share of time in which kernels ran.", labels=labels)
        used = GaugeMetricFamily("turnout_gpu_memory_used_bytes", "Memory of a GPU in use, by anybody.", labels=labels)
        total = GaugeMetricFamily("turnout_gpu_memory_total_bytes", "Memory of a GPU.", labels=labels)
        power = GaugeMetricFamily("turnout_gpu_power_watts", "Power drawn.", labels=labels)
        nvml = self._library
        for gpu in self._gpus:
            try:
                handle = self._handle(gpu)
                memory = nvml.nvmlDeviceGetMemoryInfo(handle)
                used.add_metric([gpu], memory.used)
                total.add_metric([gpu], memory.total)
                busy.add_metric([gpu], nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100)
                power.add_metric([gpu], nvml.nvmlDeviceGetPowerUsage(handle) / 1000)
            except nvml.NVMLError:
                continue  # parts of a GPU (MIG) tell of memory only
        yield from (busy, used, total, power)

    def _handle(self, gpu: str) -> Any:
        nvml = self._library
        return nvml.nvmlDeviceGetHandleByIndex(int(gpu)) if gpu.isdecimal() else nvml.nvmlDeviceGetHandleByUUID(gpu)


def export_gpus(gpus: Sequence[str], registry: CollectorRegistry) -> bool:
    """Add these GPUs to the metrics; whether there was anything to add."""
    if not gpus or find_spec(_LIBRARY) is None:
        return False
    library = importlib.import_module(_LIBRARY)
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        log.warning("gpu_metrics_missing", reason=str(error))
        return False
    registry.register(GpuMetrics(library, gpus))
    return True
