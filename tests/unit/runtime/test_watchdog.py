"""How often a worker is looked at."""

import pytest

from services.core.model_spec import Limits
from services.runtime.watchdog import pause_s

MIB = 1 << 20


@pytest.mark.parametrize(
    ("limits", "used_mib", "growth_mib", "expected_s"),
    [
        (Limits(), 5000, 9999, 1.0),  # no limit of memory: nothing to be quick for
        (Limits(max_memory_bytes=4096 * MIB), 100, 0, 1.0),
        (Limits(max_memory_bytes=1024 * MIB), 512, 0, 0.5),  # it may begin to grow at any moment
        (Limits(max_memory_bytes=1024 * MIB), 1000, 0, 0.05),
        (Limits(max_memory_bytes=4096 * MIB), 96, 8000, 0.25),  # it grows
        (Limits(max_memory_bytes=1024 * MIB), 2000, 0, 0.05),
        (Limits(max_execution_ms=400), 0, 0, 0.1),
        (Limits(max_execution_ms=1), 0, 0, 0.05),
    ],
)
def test_the_nearer_a_limit_the_sooner_the_next_look(
    limits: Limits, used_mib: int, growth_mib: float, expected_s: float
) -> None:
    assert pause_s(limits, used_mib * MIB, growth_mib * MIB) == pytest.approx(expected_s)
