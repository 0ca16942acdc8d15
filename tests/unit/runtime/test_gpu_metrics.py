"""GPUs in the metrics: nothing without any, and nothing without the library."""

from importlib.util import find_spec

from prometheus_client import CollectorRegistry, generate_latest

from services.runtime.gpu_metrics import export_gpus


def test_a_pod_without_gpus_exports_nothing() -> None:
    registry = CollectorRegistry()

    assert not export_gpus((), registry)
    assert generate_latest(registry) == b""


def test_without_the_library_or_its_driver_nothing_is_exported() -> None:
    """Nobody who runs this test has a GPU of number 99; with a driver, that one is left out."""
    registry = CollectorRegistry()
    exported = export_gpus(("99",), registry)

    assert exported <= (find_spec("pynvml") is not None)
    assert b'gpu="99"' not in generate_latest(registry)
