"""A worker process as its supervisor starts it."""

import pytest

from services.runtime.environment import environment
from services.runtime.process import describe_exit


def test_a_worker_inherits_the_world_but_none_of_the_meshs_settings() -> None:
    inherited = environment({"PATH": "/bin", "TURNOUT_RUNTIME_ETCD_PASSWORD": "secret", "OMP_NUM_THREADS": "64"}, 1)

    assert inherited["PATH"] == "/bin"
    assert inherited["OMP_NUM_THREADS"] == inherited["OPENBLAS_NUM_THREADS"] == "1"
    assert not [name for name in inherited if name.startswith("TURNOUT_")]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (0, "exited with status 0"),
        (3, "exited with status 3"),
        (-9, "was killed by SIGKILL"),
        (-99, "was killed by signal 99"),
    ],
)
def test_an_exit_is_said_in_words(status: int, expected: str) -> None:
    assert describe_exit(status) == expected
